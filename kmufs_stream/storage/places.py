"""Where stores lie: on this machine, in an object store under an address, or in a Zarr store.

A place is a :class:`pathlib.Path`, a :class:`upath.UPath` (whatever fsspec knows: ``s3://``,
``gs://``, ``az://``, ``memory://``; ``https://`` to read from), or a Zarr store made in Python.
Only here is one told from the other by its address.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from itertools import chain, count
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, TypeAlias, TypeGuard
from urllib.parse import urlsplit

import fsspec
from fsspec.registry import known_implementations
from upath import UPath
from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore, WrapperStore, ZipStore

from kmufs_stream.errors import BrokenError, KmufsError, RequestError, did_you_mean, missing_library
from kmufs_stream.storage.address_store import AZURE, store_of
from kmufs_stream.storage.internals import sync

Place: TypeAlias = Path | UPath | Store
PlaceLike: TypeAlias = str | os.PathLike[str] | UPath | Store

MARKS = ("zarr.json", ".zgroup", ".zarray")  # any of these tells a Zarr node
USER_INFO = re.compile(r"(?<=://)[^/@\s]*:[^/@\s]*@")
S3 = ("s3", "s3a")
CLIENTS = ("botocore", "aiobotocore", "aiohttp", "google", "gcsfs", "azure", "requests")
OURS = ("use_listings_cache", "max_concurrency")  # storage options that we give
UNLISTED = frozenset({"http", "https"})  # what there is, and when it changed, nobody tells


def place_of(given: PlaceLike, storage_options: Mapping[str, Any] | None = None) -> Place:
    """The place that an address, path or store stands for.

    Parameters
    ----------
    storage_options : for fsspec, where it is an address; a folder or a store has none.

    Raises RequestError for an empty path, and for an address of an unknown kind, whose library is
    not installed, or that holds a password.
    """
    if isinstance(given, LocalStore):
        return Path(given.root)
    if isinstance(given, Store | UPath):
        return given
    address = os.fspath(given)
    if not address.strip():
        raise RequestError(
            "empty_path",
            f"A path is {address!r}: it names nothing.",
            "Give a path or an address; . is the folder that this is run in.",
        )
    if "://" not in address:
        return Path(address)
    protocol = address.partition("://")[0].rpartition("::")[2]
    if protocol in ("file", "local"):
        return Path(fsspec.core.url_to_fs(address)[1])
    _check_address(address, protocol)
    # What is there has to be seen as it is now, not as it was; and chunks are read side by side
    # anyway: to read parts of one side by side, s3fs first asks for its size.
    options: dict[str, Any] = {"use_listings_cache": False}
    if protocol in S3:
        options["max_concurrency"] = 1
    options |= storage_options or {}
    try:
        place: UPath = UPath(address.rstrip("/"), **options)
        place.fs  # noqa: B018 imports the library
    except ImportError as error:
        if protocol in S3:
            raise missing_library(address, "s3fs") from error
        said = known_implementations.get(protocol, {}).get("err", str(error)).rstrip(".")
        raise RequestError(
            "needs_extra", f"{address} takes a library that is not installed.", f"{said}."
        ) from error
    except ValueError as error:
        if "credential" in str(error):
            raise _no_credentials(address, error) from error
        raise RequestError(
            "unknown_protocol",
            f"{address} is of no kind that fsspec knows: {error}.",
            "Give a folder, or an address that begins with s3://, gs://, az:// or https://.",
        ) from error
    except TypeError as error:
        raise RequestError(
            "bad_option",
            f"The storage options of {address} are not understood: {error}.",
            f"Give those of fsspec's {protocol} file system.",
        ) from error
    return place


def _check_address(address: str, protocol: str) -> None:
    """Refuse passwords, which would end up in results and messages, and signed addresses."""
    parts = urlsplit(address)
    if parts.password or (parts.username and protocol not in AZURE):
        raise RequestError(
            "secret_in_address",
            f"The address {protocol}://...@{parts.hostname}{parts.path} holds credentials.",
            "Leave them out; they are taken from the environment (for S3: AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or a profile).",
        )
    if protocol in UNLISTED and (parts.query or parts.fragment):
        raise RequestError(
            "bad_address",
            f"The address {protocol}://{parts.hostname}{parts.path} is followed by a query.",
            "Leave it out: the addresses of chunks are made by adding to that of their store.",
        )


def zarr_root(place: Place) -> Store:
    """What zarr and xarray open at this place: no text, which zarr may take for an address."""
    if isinstance(place, Path):
        zipped = place.is_file()
        return ZipStore(place.absolute(), mode="r") if zipped else LocalStore(place)
    if isinstance(place, Store):
        return place
    return store_of(place)


def is_unlisted(place: UPath | FsspecStore) -> bool:
    """Whether nobody can say what there is below an address: a plain web server."""
    protocol = place.fs.protocol
    return not UNLISTED.isdisjoint([protocol] if isinstance(protocol, str) else protocol)


def refuse_unlisted(place: UPath, parameter: str) -> None:
    """Raise RequestError for an address that nothing can be written to."""
    if is_unlisted(place):
        raise RequestError(
            "read_only",
            f"{place} cannot be written to: it is a web address.",
            f"Choose another `{parameter}`.",
        )


def name_of(place: Place) -> str:
    """The place for people, results and errors: without secrets, the same in every run."""
    if isinstance(place, FsspecStore):
        return USER_INFO.sub("", str(place.fs.unstrip_protocol(place.path)))
    if isinstance(place, LocalStore | ZipStore | WrapperStore):
        return str(place).removeprefix("file://").removeprefix("zip://")
    return f"a {type(place).__name__}" if isinstance(place, Store) else str(place)


def path_of(place: Place) -> PurePath | None:
    """A path to compare places by: below ``//PROTOCOL`` for addresses, None for other stores."""
    if isinstance(place, Path):
        return place.resolve()
    if isinstance(place, UPath | FsspecStore):
        protocol = place.fs.protocol
        protocol = protocol if isinstance(protocol, str) else protocol[0]
        if isinstance(place, FsspecStore) or is_unlisted(place):
            path = place.path  # to resolve a web address is to ask its server
        else:
            path = place.resolve().path
        return PurePosixPath(f"//{protocol}", path.strip("/"))
    return None


def is_there(place: Place) -> bool:
    """Whether anything is there. Raises as ``reached()`` does."""
    with reached(place):
        if isinstance(place, Store):
            return not sync(place.is_empty(""))
        if not isinstance(place, Path) and is_unlisted(place):
            return is_zarr(place)
        return bool(place.exists())


def absence(place: Place) -> str:
    """That nothing is at a place, and what else is missing."""
    if isinstance(place, UPath):
        with reached(place):
            try:
                place.fs.ls(place.path)
            except FileNotFoundError as error:
                if " " in str(error):  # a sentence, such as that the bucket does not exist
                    return f"{place} does not exist: {error}."
    return f"{name_of(place)} " + ("is empty." if isinstance(place, Store) else "does not exist.")


def near(place: Place) -> str:
    """The beginning of a remedy: what of the same folder may have been meant."""
    if not isinstance(place, Path):
        return ""
    try:
        return did_you_mean(place.name, (other.name for other in place.parent.iterdir()))
    except OSError:
        return ""  # nothing that can be looked into


def free(name: str) -> str:
    """The first of a.zarr, a-2.zarr, a-3.zarr, ... that is not in the current folder."""
    path = Path(name)
    numbered = (f"{path.stem}-{i}{path.suffix}" for i in count(2))
    return next(each for each in chain([name], numbered) if not Path(each).exists())


def is_zarr(place: Path | UPath) -> bool:
    """Whether a place is a Zarr store, or a part of one. Raises as ``reached()`` does."""
    if isinstance(place, Path) or is_unlisted(place):
        with reached(place):
            return any((place / mark).exists() for mark in MARKS)
    with reached(place), contextlib.suppress(FileNotFoundError):  # one request in place of three
        names = place.fs.ls(place.path, detail=False)
        return any(name.rpartition("/")[2] in MARKS for name in names)
    return False


def remove(place: Path | UPath) -> None:
    """Remove a folder or a prefix with all that is in it, where it is there."""
    if isinstance(place, Path):
        shutil.rmtree(place, ignore_errors=True)
        return
    with contextlib.suppress(FileNotFoundError):
        place.fs.rm(place.path, recursive=True)


@contextlib.contextmanager
def reached(place: Place) -> Iterator[None]:
    """Turn what an object store answers, or that it does not, into errors of ours."""
    try:
        yield
    except Exception as error:
        library = type(error).__module__.partition(".")[0]
        if isinstance(place, UPath) and type(error) in (TypeError, ValueError, AttributeError):
            _refuse_options(place, error)
        if isinstance(place, Path) or not (isinstance(error, OSError) or library in CLIENTS):
            raise
        raise refusal(place, error) from error


def _refuse_options(place: UPath, error: Exception) -> None:
    """Say that storage options are not understood, where there are any: libraries look late."""
    given = [name for name in place.storage_options if name not in OURS]
    if not given:
        return
    raise RequestError(
        "bad_option",
        f"{name_of(place)} cannot be asked for with the storage options "
        f"{', '.join(given)}: {type(error).__name__}: {error}.",
        f"Leave out what fsspec's {place.protocol} file system does not know; a mapping is written "
        """as JSON, like headers='{"name": "value"}'.""",
    ) from error


def refusal(place: Place, error: Exception) -> KmufsError:
    """What an object store's error means: RequestError where it refuses, else BrokenError."""
    name, said = name_of(place), _said(error)
    status = getattr(error, "status_code", getattr(error, "code", None))  # Azure's, Google's
    if isinstance(error, FileNotFoundError) or status == HTTPStatus.NOT_FOUND:
        return RequestError(
            "not_found", f"{name} is not there: {said}.", "Check the address; create the bucket."
        )
    if isinstance(error, PermissionError) or status in (
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
    ):
        return RequestError(
            "access_denied",
            f"Access to {name} is denied: {said}.",
            "Check the address, and the credentials in the environment.",
        )
    if "Credentials" in type(error).__name__:
        return _no_credentials(name, error)
    return BrokenError(
        "unreachable",
        f"{name} cannot be reached: {type(error).__name__}: {said}",
        "Check the address, the network, and `storage_options` endpoint_url where one is needed.",
    )


def _no_credentials(name: str, error: Exception) -> RequestError:
    return RequestError(
        "no_credentials",
        f"There are no credentials for {name}: {_said(error)}.",
        "Set them in the environment (for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a "
        "profile; for Azure: AZURE_STORAGE_CONNECTION_STRING), or say "
        "`storage_options={'anon': True}` where none are needed.",
    )


def _said(error: Exception) -> str:
    """The first line of what a library says, without secrets."""
    return USER_INFO.sub("", str(error)).partition("\n")[0].rstrip(".!")


SIGNATURE = b"\x89HDF\r\n\x1a\n"


def is_hdf5(path: Place) -> TypeGuard[Path]:
    """Whether it is an HDF5 file of this machine, told by its first bytes."""
    if not isinstance(path, Path) or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(SIGNATURE)) == SIGNATURE

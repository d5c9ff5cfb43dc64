"""Where stores are kept: on this machine, under an address, or in a Zarr store made in Python.

A place is a :class:`pathlib.Path`, a :class:`upath.UPath` (any address that fsspec knows:
``s3://``, ``gs://``, ``az://``, ``memory://``; ``https://`` for reading) or a Zarr store. Only this
module tells them apart by their addresses.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from itertools import chain, count
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, TypeAlias, TypeGuard
from urllib.parse import urlsplit

import fsspec
from upath import UPath
from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore, WrapperStore, ZipStore

from kmufs_stream.errors import (
    BrokenError,
    KmufsError,
    Option,
    RequestError,
    Text,
    did_you_mean,
    missing_library,
)
from kmufs_stream.storage.address_store import AZURE, store_of
from kmufs_stream.storage.internals import sync

Place: TypeAlias = Path | UPath | Store
PlaceLike: TypeAlias = str | os.PathLike[str] | UPath | Store

ZARR_FILES = ("zarr.json", ".zgroup", ".zarray")  # each marks a Zarr node
HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
USER_INFO = re.compile(r"(?<=://)[^/@\s]*:[^/@\s]*@")
S3 = ("s3", "s3a")
WEB = frozenset({"http", "https"})  # plain web servers neither list files nor tell of changes
CLIENTS = ("botocore", "aiobotocore", "aiohttp", "google", "gcsfs", "azure", "requests")
OWN_OPTIONS = ("use_listings_cache", "max_concurrency")  # storage options set by place_of()
REMOVALS = 20  # attempts, 0.05 seconds apart


def place_of(given: PlaceLike, storage_options: Mapping[str, Any] | None = None) -> Place:
    """Resolve a path, an address or a store to a place.

    Parameters
    ----------
    storage_options : options of the fsspec file system; used for addresses only.

    Raises RequestError for an empty path and for an address of an unknown kind, whose library is
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
            f"The path {address!r} is empty.",
            "Give a path or an address; . is the current folder.",
        )
    if "://" not in address:
        return Path(address)
    protocol = address.partition("://")[0].rpartition("::")[2]
    if protocol in ("file", "local"):
        return Path(fsspec.core.url_to_fs(address)[1])
    _check_address(address, protocol)
    # A cached listing may be out of date. Chunks are read concurrently anyway; for concurrent reads
    # within a chunk, s3fs would first ask for its size.
    options: dict[str, Any] = {"use_listings_cache": False}
    if protocol in S3:
        options["max_concurrency"] = 1
    options |= storage_options or {}
    try:
        place: UPath = UPath(address.rstrip("/"), **options)
        place.fs  # noqa: B018 imports the library
    except ImportError as error:
        missing = getattr(error.__cause__ or error, "name", None)
        raise missing_library(address, missing or protocol) from error
    except TypeError as error:
        raise _bad_options(address, protocol, options, error) from error
    except ValueError as error:
        if "credential" in str(error):
            raise _no_credentials(address, error) from error
        raise RequestError(
            "unknown_protocol",
            f"{address} is no address that fsspec knows: {error}.",
            "Give a folder, or an address that begins with s3://, gs://, az:// or https://.",
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
    if protocol in WEB and (parts.query or parts.fragment):
        raise RequestError(
            "bad_address",
            f"The address {protocol}://{parts.hostname}{parts.path} is followed by a query.",
            "Leave it out: the addresses of chunks are made by adding to that of their store.",
        )


def zarr_root(place: Place) -> Store:
    """Return the store that zarr and xarray open; a string they might take for an address."""
    if isinstance(place, Path):
        zipped = place.is_file()
        return ZipStore(place.absolute(), mode="r") if zipped else LocalStore(place)
    if isinstance(place, Store):
        return place
    return store_of(place)


def _protocols(place: UPath | FsspecStore) -> tuple[str, ...]:
    protocol = place.fs.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def is_web_address(place: UPath | FsspecStore) -> bool:
    """Whether a place is on a plain web server, where nothing can be listed."""
    return not WEB.isdisjoint(_protocols(place))


def refuse_web_address(place: UPath, parameter: str) -> None:
    """Raise RequestError for an address that cannot be written to."""
    if is_web_address(place):
        raise RequestError(
            "read_only",
            f"{place} cannot be written to: it is a web address.",
            Text("Choose another {}.", Option(parameter)),
        )


def name_of(place: Place) -> str:
    """Describe a place for people, results and errors: without secrets, the same in every run."""
    if isinstance(place, FsspecStore):
        return USER_INFO.sub("", str(place.fs.unstrip_protocol(place.path)))
    if isinstance(place, LocalStore | ZipStore | WrapperStore):
        return str(place).removeprefix("file://").removeprefix("zip://")
    return f"a {type(place).__name__}" if isinstance(place, Store) else str(place)


def comparable_path(place: Place) -> PurePath | None:
    """Return a path to compare places by: addresses under ``//PROTOCOL``, other stores None."""
    if isinstance(place, Path):
        return place.resolve()
    if not isinstance(place, UPath | FsspecStore):
        return None
    if isinstance(place, FsspecStore) or is_web_address(place):
        path = place.path  # resolving a web address would send a request
    else:
        path = place.resolve().path
    return PurePosixPath(f"//{_protocols(place)[0]}", path.strip("/"))


def exists(place: Place) -> bool:
    """Whether anything is stored at a place. Raises as :func:`store_errors` does."""
    with store_errors(place):
        if isinstance(place, Store):
            return not sync(place.is_empty(""))
        if not isinstance(place, Path) and is_web_address(place):
            return is_zarr(place)
        return bool(place.exists())


def check_exists(place: Place, hint: str, *, what: str = "") -> None:
    """Raise RequestError where nothing is stored at a place.

    Parameters
    ----------
    hint : what to do about it; a similar name in the same folder is suggested before it.
    what : beginning of the message, such as "The factor ".
    """
    if exists(place):
        return
    said = "is empty." if isinstance(place, Store) else "does not exist."
    if isinstance(place, UPath):
        with store_errors(place):
            try:
                place.fs.ls(place.path)
            except FileNotFoundError as error:
                if " " in str(error):  # a sentence, such as that the bucket does not exist
                    said = f"does not exist: {error}."
    raise RequestError("not_found", f"{what}{name_of(place)} {said}", _similar_name(place) + hint)


def _similar_name(place: Place) -> str:
    if not isinstance(place, Path):
        return ""
    try:
        return did_you_mean(place.name, (other.name for other in place.parent.iterdir()))
    except OSError:
        return ""  # the folder cannot be listed


def free_name(name: str) -> str:
    """Return the first of a.zarr, a-2.zarr, a-3.zarr, ... that is not in the current folder."""
    path = Path(name)
    numbered = (f"{path.stem}-{i}{path.suffix}" for i in count(2))
    return next(each for each in chain([name], numbered) if not Path(each).exists())


def is_zarr(place: Path | UPath) -> bool:
    """Whether a place is a Zarr store or part of one. Raises as :func:`store_errors` does."""
    if isinstance(place, Path) or is_web_address(place):
        with store_errors(place):
            return any((place / name).exists() for name in ZARR_FILES)
    with store_errors(place), contextlib.suppress(FileNotFoundError):  # one request, not three
        names = place.fs.ls(place.path, detail=False)
        return any(name.rpartition("/")[2] in ZARR_FILES for name in names)
    return False


def is_hdf5(path: Place) -> TypeGuard[Path]:
    """Whether a place is an HDF5 file on this machine, judged by its first bytes."""
    if not isinstance(path, Path) or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(HDF5_SIGNATURE)) == HDF5_SIGNATURE


def remove(place: Path | UPath, *, late_writes: bool = False) -> None:
    """Remove a file, a folder or everything under an address, if it exists.

    ``late_writes``: writes still under way may create the folder again.
    """
    if not isinstance(place, Path):
        with contextlib.suppress(FileNotFoundError):
            place.fs.rm(place.path, recursive=True)
        return
    if place.is_file():
        place.unlink(missing_ok=True)
    for _ in range(REMOVALS):
        shutil.rmtree(place, ignore_errors=True)
        if late_writes:
            time.sleep(0.05)
        if not place.exists():
            return


@contextlib.contextmanager
def store_errors(place: Place) -> Iterator[None]:
    """Turn the errors of an object store, or of its client library, into KmufsError."""
    try:
        yield
    except Exception as error:
        library = type(error).__module__.partition(".")[0]
        if isinstance(place, UPath) and type(error) in (TypeError, ValueError, AttributeError):
            given = place.storage_options
            if not given.keys() <= {*OWN_OPTIONS}:  # some libraries check their options only now
                raise _bad_options(name_of(place), place.protocol, given, error) from error
        if isinstance(place, Path) or not (isinstance(error, OSError) or library in CLIENTS):
            raise
        raise store_error(place, error) from error


def _bad_options(
    name: str, protocol: str, options: Mapping[str, Any], error: Exception
) -> RequestError:
    given = ", ".join(option for option in options if option not in OWN_OPTIONS)
    return RequestError(
        "bad_option",
        f"{name} cannot be opened with the storage options {given}: "
        f"{type(error).__name__}: {error}.",
        f"Leave out what fsspec's {protocol} file system does not know; a mapping is written "
        """as JSON, like headers='{"name": "value"}'.""",
    )


def store_error(place: Place, error: Exception) -> KmufsError:
    """Describe an object store's error: RequestError where access is refused, else BrokenError."""
    name, said = name_of(place), _first_line(error)
    status = getattr(error, "status_code", getattr(error, "code", None))  # Azure's, Google's
    if isinstance(error, FileNotFoundError) or status == HTTPStatus.NOT_FOUND:
        return RequestError(
            "not_found", f"{name} is not there: {said}.", "Check the address; create the bucket."
        )
    denied = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
    if isinstance(error, PermissionError) or status in denied:
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
        Text("Check the address, the network and, if needed, {storage_options} endpoint_url."),
    )


def _no_credentials(name: str, error: Exception) -> RequestError:
    return RequestError(
        "no_credentials",
        f"There are no credentials for {name}: {_first_line(error)}.",
        Text(
            "Set them in the environment (for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
            "a profile; for Azure: AZURE_STORAGE_CONNECTION_STRING), or say {storage_options} "
            "where none are needed.",
            storage_options={"anon": True},
        ),
    )


def _first_line(error: Exception) -> str:
    """Return the first line of a library's message, without secrets."""
    return USER_INFO.sub("", str(error)).partition("\n")[0].rstrip(".!")

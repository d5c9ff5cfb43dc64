"""List the stored chunks of a Zarr array, and find a damaged one."""

from __future__ import annotations

import contextlib
import itertools
import json
import zipfile
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import zarr

from kmufs_stream.errors import BrokenError, KmufsError, Text
from kmufs_stream.storage.internals import sync
from kmufs_stream.storage.places import is_web_address, name_of, store_errors

METADATA = {"zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata", ".nczarray", ".nczattrs"}


def damaged_chunk(
    array: zarr.Array[Any], among: Iterable[tuple[tuple[slice, ...], str]]
) -> BrokenError | None:
    """Read cells one by one and return the error of the first that cannot be read, if any."""
    for cell, key in among:
        try:
            array[cell]
        except BrokenError as error:
            return error
        except Exception as error:
            said = f"cannot be read: {type(error).__name__}: {error}"
            return corrupt_chunk(f"chunk {key} of {address(array)} {said}", key)
    return None


def corrupt_chunk(message: str, key: str | None) -> BrokenError:
    """The error for a damaged chunk; ``key`` where it is known which."""
    return BrokenError(
        "corrupt_chunk",
        message,
        "Restore that chunk from the data's origin (or write the store again), then rerun.",
        key,
    )


@contextlib.contextmanager
def readable(what: str, code: str = "corrupt_chunk") -> Iterator[None]:
    """Turn errors inside into a BrokenError about ``what``."""
    try:
        yield
    except KmufsError:
        raise
    except Exception as error:
        raise BrokenError(
            code,
            f"{what} cannot be read: {type(error).__name__}: {error}",
            "Restore it from the data's origin (or write the store again), then rerun.",
        ) from error


def coordinate_of(what: str) -> contextlib.AbstractContextManager[None]:
    """Turn errors inside into a BrokenError about a coordinate of ``what``."""
    return readable(f"A coordinate of {what}", "corrupt_coordinate")


def missing_chunk(message: str) -> BrokenError:
    return BrokenError(
        "missing_chunk",
        f"{message}; Zarr would read the fill value instead.",
        Text(
            "Restore it, and see that every worker reaches the store under this name; or, if it "
            "was left out because it holds nothing but that value, say {fill_missing_chunks}.",
            fill_missing_chunks=True,
        ),
    )


def address(array: zarr.Array[Any]) -> str:
    """Describe where an array is stored, for people."""
    store = name_of(array.store)
    return f"{store}/{array.path}" if array.path else store


@dataclass(frozen=True)
class Inventory:
    """Lists an array's metadata and chunks; raises BrokenError where a chunk is missing."""

    array: zarr.Array[Any]
    fill_missing_chunks: bool

    def __call__(self) -> list[str]:
        metadata = describe(self.array.metadata.to_dict())
        with store_errors(self.array.store):
            stored = _stored_keys(self.array)
        if stored is None:
            return [metadata]  # a missing chunk is noticed when it is read
        if not self.fill_missing_chunks:
            # Found soon, even if damaged metadata claim more chunks than can be counted.
            missing = next((key for _, key in cells(self.array) if key not in stored), None)
            if missing is not None:
                count = f" ({len(stored)} of {prod(_grid(self.array))} are)"
                raise missing_chunk(f"chunk {missing} of {address(self.array)} is not there{count}")
        chunks = [f"{key} {stored[key]}" for key in sorted(stored)]
        return [metadata, *chunks]


def cells(array: zarr.Array[Any]) -> Iterator[tuple[tuple[slice, ...], str]]:
    """Yield the region and the key of every stored object of an array (chunk, or shard)."""
    unit = array.shards or array.chunks
    for cell in itertools.product(*map(range, _grid(array))):
        region = tuple(slice(i * s, (i + 1) * s) for i, s in zip(cell, unit, strict=True))
        yield region, array.metadata.encode_chunk_key(cell)


def _grid(array: zarr.Array[Any]) -> list[int]:
    unit = array.shards or array.chunks
    return [-(-extent // step) for extent, step in zip(array.shape, unit, strict=True)]


def _stored_keys(array: zarr.Array[Any]) -> dict[str, str] | None:
    """Return the keys of the stored chunks, with sizes and times where the store knows them.

    None for stores that cannot list them. Object stores list a thousand in one request.
    """
    store = array.store
    prefix = f"{array.path}/" if array.path else ""
    if isinstance(store, zarr.storage.LocalStore):
        root = Path(store.root, array.path)
        files = (f for f in root.rglob("*") if f.is_file())
        found = {f.relative_to(root).as_posix(): f.stat() for f in files}
        keys = {key: f"{s.st_size} {s.st_mtime_ns}" for key, s in found.items()}
    elif isinstance(store, zarr.storage.ZipStore):
        with zipfile.ZipFile(str(store.path)) as archive:
            keys = {
                entry.filename.removeprefix(prefix): f"{entry.file_size} {entry.CRC}"
                for entry in archive.infolist()
                if entry.filename.startswith(prefix) and not entry.is_dir()
            }
    elif isinstance(store, zarr.storage.FsspecStore):
        if is_web_address(store):
            return None
        place = f"{store.path}/{array.path}".rstrip("/")
        infos = sync(store.fs._find(place, detail=True))  # the asynchronous find()
        keys = {name.removeprefix(f"{place}/"): _version(info) for name, info in infos.items()}
    elif not store.supports_listing:
        return None
    else:
        listed = sync(_collect(store.list_prefix(prefix)))
        keys = {key.removeprefix(prefix): "" for key in listed}
    return {key: version for key, version in keys.items() if key not in METADATA}


def _version(info: dict[str, Any]) -> str:
    """Return an object's size, and its digest or time of change."""
    tags = ("ETag", "etag", "mtime", "updated", "last_modified", "LastModified", "created")
    return f"{info.get('size')} {next((info[tag] for tag in tags if info.get(tag)), '')}"


async def _collect(keys: AsyncIterator[str]) -> list[str]:
    return [key async for key in keys]


def describe(metadata: Any) -> str:
    """Return metadata as canonical JSON, for fingerprints."""
    return json.dumps(metadata, sort_keys=True, default=str)

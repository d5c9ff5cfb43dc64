"""Chunks whose lengths are checked before they are decoded, which trusts what a chunk says.

Blosc reads as many bytes as its header says, whether they are there or not; variable-length text
takes memory for as many items as are counted in its first bytes, and ignores what is left over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import prod
from typing import Any

import numcodecs
import zarr
import zarr.codecs
import zarr.codecs.numcodecs
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import WrapperStore

from kmufs_stream.places import name_of
from kmufs_stream.sources.stored import METADATA, corrupt_chunk

BLOSC = numcodecs.Blosc | zarr.codecs.BloscCodec | zarr.codecs.numcodecs.Blosc
BLOSC_HEADER = 16  # bytes, of which the last four tell the length of the whole
ITEMS = numcodecs.VLenUTF8 | numcodecs.VLenBytes | zarr.codecs.VLenUTF8Codec
ITEMS |= zarr.codecs.VLenBytesCodec

Check = Callable[[Buffer], str]
"""Tells what is wrong with an encoded chunk, "" where nothing is."""


def checked(store: Store, arrays: Iterable[zarr.Array[Any]]) -> CheckedStore:
    """The store that these arrays lie in, with their chunks checked. O(1) for a chunk as a rule.

    O(items) for text that is not compressed; shards, and what is compressed otherwise, check
    themselves.
    """
    found = {f"{array.path}/".lstrip("/"): _check_of(array) for array in arrays}
    return CheckedStore(store, {path: check for path, check in found.items() if check is not None})


class CheckedStore(WrapperStore[Store]):
    """A store that raises BrokenError, with its name, for a chunk cut off or miscounted.

    Parameters
    ----------
    checks : of the arrays below these prefixes; chunks of others are not looked at.
    """

    _supports_sync_io = False  # Zarr's shortcut would pass by what follows

    def __init__(self, store: Store, checks: Mapping[str, Check]) -> None:
        super().__init__(store)
        self._checks = checks

    def __str__(self) -> str:
        return name_of(self._store)

    def _with_store(self, store: Store) -> CheckedStore:
        return type(self)(store, self._checks)

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,  # xarray leaves it out for nczarr
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        found = await self._store.get(key, prototype or default_buffer_prototype(), byte_range)
        if found is None or byte_range is not None or key.rpartition("/")[2] in METADATA:
            return found
        for prefix, check in self._checks.items():
            if key.startswith(prefix) and (wrong := check(found)):
                message = f"chunk {key} of {self} {wrong}."
                raise corrupt_chunk(message, key.removeprefix(prefix))
        return found


def _check_of(array: zarr.Array[Any]) -> Check | None:
    if array.shards is not None:
        return None
    last = [*array.filters, array.serializer, *array.compressors][-1]
    if last is None and array.filters:  # format 2 has no serializer
        last = array.filters[-1]
    if isinstance(last, BLOSC):
        return _of_blosc
    return partial(_of_items, prod(array.chunks)) if isinstance(last, ITEMS) else None


def _of_blosc(chunk: Buffer) -> str:
    needed = int.from_bytes(chunk[BLOSC_HEADER - 4 : BLOSC_HEADER].to_bytes(), "little")
    needed = max(needed, BLOSC_HEADER)
    return f"is cut off: {len(chunk)} bytes of {needed}" if len(chunk) < needed else ""


def _of_items(count: int, chunk: Buffer) -> str:
    data = chunk.to_bytes()
    at = 4
    if int.from_bytes(data[:at], "little") != count:
        return f"does not hold {count} items"
    for _ in range(count):
        at += 4 + int.from_bytes(data[at : at + 4], "little")
    return "" if at == len(data) else f"has {len(data)} bytes where its items take {at}"

"""Chunks whose lengths are checked before they are decoded, which trusts what a chunk says.

Blosc reads as many bytes as its header says, whether they are there or not; variable-length text
takes memory for as many items as are counted in its first bytes, compressed or not, and ignores
what is left over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Self, cast

import numcodecs
import zarr
import zarr.codecs
import zarr.codecs.numcodecs
from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.codec import BaseCodec
from zarr.abc.store import ByteRequest, Store
from zarr.buffer import default_buffer_prototype
from zarr.storage import StorePath

from kmufs_stream.errors import RequestError
from kmufs_stream.storage.chunks import METADATA, address, corrupt_chunk
from kmufs_stream.storage.internals import ArraySpec, StoreInFront
from kmufs_stream.storage.places import name_of

BLOSC = numcodecs.Blosc | zarr.codecs.BloscCodec | zarr.codecs.numcodecs.Blosc
BLOSC_HEADER = 16  # bytes, of which the last four tell the length of the whole
ITEMS = numcodecs.VLenUTF8 | numcodecs.VLenBytes | zarr.codecs.VLenUTF8Codec
ITEMS |= zarr.codecs.VLenBytesCodec

Check = Callable[[Buffer], Awaitable[str]]
"""Tells what is wrong with an encoded chunk, "" where nothing is."""


def checked(store: Store, arrays: Iterable[zarr.Array[Any]]) -> CheckedStore:
    """The store that these arrays lie in, with their chunks checked. O(1) for a chunk as a rule.

    O(items) for text that is not compressed; what is, is decompressed to see how many items it
    counts. Shards, and what is compressed otherwise, check themselves.
    """
    found = {f"{array.path}/".lstrip("/"): _check_of(array) for array in arrays}
    return CheckedStore(store, {path: check for path, check in found.items() if check is not None})


class CheckedStore(StoreInFront):
    """A store that raises BrokenError, with its name, for a chunk cut off or miscounted.

    Parameters
    ----------
    checks : of the arrays below these prefixes; chunks of others are not looked at.
    """

    def __init__(self, store: Store, checks: Mapping[str, Check]) -> None:
        super().__init__(store)
        self._checks = checks

    def __str__(self) -> str:
        return name_of(self._store)

    def over(self, store: Store) -> Self:
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
            if key.startswith(prefix) and (wrong := await check(found)):
                message = f"chunk {key} of {self} {wrong}."
                raise corrupt_chunk(message, key.removeprefix(prefix))
        return found


def through(array: zarr.Array[Any], store: Store) -> zarr.Array[Any]:
    """An array of another store, which this one wraps, read through it."""
    inner = array.async_array
    place = StorePath(store, array.path)
    return zarr.Array(type(inner)(inner.metadata, place, inner.config))


def check_filters(array: zarr.Array[Any]) -> None:
    """Refuse what netCDF-C writes for its shuffle filter, which numcodecs takes for no filter."""
    for codec in array.filters:
        if isinstance(codec, numcodecs.Shuffle) and not codec.elementsize:
            raise RequestError(
                "bad_filter",
                f"{address(array)} is shuffled by elements of 0 bytes, as netCDF-C says for those "
                "of the dtype: Zarr would read other numbers.",
                "Write it again with netCDF-C and shuffle=False.",
            )


def _check_of(array: zarr.Array[Any]) -> Check | None:
    if array.shards is not None:
        return None
    codecs: list[Any] = [*array.filters, array.serializer, *array.compressors]
    codecs = [codec for codec in codecs if codec is not None]  # format 2 has no serializer
    items = next((i for i, codec in enumerate(codecs) if isinstance(codec, ITEMS)), None)
    if items is not None:
        return _Items(prod(array.chunks), tuple(codecs[items + 1 :]), _spec(array))
    return _of_blosc if codecs and isinstance(codecs[-1], BLOSC) else None


def _spec(array: zarr.Array[Any]) -> ArraySpec:
    """What codecs are told of a chunk."""
    inner = array.async_array
    return ArraySpec(
        array.chunks,
        array.metadata.dtype,
        array.metadata.fill_value,
        inner.config,
        default_buffer_prototype(),
    )


async def _of_blosc(chunk: Buffer) -> str:
    needed = int.from_bytes(chunk[BLOSC_HEADER - 4 : BLOSC_HEADER].to_bytes(), "little")
    needed = max(needed, BLOSC_HEADER)
    return f"is cut off: {len(chunk)} bytes of {needed}" if len(chunk) < needed else ""


@dataclass(frozen=True)
class _Items:
    """Whether a chunk holds so many items, once what they were compressed with is undone."""

    count: int
    compressors: tuple[Any, ...]
    spec: ArraySpec

    async def __call__(self, chunk: Buffer) -> str:
        for codec in reversed(self.compressors):
            if isinstance(codec, BLOSC) and (wrong := await _of_blosc(chunk)):
                return wrong
            try:
                chunk = await self._undone(codec, chunk)
            except Exception as error:  # what damaged bytes lead to in a codec may be anything
                return f"cannot be decompressed: {type(error).__name__}: {error}"
        if int.from_bytes(chunk[:4].to_bytes(), "little") != self.count:
            return f"does not hold {self.count} items"
        return "" if self.compressors else self._of_lengths(chunk.to_bytes())

    async def _undone(self, codec: Any, chunk: Buffer) -> Buffer:
        if isinstance(codec, BaseCodec):
            (undone,) = await codec.decode([(chunk, self.spec)])
            return cast(Buffer, undone)
        plain = await asyncio.to_thread(codec.decode, chunk.to_bytes())  # of format 2
        return self.spec.prototype.buffer.from_bytes(bytes(plain))

    def _of_lengths(self, data: bytes) -> str:
        at = 4
        for _ in range(self.count):
            at += 4 + int.from_bytes(data[at : at + 4], "little")
        return "" if at == len(data) else f"has {len(data)} bytes where its items take {at}"

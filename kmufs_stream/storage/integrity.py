"""Check the lengths of chunks before they are decoded, as decoders trust what a chunk says.

Blosc reads as many bytes as its header says, whether they exist or not; variable-length text
allocates memory for as many items as its first bytes count, compressed or not, and ignores
trailing bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, cast

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
BLOSC_HEADER = 16  # bytes, of which the last four hold the length of the chunk
ITEMS = numcodecs.VLenUTF8 | numcodecs.VLenBytes | zarr.codecs.VLenUTF8Codec
ITEMS |= zarr.codecs.VLenBytesCodec

Check = Callable[[Buffer], Awaitable[str]]
"""Says what is wrong with an encoded chunk, "" if nothing is."""


class CheckedStore(StoreInFront):
    """A store that raises BrokenError, naming the chunk, for one that is cut off or miscounted.

    Parameters
    ----------
    checks : by key prefix of an array; chunks of other arrays are not checked.
    """

    def __init__(self, store: Store, checks: Mapping[str, Check]) -> None:
        super().__init__(store)
        self._checks = checks

    def __str__(self) -> str:
        return name_of(self._store)

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,  # xarray leaves it out for nczarr
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        found = await self._fetch(key, prototype or default_buffer_prototype(), byte_range)
        if found is None or byte_range is not None or key.rpartition("/")[2] in METADATA:
            return found
        for prefix, check in self._checks.items():
            if key.startswith(prefix) and (wrong := await check(found)):
                message = f"chunk {key} of {self} {wrong}."
                raise corrupt_chunk(message, key.removeprefix(prefix))
        return found

    async def _fetch(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None
    ) -> Buffer | None:
        return await self._store.get(key, prototype, byte_range)


def checks_of(arrays: Iterable[zarr.Array[Any]]) -> dict[str, Check]:
    """Return the checks of the chunks of arrays, by key prefix.

    A check is O(1) as a rule, O(items) for uncompressed text; compressed text is decompressed to
    see how many items it counts. Shards and other codecs check themselves.
    """
    found = {f"{array.path}/".lstrip("/"): _check_of(array) for array in arrays}
    return {prefix: check for prefix, check in found.items() if check is not None}


def through(array: zarr.Array[Any], store: Store) -> zarr.Array[Any]:
    """Return an array that is read through ``store``, which wraps the array's own."""
    inner = array.async_array
    place = StorePath(store, array.path)
    return zarr.Array(type(inner)(inner.metadata, place, inner.config))


def check_filters(array: zarr.Array[Any]) -> None:
    """Refuse netCDF-C's shuffle filter, which numcodecs would not apply."""
    for codec in array.filters:
        if isinstance(codec, numcodecs.Shuffle) and not codec.elementsize:
            raise RequestError(
                "bad_filter",
                f"{address(array)} is shuffled by elements of 0 bytes, by which netCDF-C means "
                "those of the dtype: Zarr would read other numbers.",
                "Write it again with netCDF-C and shuffle=False.",
            )


def _check_of(array: zarr.Array[Any]) -> Check | None:
    if array.shards is not None:
        return None
    codecs: list[Any] = [*array.filters, array.serializer, *array.compressors]
    codecs = [codec for codec in codecs if codec is not None]  # format 2 has no serializer
    items = next((i for i, codec in enumerate(codecs) if isinstance(codec, ITEMS)), None)
    if items is not None:
        inner = array.async_array
        spec = ArraySpec(
            array.chunks,
            array.metadata.dtype,
            array.metadata.fill_value,
            inner.config,
            default_buffer_prototype(),
        )
        return _Items(prod(array.chunks), tuple(codecs[items + 1 :]), spec)
    return _check_blosc if codecs and isinstance(codecs[-1], BLOSC) else None


async def _check_blosc(chunk: Buffer) -> str:
    needed = int.from_bytes(chunk[BLOSC_HEADER - 4 : BLOSC_HEADER].to_bytes(), "little")
    needed = max(needed, BLOSC_HEADER)
    return f"is cut off: {len(chunk)} bytes of {needed}" if len(chunk) < needed else ""


@dataclass(frozen=True)
class _Items:
    """Checks that a chunk, once decompressed, holds so many items of variable length."""

    count: int
    compressors: tuple[Any, ...]
    spec: ArraySpec

    async def __call__(self, chunk: Buffer) -> str:
        for codec in reversed(self.compressors):
            if isinstance(codec, BLOSC) and (wrong := await _check_blosc(chunk)):
                return wrong
            try:
                chunk = await self._decompress(codec, chunk)
            except Exception as error:  # damaged bytes may raise anything in a codec
                return f"cannot be decompressed: {type(error).__name__}: {error}"
        if int.from_bytes(chunk[:4].to_bytes(), "little") != self.count:
            return f"does not hold {self.count} items"
        return "" if self.compressors else self._check_lengths(chunk.to_bytes())

    async def _decompress(self, codec: Any, chunk: Buffer) -> Buffer:
        if isinstance(codec, BaseCodec):
            (decoded,) = await codec.decode([(chunk, self.spec)])
            return cast(Buffer, decoded)
        plain = await asyncio.to_thread(codec.decode, chunk.to_bytes())  # of format 2
        return self.spec.prototype.buffer.from_bytes(bytes(plain))

    def _check_lengths(self, data: bytes) -> str:
        at = 4
        for _ in range(self.count):
            at += 4 + int.from_bytes(data[at : at + 4], "little")
        return "" if at == len(data) else f"has {len(data)} bytes where its items take {at}"

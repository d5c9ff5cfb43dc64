"""Check the lengths of chunks before they are decoded, as decoders trust what a chunk says.

Blosc reads as many bytes as its header says, whether they exist or not; variable-length text
allocates memory for as many items as its first bytes count, compressed or not, and ignores
trailing bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numcodecs
import zarr
import zarr.codecs
import zarr.codecs.numcodecs
from zarr.abc.buffer import Buffer
from zarr.abc.codec import BaseCodec
from zarr.buffer import default_buffer_prototype

from kmufs_stream.errors import RequestError
from kmufs_stream.storage.chunks import address
from kmufs_stream.storage.internals import ArraySpec

BLOSC = numcodecs.Blosc | zarr.codecs.BloscCodec | zarr.codecs.numcodecs.Blosc
BLOSC_HEADER = 16  # bytes, of which the last four hold the length of the chunk
ITEMS = numcodecs.VLenUTF8 | numcodecs.VLenBytes | zarr.codecs.VLenUTF8Codec
ITEMS |= zarr.codecs.VLenBytesCodec

Check = Callable[[Buffer], Awaitable[str]]
"""Says what is wrong with an encoded chunk, "" if nothing is."""


def checks_of(arrays: Iterable[zarr.Array[Any]]) -> dict[str, Check]:
    """Return the checks of the chunks of arrays, by key prefix.

    A check is O(1) as a rule, O(items) for uncompressed text; compressed text is decompressed to
    see how many items it counts. Shards and other codecs check themselves.
    """
    found = {f"{array.path}/".lstrip("/"): _check_of(array) for array in arrays}
    return {prefix: check for prefix, check in found.items() if check is not None}


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

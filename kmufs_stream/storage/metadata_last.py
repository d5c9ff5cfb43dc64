"""Keep back the metadata of a new store until its chunks are written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import chain

from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import ByteRequest, Store
from zarr.storage import MemoryStore

from kmufs_stream.storage.chunks import METADATA
from kmufs_stream.storage.internals import StoreInFront, sync

ROOT = ("zarr.json", ".zattrs", ".zmetadata", ".zgroup")  # the last of them marks a store


class MetadataLast(StoreInFront):
    """A store whose metadata stay in memory until they are published; chunks go to ``store``.

    Until then readers see no store. zarr and xarray read and write the metadata of a group many
    times over, which takes longer than all else that is done to write a small one.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._kept: dict[str, Buffer] = {}
        self._metadata = MemoryStore(self._kept)

    def publish(self, create: Callable[[str, Buffer], None] | None = None) -> None:
        """Write the metadata; those of the root last, and the very last by ``create``."""
        *others, mark = [key for key in ROOT if key in self._kept]
        sync(self._write([key for key in self._kept if key not in ROOT]))
        for key in others:
            sync(self._write([key]))
        if create is None:
            sync(self._write([mark]))
        else:
            create(mark, self._kept[mark])

    async def _write(self, keys: list[str]) -> None:
        await asyncio.gather(*(self._store.set(key, self._kept[key]) for key in keys))

    def _holder(self, key: str) -> Store:
        return self._metadata if key.rpartition("/")[2] in METADATA else self._store

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        return await self._holder(key).get(key, prototype, byte_range)

    async def exists(self, key: str) -> bool:
        return await self._holder(key).exists(key)

    async def set(self, key: str, value: Buffer) -> None:
        await self._holder(key).set(key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        await self._holder(key).set_if_not_exists(key, value)

    async def delete(self, key: str) -> None:
        await self._holder(key).delete(key)

    async def delete_dir(self, prefix: str) -> None:
        await asyncio.gather(self._metadata.delete_dir(prefix), self._store.delete_dir(prefix))

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        found = [[key async for key in s.list_dir(prefix)] for s in (self._metadata, self._store)]
        for key in dict.fromkeys(chain(*found)):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for store in (self._metadata, self._store):
            async for key in store.list_prefix(prefix):
                yield key

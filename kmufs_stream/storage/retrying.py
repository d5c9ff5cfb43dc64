"""Read Zarr arrays with retries; report damaged and lost chunks instead of wrong values."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import zarr
from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import ByteRequest, Store
from zarr.buffer import default_buffer_prototype
from zarr.storage import FsspecStore, LocalStore, StorePath

from kmufs_stream.errors import BrokenError
from kmufs_stream.storage.chunks import METADATA, corrupt_chunk, missing_chunk
from kmufs_stream.storage.integrity import check_filters, checks_of
from kmufs_stream.storage.internals import StoreInFront
from kmufs_stream.storage.places import name_of

LOG = logging.getLogger(__name__)

RETRIES = 5
FIRST_WAIT = 0.1  # seconds; doubled for each further retry
PERMANENT = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


def with_retries(array: zarr.Array[Any], *, retries: int, missing_is_fill: bool) -> zarr.Array[Any]:
    """Return an array that can be read from any folder or process; see :class:`CheckedStore`."""
    check_filters(array)
    store = array.store
    if isinstance(store, LocalStore):
        store = LocalStore(Path(store.root).absolute(), read_only=store.read_only)
    return through(array, CheckedStore(store, [array], retries, missing_is_fill))


def through(array: zarr.Array[Any], store: Store) -> zarr.Array[Any]:
    """Return an array that is read through ``store``, which wraps the array's own."""
    inner = array.async_array
    place = StorePath(store, array.path)
    return zarr.Array(type(inner)(inner.metadata, place, inner.config))


class CheckedStore(StoreInFront):
    """A store that raises BrokenError, naming the chunk, for one that is lost or damaged.

    Parameters
    ----------
    arrays : whose chunks are checked before they are decoded.
    retries : how often to read a chunk again, after longer and longer waits. What does not exist,
        or is not allowed, fails at once.
    missing_is_fill : a chunk that does not exist holds the fill value; otherwise that is an error
        too, as when a worker does not see the folder.
    """

    def __init__(
        self,
        store: Store,
        arrays: Iterable[zarr.Array[Any]],
        retries: int = 0,
        missing_is_fill: bool = True,
    ) -> None:
        super().__init__(store)
        self._checks = checks_of(arrays)
        self._retries, self._missing_is_fill = retries, missing_is_fill

    def __str__(self) -> str:
        return name_of(self._store)

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,  # xarray leaves it out for nczarr
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        prototype = prototype or default_buffer_prototype()
        if key.rpartition("/")[2] in METADATA:
            return await self._store.get(key, prototype, byte_range)
        found = await self._fetch(key, prototype, byte_range)
        if found is None and not self._missing_is_fill:
            raise missing_chunk(f"chunk {key} of {self} is not there")
        if found is None or byte_range is not None:
            return found
        for prefix, check in self._checks.items():
            if key.startswith(prefix) and (wrong := await check(found)):
                message = f"chunk {key} of {self} {wrong}."
                raise corrupt_chunk(message, key.removeprefix(prefix))
        return found

    async def get_partial_values(
        self,
        prototype: BufferPrototype,
        key_ranges: Iterable[tuple[str, ByteRequest | None]],
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def _fetch(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None
    ) -> Buffer | None:
        wait, left = FIRST_WAIT, self._retries
        while True:
            try:
                return await self._store.get(key, prototype, byte_range)
            except Exception as error:  # a store may raise anything when a connection is lost
                if not left or isinstance(error, PERMANENT):
                    if isinstance(self._store, FsspecStore):  # which holds whole chunks, or none
                        raise BrokenError(
                            "unreachable",
                            f"chunk {key} of {self} cannot be read: {type(error).__name__}: "
                            f"{error}",
                            "Check the network and the credentials, then run again.",
                        ) from error
                    raise
                LOG.info("%s of %s: %s; read again in %.1f s", key, self, error, wait)
                await asyncio.sleep(wait)
                wait, left = 2 * wait, left - 1

"""Zarr arrays whose chunks are asked for again when reading fails, and whose losses show."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import zarr
from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import ByteRequest, Store
from zarr.storage import FsspecStore, LocalStore

from kmufs_stream.errors import BrokenError
from kmufs_stream.storage.integrity import check_filters, checked, through
from kmufs_stream.storage.internals import StoreInFront
from kmufs_stream.storage.places import name_of

LOG = logging.getLogger(__name__)

RETRIES = 5
FIRST_WAIT = 0.1  # seconds; each is twice as long as the one before
PERMANENT = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


def sturdy(array: zarr.Array[Any], *, retries: int, missing_is_fill: bool) -> zarr.Array[Any]:
    """The same array, to be read from any folder or process in spite of transient failures.

    Parameters
    ----------
    retries : how often a chunk whose reading fails is asked for again, after longer and longer
        waits. What is not there, or not allowed, fails at once.
    missing_is_fill : a chunk that is not there holds the fill value; else it is an error too, as
        when a worker does not see the folder.
    """
    check_filters(array)
    store = array.store
    if isinstance(store, LocalStore):
        store = LocalStore(Path(store.root).absolute(), read_only=store.read_only)
    return through(array, checked(SturdyStore(store, retries, missing_is_fill), [array]))


class SturdyStore(StoreInFront):
    """Retries reads of another store; see :func:`sturdy`."""

    def __init__(self, store: Store, retries: int, missing_is_fill: bool) -> None:
        super().__init__(store)
        self._retries = retries
        self._missing_is_fill = missing_is_fill

    def __str__(self) -> str:
        return name_of(self._store)

    def over(self, store: Store) -> Self:
        return type(self)(store, self._retries, self._missing_is_fill)

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        found = await self._patiently(key, prototype, byte_range)
        if found is None and not self._missing_is_fill:
            raise BrokenError(
                "missing_chunk",
                f"chunk {key} of {self} is not there; Zarr would read the fill value instead.",
                "Restore it, and see that every worker reaches the store under this name; or, if "
                "it was left out because it holds nothing but that value, say "
                "`fill_missing_chunks=True`.",
            )
        return found

    async def get_partial_values(
        self,
        prototype: BufferPrototype,
        key_ranges: Iterable[tuple[str, ByteRequest | None]],
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def _patiently(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None
    ) -> Buffer | None:
        wait, left = FIRST_WAIT, self._retries
        while True:
            try:
                return await self._store.get(key, prototype, byte_range)
            except Exception as error:  # a store may raise anything when a connection is lost
                if not left or isinstance(error, PERMANENT):
                    if isinstance(self._store, FsspecStore):  # which holds whole chunks, or none
                        raise self._unreachable(key, error) from error
                    raise
                LOG.info("%s of %s: %s; asked for again in %.1f s", key, self, error, wait)
                await asyncio.sleep(wait)
                wait, left = 2 * wait, left - 1

    def _unreachable(self, key: str, error: Exception) -> BrokenError:
        return BrokenError(
            "unreachable",
            f"chunk {key} of {self} cannot be read: {type(error).__name__}: {error}",
            "Check the network and the credentials, then run again.",
        )

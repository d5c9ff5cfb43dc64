"""Read Zarr arrays with retries, and report lost chunks instead of reading fill values."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import zarr
from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import ByteRequest, Store
from zarr.storage import FsspecStore, LocalStore

from kmufs_stream.errors import BrokenError
from kmufs_stream.storage.chunks import missing_chunk
from kmufs_stream.storage.integrity import Check, CheckedStore, check_filters, checks_of, through

LOG = logging.getLogger(__name__)

RETRIES = 5
FIRST_WAIT = 0.1  # seconds; doubled for each further retry
PERMANENT = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


def with_retries(array: zarr.Array[Any], *, retries: int, missing_is_fill: bool) -> zarr.Array[Any]:
    """Return an array that can be read from any folder or process, despite transient failures.

    Parameters
    ----------
    retries : how often to read a chunk again, after longer and longer waits. What does not exist,
        or is not allowed, fails at once.
    missing_is_fill : a chunk that does not exist holds the fill value; otherwise that is an error
        too, as when a worker does not see the folder.
    """
    check_filters(array)
    store = array.store
    if isinstance(store, LocalStore):
        store = LocalStore(Path(store.root).absolute(), read_only=store.read_only)
    return through(array, RetryingStore(store, checks_of([array]), retries, missing_is_fill))


class RetryingStore(CheckedStore):
    """A checked store that retries reads of another; see :func:`with_retries`."""

    def __init__(
        self, store: Store, checks: Mapping[str, Check], retries: int, missing_is_fill: bool
    ) -> None:
        super().__init__(store, checks)
        self._retries = retries
        self._missing_is_fill = missing_is_fill

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
                found = await self._store.get(key, prototype, byte_range)
                break
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
        if found is None and not self._missing_is_fill:
            raise missing_chunk(f"chunk {key} of {self} is not there")
        return found

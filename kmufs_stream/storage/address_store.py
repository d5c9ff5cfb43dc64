"""Zarr stores under addresses, whose connections are closed when the process ends."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import weakref
from typing import Any

from upath import UPath
from zarr.storage import FsspecStore

from kmufs_stream.storage.internals import sync

AZURE = ("abfs", "abfss", "az")  # abfs://container@account/path names no user
CLOSED_WITHIN = 5.0  # seconds, for connections at the end


def store_of(address: UPath) -> FsspecStore:
    """The Zarr store under an address."""
    store = AddressStore.from_url(str(address), storage_options=dict(address.storage_options))
    _keep_from_closing(store.fs)
    return store


class AddressStore(FsspecStore):
    """What lies under an address. Its connections are closed when the process ends.

    File systems that are used asynchronously, as zarr does, leave that to whoever made them.
    """

    async def _open(self) -> None:
        await super()._open()
        _connected.add(self.fs)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_is_open": False}  # another process has connections of its own

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        _keep_from_closing(self.fs)


def _keep_from_closing(fs: Any) -> None:
    """adlfs would close its connections at the end, in a loop that it lacks, and print that."""
    if fs.protocol[0] not in AZURE:
        return
    for reference in weakref.getweakrefs(fs):
        if isinstance(finalizer := reference.__callback__, weakref.finalize):
            finalizer.atexit = False


_connected: set[Any] = set()


@atexit.register  # after zarr's own, so that it runs before that ends zarr's loop
def _close_connections() -> None:
    async def close(fs: Any) -> None:
        session = await fs.set_session()
        await session.close()

    async def close_all() -> None:
        closing = (close(fs) for fs in _connected if hasattr(fs, "set_session"))
        await asyncio.gather(*closing, return_exceptions=True)

    if _connected:
        with contextlib.suppress(TimeoutError):
            sync(close_all(), timeout=CLOSED_WITHIN)

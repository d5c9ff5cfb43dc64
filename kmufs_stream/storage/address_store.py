"""Open Zarr stores under addresses, and close their connections when the process ends."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import weakref
from typing import Any

from upath import UPath
from zarr.storage import FsspecStore

from kmufs_stream.storage.internals import sync

AZURE = ("abfs", "abfss", "az")  # in abfs://container@account/path, no user is named
CLOSED_WITHIN = 5.0  # seconds, for connections at exit


def store_of(address: UPath) -> FsspecStore:
    return AddressStore.from_url(str(address), storage_options=dict(address.storage_options))


class AddressStore(FsspecStore):
    """A Zarr store under an address, whose connections are closed when the process ends.

    File systems in asynchronous use, as by zarr, leave that to their users.
    """

    async def _open(self) -> None:
        await super()._open()
        _connected.add(self.fs)
        _keep_from_closing(self.fs)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_is_open": False}  # another process opens its own connections


def _keep_from_closing(fs: Any) -> None:
    """Keep adlfs from closing its connections at exit, without an event loop, which prints."""
    if fs.protocol[0] not in AZURE:
        return
    for reference in weakref.getweakrefs(fs):
        if isinstance(finalizer := reference.__callback__, weakref.finalize):
            finalizer.atexit = False


_connected: set[Any] = set()


@atexit.register  # later than zarr's, so that it runs before zarr ends its event loop
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

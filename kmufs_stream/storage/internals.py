"""Private names of libraries that this package needs, each with the reason."""

from __future__ import annotations

import copy
from typing import Self

import xarray as xr
from zarr.abc.store import Store
from zarr.core.array_spec import ArraySpec  # needed to run a codec alone
from zarr.core.sync import sync  # runs in zarr's event loop, as its connections do
from zarr.storage import WrapperStore

__all__ = ["ArraySpec", "StoreInFront", "is_loaded", "sync"]


class StoreInFront(WrapperStore[Store]):
    """A store in front of another, all of whose reads go through ``get``."""

    _supports_sync_io = False  # zarr's shortcut would read from the store behind

    def _with_store(self, store: Store) -> Self:
        copied = copy.copy(self)  # zarr's own copies lack our attributes
        copied._store = store
        return copied


def is_loaded(variable: xr.Variable) -> bool:
    """Whether the values are in memory; accessing ``data`` would load them."""
    return bool(variable._in_memory)

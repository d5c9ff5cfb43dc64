"""What is taken from libraries under no public name: all of it here, each with why."""

from __future__ import annotations

from typing import Self

import xarray as xr
from zarr.abc.store import Store
from zarr.core.array_spec import ArraySpec  # what a codec has to be given to be run alone
from zarr.core.sync import sync  # awaits in zarr's own loop, where connections of its stores live
from zarr.storage import WrapperStore

__all__ = ["ArraySpec", "StoreInFront", "is_loaded", "sync"]


class StoreInFront(WrapperStore[Store]):
    """A store in front of another, whose ``get`` nothing passes by."""

    _supports_sync_io = False  # Zarr's shortcut would read from the store behind

    def over(self, store: Store) -> Self:
        """The same in front of another store."""
        raise NotImplementedError

    def _with_store(self, store: Store) -> Self:
        return self.over(store)  # else zarr makes a copy by the store alone


def is_loaded(variable: xr.Variable) -> bool:
    """Whether its values are in memory: to ask for ``data`` would load them."""
    return bool(variable._in_memory)

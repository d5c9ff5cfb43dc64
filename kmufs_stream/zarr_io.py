"""xarray and zarr without warnings that a user can do nothing about."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import xarray as xr
from zarr.abc.store import Store


@contextlib.contextmanager
def opened_quietly() -> Iterator[None]:
    """Unconsolidated metadata and dtypes without a stable specification read well all the same."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Failed to open Zarr store with consolidated")
        warnings.filterwarnings("ignore", message=".*does not have a Zarr V3 specification")
        yield


@contextlib.contextmanager
def written_quietly() -> Iterator[None]:
    """Consolidated metadata are written on purpose: xarray opens such stores without warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Consolidated metadata is currently not part")
        warnings.filterwarnings("ignore", message=".*does not have a Zarr V3 specification")
        yield


def open_decoded(store: Store, **options: Any) -> xr.Dataset:
    """A stored dataset as xarray opens it, with the times that it cannot decode as stored."""
    with opened_quietly():
        try:
            opened: xr.Dataset = xr.open_zarr(store, **options)
        except ValueError:
            opened = xr.open_zarr(store, decode_times=False, **options)
    return opened


def decoded(frame: xr.Dataset) -> xr.Dataset:
    """An encoded dataset decoded, with the times of which xarray cannot as they are.

    Such are years beyond 2262 where cftime is not installed, and units that nobody knows.
    """
    try:
        found: xr.Dataset = xr.decode_cf(frame)
    except ValueError:
        found = xr.decode_cf(frame, decode_times=False)
    return found

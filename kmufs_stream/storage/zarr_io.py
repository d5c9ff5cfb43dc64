"""xarray and zarr without warnings that a user can do nothing about."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import xarray as xr
from zarr.abc.store import Store

from kmufs_stream.storage.provenance import APPLICATION, SELECTION


@contextlib.contextmanager
def opened_quietly() -> Iterator[None]:
    """Unconsolidated metadata and dtypes without a stable specification read well all the same."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Failed to open Zarr store with consolidated")
        warnings.filterwarnings("ignore", message=".*does not have a Zarr V3 specification")
        yield


@contextlib.contextmanager
def written_quietly() -> Iterator[None]:
    """Consolidated metadata are written on purpose: xarray opens such stores without warning.

    What becomes of coordinates with a space in their names is in docs/output.md.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Consolidated metadata is currently not part")
        warnings.filterwarnings("ignore", message="coordinate .* has a space in its name")
        warnings.filterwarnings("ignore", message=".*does not have a Zarr V3 specification")
        yield


def open_decoded(store: Store, **options: Any) -> xr.Dataset:
    """A stored dataset as xarray opens it, with the times that it cannot decode as stored.

    Of a result all but the table are coordinates.
    """
    with opened_quietly():
        try:
            opened: xr.Dataset = xr.open_zarr(store, **options)
        except ValueError:
            opened = xr.open_zarr(store, decode_times=False, **options)
    return with_coordinates(opened)


def with_coordinates(root: xr.Dataset) -> xr.Dataset:
    """The root of a result with all but its table as coordinates; anything else as it is.

    A store lists coordinates by their names, with spaces between: those with a space in their own
    come back as variables, which may look like the table.
    """
    if root.attrs.get("format") not in (SELECTION, APPLICATION) or "feature_index" not in root:
        return root
    along = {*root["feature_index"].dims}
    tables = [n for n, v in root.data_vars.items() if v.ndim == 2 and along < {*v.dims}]
    table = root.attrs.get("variable")  # its name in the source: one of ours is not kept
    if table not in tables:
        table = min(tables, key=lambda name: " " in str(name), default=None)
    return root.set_coords([name for name in root.data_vars if name != table])


def decoded(frame: xr.Dataset) -> xr.Dataset:
    """An encoded dataset decoded, with the times of which xarray cannot as they are.

    Such are years beyond 2262 where cftime is not installed, and units that nobody knows.
    """
    try:
        found: xr.Dataset = xr.decode_cf(frame)
    except ValueError:
        found = xr.decode_cf(frame, decode_times=False)
    return found

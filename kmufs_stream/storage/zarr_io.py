"""Open and decode Zarr stores with xarray, without warnings that a user cannot act on."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import xarray as xr
from zarr.abc.store import Store

from kmufs_stream.storage.provenance import APPLICATION, SELECTION

IGNORED = (
    "Failed to open Zarr store with consolidated",  # reads well all the same
    ".*does not have a Zarr V3 specification",  # so do these dtypes
    "Consolidated metadata is currently not part",  # written for xarray, which opens them faster
    "coordinate .* has a space in its name",  # see docs/output.md
)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        for message in IGNORED:
            warnings.filterwarnings("ignore", message=message)
        yield


def open_decoded(store: Store, **options: Any) -> xr.Dataset:
    """Open a stored dataset with xarray; see :func:`decoded`.

    In a result, all variables but the table become coordinates.
    """
    with quietly():
        return with_coordinates(decoded(store, xr.open_zarr, **options))


def with_coordinates(root: xr.Dataset) -> xr.Dataset:
    """Make all variables of a result but its table coordinates; leave other datasets as they are.

    A store lists its coordinates by name, separated by spaces: those with a space in their names
    come back as variables, which may look like the table.
    """
    if root.attrs.get("format") not in (SELECTION, APPLICATION) or "feature_index" not in root:
        return root
    along = {*root["feature_index"].dims}
    tables = [n for n, v in root.data_vars.items() if v.ndim == 2 and along < {*v.dims}]
    table = root.attrs.get("variable")  # its name in the source, unless that is reserved
    if table not in tables:
        table = min(tables, key=lambda name: " " in str(name), default=None)
    return root.set_coords([name for name in root.data_vars if name != table])


def decoded(
    encoded: xr.Dataset | Store, decode: Callable[..., xr.Dataset] = xr.decode_cf, **options: Any
) -> xr.Dataset:
    """Decode a dataset; times that xarray cannot decode stay as stored.

    These are years beyond 2262 without cftime, and unknown units.
    """
    try:
        return decode(encoded, **options)
    except ValueError:
        return decode(encoded, decode_times=False, **options)

"""NetCDF, read and written by xarray: all variables of a dataset, with their coordinates."""

from __future__ import annotations

from importlib.util import find_spec

import dask
import numpy as np
import xarray as xr
from zarr.abc.store import Store

from kmufs_stream.errors import RequestError, missing_library
from kmufs_stream.events import Progress, Started
from kmufs_stream.formats.blocks import BLOCKS, CHUNK_BYTES, check_fits, unreadable
from kmufs_stream.sources.convertible import INSIDE


def write_netcdf(
    folder: Store, path: str, inside: str, budget: int, progress: Progress
) -> dict[str, int]:
    """Copy a dataset, or its group ``inside``, as it is stored, some rows of a variable at a time.

    Returns the sizes of its dimensions.
    """
    try:
        stored = xr.open_dataset(
            path, group=inside or None, decode_times=False, mask_and_scale=False, chunks=None
        )
    except Exception as error:  # h5netcdf and h5py raise anything where a file is damaged
        if isinstance(error, ValueError) and find_spec("h5netcdf") is None:
            raise missing_library(f"Reading {path}", "h5netcdf") from error
        raise unreadable(path, error) from error
    with stored:
        if not stored.data_vars:
            raise _no_variables(path, inside)
        blocks = {name: _block_sizes(v) for name, v in stored.variables.items()}
        largest = max(
            int(np.prod(list(blocks[name].values()))) * variable.dtype.itemsize
            for name, variable in stored.variables.items()
        )
        check_fits(f"Converting {path}", BLOCKS * largest, budget)
        progress(Started("converting"))
        lazy = stored.drop_encoding()
        lazy = lazy.assign({name: v.variable.chunk(blocks[name]) for name, v in lazy.items()})
        _drop_impossible_fills(lazy)
        try:
            with dask.config.set(scheduler="synchronous"):
                lazy.to_zarr(folder, mode="w", zarr_format=3, consolidated=False)
        except OSError as error:
            if error.errno is None:  # HDF5's; a disk that cannot be written to has a number
                raise unreadable(path, error) from error
            raise
        return {str(dim): size for dim, size in stored.sizes.items()}


def _drop_impossible_fills(dataset: xr.Dataset) -> None:
    """Drop fill values of NaN from whole numbers, as xarray does: they stand for none of them."""
    for variable in dataset.variables.values():
        fill = variable.attrs.get("_FillValue", 0)
        if variable.dtype.kind in "iu" and np.isnan(fill).any():
            del variable.attrs["_FillValue"]


def _block_sizes(variable: xr.Variable) -> dict[str, int]:
    """Choose the sizes of a block of some rows, which becomes a chunk."""
    sizes = {str(dim): size for dim, size in variable.sizes.items()}
    if sizes:
        row = int(np.prod(variable.shape[1:])) * variable.dtype.itemsize
        first = next(iter(sizes))
        sizes[first] = min(max(CHUNK_BYTES // max(row, 1), 1), max(sizes[first], 1))
    return sizes


def _no_variables(path: str, inside: str) -> RequestError:
    try:
        groups = [group for group, held in xr.open_groups(path).items() if held.data_vars]
    except (NotImplementedError, ValueError):  # files of a kind without groups
        groups = []
    return RequestError(
        "no_table",
        f"{path} holds no variables{f' in {inside!r}' if inside else ''}.",
        f"Choose one of its groups, such as {path}{INSIDE}{groups[0].strip('/')}."
        if groups
        else "Give a file with variables.",
    )

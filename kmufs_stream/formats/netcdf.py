"""NetCDF, read and written by xarray: all variables of the dataset, with their coordinates."""

from __future__ import annotations

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
    """Copy a dataset, or its group ``inside``, as it is stored, blocks along first dimensions.

    Returns the sizes of its dimensions.
    """
    try:
        stored = xr.open_dataset(
            path, group=inside or None, decode_times=False, mask_and_scale=False, chunks=None
        )
    except ValueError as error:
        if "engine" in str(error) or "dependencies" in str(error):
            raise missing_library(f"Reading {path}", "h5netcdf") from error
        raise unreadable(path, error) from error
    except OSError as error:
        raise unreadable(path, error) from error
    with stored:
        if not stored.data_vars:
            raise _nothing(path, inside)
        largest = max((_block_bytes(v) for v in stored.variables.values()), default=0)
        check_fits(path, BLOCKS * largest, budget)
        progress(Started("converting"))
        blocks = {name: _blocks(variable) for name, variable in stored.variables.items()}
        lazy = stored.drop_encoding().assign({name: blocks[name] for name in stored.data_vars})
        with dask.config.set(scheduler="synchronous"):
            lazy.to_zarr(folder, mode="w", zarr_format=3, consolidated=False)
        return {str(dim): size for dim, size in stored.sizes.items()}


def _nothing(path: str, inside: str) -> RequestError:
    """What is told of a group without variables, with those that have some."""
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


def _blocks(variable: xr.Variable) -> xr.Variable:
    """The variable in blocks of some rows, which become the chunks."""
    if variable.ndim == 0:
        return variable
    chunks = {variable.dims[0]: _block_rows(variable)} | dict.fromkeys(variable.dims[1:], -1)
    return variable.drop_encoding().chunk(chunks)


def _block_rows(variable: xr.Variable) -> int:
    return min(max(CHUNK_BYTES // max(_row_bytes(variable), 1), 1), max(variable.shape[0], 1))


def _row_bytes(variable: xr.Variable) -> int:
    return int(np.prod(variable.shape[1:])) * int(variable.dtype.itemsize)


def _block_bytes(variable: xr.Variable) -> int:
    return _row_bytes(variable) * (_block_rows(variable) if variable.ndim else 1)

"""Sources: what the user has, as one labelled samples x features matrix."""

from __future__ import annotations

import os
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr
import zarr

from kmufs_stream.errors import RequestError
from kmufs_stream.sources.matrix import Matrix, Rows
from kmufs_stream.sources.memory import open_bare, open_dataarray
from kmufs_stream.sources.store import open_array, open_store
from kmufs_stream.sources.sturdy import RETRIES

__all__ = ["Matrix", "Rows", "open_matrix"]


def open_matrix(
    data: Any,
    *,
    variable: str | None = None,
    group: str | None = None,
    sample_dim: str | None = None,
    feature_dim: str | None = None,
    fill_missing_chunks: bool = False,
    retries: int = RETRIES,
) -> Matrix:
    """Open a samples x features table without reading its values.

    Parameters
    ----------
    data : path of a Zarr store, or a ``zarr.Array``, ``xarray.DataArray``, Dask or NumPy array of
        shape (n, p), of bool, integer or floating-point dtype. A Matrix is returned as it is.
    variable, group : which variable of the store, and in which of its groups.
    sample_dim, feature_dim : name one dimension to say which is which; the first holds the
        samples otherwise.
    fill_missing_chunks : take chunks that the store does not hold for its fill value, instead of
        raising BrokenError when the data are used.
    retries : how often a chunk whose reading fails for the moment is asked for again, after
        longer and longer waits.

    Raises
    ------
    RequestError : not found, not Zarr, damaged metadata, not a 2-d table of real numbers, unknown
        or ambiguous variable, group or dimension.
    """
    if isinstance(data, Matrix):
        return data
    if retries < 0:
        raise RequestError("bad_option", f"--retries is {retries}.", "It must be 0 or more.")
    if isinstance(data, str | os.PathLike):
        return open_store(
            os.fspath(data),
            variable=variable,
            group=group,
            sample_dim=sample_dim,
            feature_dim=feature_dim,
            fill_missing_chunks=fill_missing_chunks,
            retries=retries,
        )
    if variable is not None or group is not None:
        raise RequestError(
            "not_a_store",
            f"variable and group choose within a store; {type(data).__name__} is not one.",
            "Leave them out, or give a path.",
        )
    if isinstance(data, zarr.Array):
        return open_array(
            data,
            sample_dim=sample_dim,
            feature_dim=feature_dim,
            fill_missing_chunks=fill_missing_chunks,
            retries=retries,
        )
    if isinstance(data, xr.DataArray):
        return open_dataarray(data, sample_dim=sample_dim, feature_dim=feature_dim)
    if isinstance(data, da.Array | np.ndarray):
        return open_bare(data, sample_dim=sample_dim, feature_dim=feature_dim)
    raise RequestError(
        "unknown_source",
        f"A {type(data).__name__} is not a table that can be opened.",
        "Give a path, a zarr.Array, an xarray.DataArray, or a Dask or NumPy array.",
    )

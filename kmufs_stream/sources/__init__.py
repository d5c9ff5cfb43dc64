"""Sources: what the user has, as one labelled samples x features matrix."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr
import zarr

from kmufs_stream.errors import RequestError
from kmufs_stream.sources.matrix import Matrix, Rows
from kmufs_stream.sources.memory import open_bare, open_dataarray, open_dataset
from kmufs_stream.sources.restrict import ask_features, keep_samples, samples_where
from kmufs_stream.sources.stacking import Names
from kmufs_stream.sources.store import open_array, open_store

__all__ = ["Matrix", "Rows", "open_matrix"]


def open_matrix(
    data: Any,
    *,
    variable: str | None = None,
    group: str | None = None,
    sample_dims: str | Sequence[str] | None = None,
    feature_dims: str | Sequence[str] | None = None,
    features_from_variables: bool = False,
    fill_missing_chunks: bool = False,
    features: str | Sequence[str] | None = None,
    exclude_features: str | Sequence[str] | None = None,
    where: str | None = None,
) -> Matrix:
    """Open a samples x features table without reading its values.

    Parameters
    ----------
    data : path of a Zarr store (a folder, or zipped), or a ``zarr.Array``, ``xarray.Dataset`` or
        ``DataArray``, Dask or NumPy array, of bool, integer or floating-point dtype. A Matrix is
        taken as it is.
    variable, group : which variable of the store, and in which of its groups.
    sample_dims, feature_dims : name the dimensions of the one or the other, several of which are
        stacked in the order given; the rest are the others. Needed for three and more; of two,
        the first holds the samples.
    features_from_variables : the variables of a dataset, along the same dimensions, are the
        features.
    fill_missing_chunks : take chunks that the store does not hold for its fill value, instead of
        raising BrokenError when the data are used.
    features, exclude_features : labels, shell patterns on labels, or ``@FILE`` of labels, one a
        line, of the features that take part, or do not.
    where : a condition on coordinates of the samples, as of :meth:`pandas.DataFrame.query`; or
        the name of a boolean one.

    Raises
    ------
    RequestError : not found, not Zarr, damaged metadata, no array of real numbers, unknown or
        ambiguous variable, group or dimension, a pattern or condition that nothing meets.
    """
    matrix = _open(
        data,
        variable=variable,
        group=group,
        sample_dims=sample_dims,
        feature_dims=feature_dims,
        features_from_variables=features_from_variables,
        fill_missing_chunks=fill_missing_chunks,
    )
    if where is not None:
        matrix = keep_samples(matrix, samples_where(matrix, where))
    return ask_features(matrix, features, exclude_features)


def _open(
    data: Any,
    *,
    variable: str | None,
    group: str | None,
    features_from_variables: bool,
    fill_missing_chunks: bool,
    **dims: Names,
) -> Matrix:
    if isinstance(data, Matrix):
        return data
    if isinstance(data, str | os.PathLike):
        return open_store(
            os.fspath(data),
            variable=variable,
            group=group,
            features_from_variables=features_from_variables,
            fill_missing_chunks=fill_missing_chunks,
            **dims,
        )
    if isinstance(data, xr.Dataset) and group is None:
        return open_dataset(
            data, variable=variable, features_from_variables=features_from_variables, **dims
        )
    if variable is not None or group is not None or features_from_variables:
        raise RequestError(
            "not_a_store",
            "variable, group and features_from_variables choose within a store; "
            f"{type(data).__name__} is not one.",
            "Leave them out, or give a path.",
        )
    if isinstance(data, zarr.Array):
        return open_array(data, fill_missing_chunks=fill_missing_chunks, **dims)
    if isinstance(data, xr.DataArray):
        return open_dataarray(data, **dims)
    if isinstance(data, da.Array | np.ndarray):
        return open_bare(data, **dims)
    raise RequestError(
        "unknown_source",
        f"A {type(data).__name__} is not a table that can be opened.",
        "Give a path, a zarr.Array, an xarray Dataset or DataArray, or a Dask or NumPy array.",
    )

"""Arrays already open in Python: NumPy, Dask, and xarray, lazily transformed ones included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from kmufs_stream.sources.matrix import (
    Matrix,
    check_table,
    describe,
    feature_labels,
    orient,
    plain,
)


@dataclass(frozen=True)
class ArrayRows:
    """Rows of an xarray variable of dims (sample, feature), whatever array stands behind it."""

    variable: xr.Variable

    def read(self, start: int, stop: int) -> NDArray[Any]:
        return _values(self.variable[start:stop])

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        return _values(self.variable[start:stop, columns])


def _values(variable: xr.Variable) -> NDArray[Any]:
    # The caller is itself one of several Dask tasks: the graph behind these rows runs in it.
    return variable.compute(scheduler="synchronous").values


def open_dataarray(
    array: xr.DataArray, *, sample_dim: str | None = None, feature_dim: str | None = None
) -> Matrix:
    """A DataArray as a matrix; its coordinates and attributes are kept."""
    name = str(array.name or "data")
    source = "an xarray.DataArray"
    check_table(name, source, array.shape, array.dtype)
    sample_dim, feature_dim, transposed = orient(
        (str(array.dims[0]), str(array.dims[1])), sample_dim, feature_dim, name
    )
    levels = [d for d in array.dims if isinstance(array.indexes.get(d), pd.MultiIndex)]
    labels = _joined(array.indexes[feature_dim]) if feature_dim in levels else None
    array = array.reset_index(levels)  # stores keep the levels, not their product
    variable = array.variable.transpose(sample_dim, feature_dim)
    chunk_rows, chunk_columns = _chunks(variable)
    frame = array.coords.to_dataset().reset_coords(drop=False).set_coords(list(array.coords))
    return Matrix(
        rows=ArrayRows(variable),
        shape=(variable.shape[0], variable.shape[1]),
        dtype=variable.dtype,
        stored_dtype=variable.dtype,
        chunk_rows=chunk_rows,
        chunk_columns=chunk_columns,
        shard_rows=chunk_rows,
        name=name,
        sample_dim=sample_dim,
        feature_dim=feature_dim,
        transposed=transposed,
        frame=frame.drop_encoding(),
        attrs=dict(array.attrs),
        labels=feature_labels(frame, feature_dim) if labels is None else labels,
        source=source,
        zarr_format=3,
        in_memory=isinstance(variable._data, np.ndarray),  # asking for .data would load it
        inventory=lambda: [describe([variable.shape, variable.dtype.str])],
    )


def open_bare(
    array: NDArray[Any] | da.Array,
    *,
    sample_dim: str | None = None,
    feature_dim: str | None = None,
) -> Matrix:
    """A NumPy or Dask array as a matrix without labels."""
    kind = "a Dask array" if isinstance(array, da.Array) else "a NumPy array"
    check_table("data", kind, array.shape, array.dtype)
    labelled = xr.DataArray(array, dims=("sample", "feature"), name="data")
    return open_dataarray(labelled, sample_dim=sample_dim, feature_dim=feature_dim)


def _joined(index: pd.Index[Any]) -> NDArray[Any]:
    """Labels of stacked features: the labels of the levels, one after the other."""
    return np.array([", ".join(str(plain(x)) for x in levels) for levels in index], dtype=object)


def _chunks(variable: xr.Variable) -> tuple[int, int]:
    """Largest chunk along each dimension; arrays in memory can be cut anywhere."""
    if variable.chunks is None:
        return 1, variable.shape[1]
    return max(variable.chunks[0], default=1), max(variable.chunks[1], default=1)

"""Arrays already open in Python: NumPy, Dask, and xarray, lazily transformed ones included."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from kmufs_stream.errors import RequestError
from kmufs_stream.sources.matrix import (
    Matrix,
    check_table,
    describe,
    feature_labels,
    orient,
    plain,
)

HASHED_BYTES = 2**22  # at a time


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
    name = "data" if array.name is None else str(array.name)
    source = "an xarray.DataArray"
    if not name or "/" in name or name.startswith((".", "zarr.json", "__")):
        raise RequestError(
            "bad_name",
            f"The DataArray's name {name!r} cannot be a variable of a store.",
            "Give it another: array.rename('data').",
        )
    check_table(name, source, array.shape, array.dtype)
    sample_dim, feature_dim, transposed = orient(
        (str(array.dims[0]), str(array.dims[1])), sample_dim, feature_dim, name
    )
    levels = [d for d in array.dims if isinstance(array.indexes.get(d), pd.MultiIndex)]
    labels = _joined(array.indexes[feature_dim]) if feature_dim in levels else None
    array = array.reset_index(levels)  # stores keep the levels, not their product
    array = array.rename({d: str(d) for d in array.dims if not isinstance(d, str)})
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
        in_memory=variable._in_memory,  # asking for .data would load it
        encoded=False,
        inventory=partial(_inventory, variable),
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


def _inventory(variable: xr.Variable) -> list[str]:
    """What tells these data from others: all values in memory, or the name of a Dask graph."""
    metadata = describe([variable.shape, variable.dtype.str])
    if variable._in_memory:
        values = np.asarray(variable.values)
        rows = max(HASHED_BYTES // max(variable[:1].nbytes, 1), 1)
        checksum = 0
        for a in range(0, len(values), rows):
            checksum = zlib.crc32(np.ascontiguousarray(values[a : a + rows]).data, checksum)
        return [metadata, str(checksum)]
    if variable.chunks is not None:
        return [metadata, str(variable.data.name)]
    return [metadata, describe(variable.encoding)]


def _chunks(variable: xr.Variable) -> tuple[int, int]:
    """Largest chunk along each dimension; arrays in memory can be cut anywhere."""
    if variable.chunks is None:
        sample, feature = variable.dims
        stored = {} if variable._in_memory else variable.encoding.get("preferred_chunks", {})
        return int(stored.get(sample, 1)), int(stored.get(feature, max(variable.shape[1], 1)))
    return max(variable.chunks[0], default=1), max(variable.chunks[1], default=1)

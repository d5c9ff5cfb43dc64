"""Arrays already open in Python: NumPy, Dask, and xarray, lazily transformed ones included."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from kmufs_stream.errors import RequestError, Text, did_you_mean, listed
from kmufs_stream.sources.dimensions import (
    Names,
    Stacking,
    arrange,
    named,
    of_dimensions,
    stack_frame,
    variables_beside,
)
from kmufs_stream.sources.layout import Layout
from kmufs_stream.sources.matrix import (
    BARE_DIMS,
    Matrix,
    Metadata,
    Provenance,
    check_table,
    is_numeric,
)
from kmufs_stream.sources.names import feature_labels, joined
from kmufs_stream.sources.variables import VARIABLE, common_dimensions
from kmufs_stream.storage.chunks import describe
from kmufs_stream.storage.internals import is_loaded

NAMED = 5  # columns
HASHED_BYTES = 2**22  # at a time
DATASET = "an xarray.Dataset"


@dataclass(frozen=True)
class ArrayRows:
    """Rows of an xarray variable, whatever array stands behind it."""

    variable: xr.Variable
    stacking: Stacking

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """See Rows."""
        return self.stacking.gather(self._fetch, start, stop)

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        """See Rows."""
        return self.stacking.gather(self._fetch, start, stop, columns)

    def _fetch(self, index: tuple[Any, ...]) -> NDArray[Any]:
        # The caller is itself one of several Dask tasks: the graph behind these rows runs in it.
        return self.variable[index].compute(scheduler="synchronous").values


def open_dataarray(
    array: xr.DataArray,
    dataset: xr.Dataset | None = None,
    source: str = "an xarray.DataArray",
    /,
    *,
    sample_dims: Names = None,
    feature_dims: Names = None,
) -> Matrix:
    """A DataArray as a matrix; its coordinates and attributes are kept.

    ``dataset`` is the one that it is a variable of, ``source`` what people gave.
    """
    name = "data" if array.name is None else str(array.name)
    if not name or "/" in name or name.startswith((".", "zarr.json", "__")):
        raise RequestError(
            "bad_name",
            f"The DataArray's name {name!r} cannot be a variable of a store.",
            "Give it another: array.rename('data').",
        )
    check_table(name, source, array.shape, array.dtype)
    multi = {str(d): i for d, i in array.indexes.items() if isinstance(i, pd.MultiIndex)}
    array = array.rename({d: str(d) for d in array.dims if not isinstance(d, str)})
    # Stores keep the levels of an index, not their product.
    array = array.reset_index([d for d in array.dims if d in multi])
    dims = tuple(map(str, array.dims))
    stacking = arrange(dims, array.shape, sample_dims, feature_dims, f"{name!r} in {source}")
    variable = array.variable
    chunks = _chunks(variable, stacking)
    frame = array.coords.to_dataset().reset_coords(drop=False).set_coords(list(array.coords))
    frame = stack_frame(frame, stacking)
    feature_dim = stacking.name(samples=False)
    if feature_dim in multi:
        index = multi[feature_dim]
        labels = joined(index.names, index, len(index))
        frame = frame.assign_coords(
            xr.Coordinates({feature_dim: xr.Variable(feature_dim, labels)}, indexes={})
        )
    unit = stacking.unit_rows(chunks)
    return Matrix(
        rows=ArrayRows(variable, stacking),
        shape=stacking.table,
        dtype=variable.dtype,
        labels=feature_labels(frame, feature_dim),
        layout=Layout(
            dtype=variable.dtype,
            chunk_rows=unit,
            chunk_columns=stacking.chunk_columns(chunks),
            shard_rows=unit,
            chunk_cells=prod(chunks),
            in_memory=is_loaded(variable),
            copied=stacking.copies,
        ),
        metadata=Metadata(
            name=name,
            sample_dim=stacking.name(samples=True),
            feature_dim=feature_dim,
            coords=frame.drop_encoding(),
            transposed=stacking.transposed,
            attrs=dict(array.attrs),
            beside=xr.Dataset() if dataset is None else variables_beside(dataset, stacking),
        ),
        provenance=Provenance(source, partial(_inventory, variable)),
        guessed=not sample_dims and not feature_dims,
    )


def open_dataset(
    dataset: xr.Dataset,
    *,
    variable: str | None = None,
    features_from_variables: bool = False,
    sample_dims: Names = None,
    feature_dims: Names = None,
) -> Matrix:
    """One variable of a Dataset as a matrix, or all of them as features."""
    numeric = {str(n): v for n, v in dataset.data_vars.items() if v.ndim and is_numeric(v.dtype)}
    if features_from_variables:
        shapes = {n: (tuple(map(str, v.dims)), v.shape) for n, v in numeric.items()}
        if sample_dims is not None:
            shapes = {n: s for n, s in shapes.items() if set(s[0]) == set(named(sample_dims))}
        common = common_dimensions("the xarray.Dataset", shapes)
        chosen = dataset[[n for n, s in shapes.items() if s == common]]
        whole = chosen.to_dataarray(VARIABLE, name="data")
        matrix = open_dataarray(
            whole, dataset, DATASET, sample_dims=sample_dims, feature_dims=VARIABLE
        )
        return replace(matrix, dtypes=tuple(v.dtype for v in chosen.data_vars.values()))
    dims = {n: [*map(str, v.dims)] for n, v in numeric.items() if v.ndim >= 2}
    tables = of_dimensions(dims, sample_dims, feature_dims)
    if variable is None and len(tables) != 1:
        raise RequestError(
            "ambiguous_variable" if tables else "no_table",
            f"The Dataset holds {len(tables)} numeric variables of two or more dimensions"
            + (f": {listed(tables)}." if tables else "."),
            Text(
                "Name one with {variable}, or say {features_from_variables}.",
                features_from_variables=True,
            ),
        )
    name = tables[0] if variable is None else variable
    there = [str(other) for other in dataset.data_vars]
    if name not in dataset.data_vars:
        raise RequestError(
            "unknown_variable",
            f"The Dataset has no variable {name!r}.",
            f"{did_you_mean(name, there)}Its variables are {listed(there)}.",
        )
    array = dataset[name]
    return open_dataarray(
        array, dataset, DATASET, sample_dims=sample_dims, feature_dims=feature_dims
    )


def open_frame(
    frame: pd.DataFrame, *, sample_dims: Names = None, feature_dims: Names = None
) -> Matrix:
    """A pandas DataFrame as a matrix, its columns the features."""
    check_columns(frame)
    matrix = open_dataarray(
        xr.DataArray(frame, dims=BARE_DIMS),
        None,
        "a pandas DataFrame",
        sample_dims=sample_dims,
        feature_dims=feature_dims,
    )
    dtypes = tuple(dtype for dtype in frame.dtypes if isinstance(dtype, np.dtype))
    if matrix.metadata.transposed or len(dtypes) < frame.shape[1]:
        return matrix
    return replace(matrix, dtypes=dtypes)


def check_columns(frame: pd.DataFrame) -> None:
    """Refuse a DataFrame some columns of which are no numbers, and name these."""
    others = [str(name) for name, column in frame.items() if not _is_of_numbers(column)]
    if others:
        more = f" and {len(others) - NAMED:,} more" if len(others) > NAMED else ""
        raise RequestError(
            "bad_dtype",
            f"The DataFrame holds columns that are no numbers: "
            f"{', '.join(map(repr, others[:NAMED]))}{more}.",
            "Leave out what describes the samples, as df.select_dtypes('number') does.",
        )


def _is_of_numbers(column: pd.Series[Any]) -> bool:
    if pd.api.types.is_numeric_dtype(column.dtype):
        return True
    known = column.dropna()
    return column.dtype == object and bool(pd.to_numeric(known, errors="coerce").notna().all())


def open_bare(
    array: NDArray[Any] | da.Array, *, sample_dims: Names = None, feature_dims: Names = None
) -> Matrix:
    """A NumPy or Dask array as a matrix without labels."""
    kind = "a Dask array" if isinstance(array, da.Array) else "a NumPy array"
    check_table("data", kind, array.shape, array.dtype)
    dims = BARE_DIMS if array.ndim == 2 else None
    labelled = xr.DataArray(array, dims=dims, name="data")
    return open_dataarray(labelled, None, kind, sample_dims=sample_dims, feature_dims=feature_dims)


def _inventory(variable: xr.Variable) -> list[str]:
    """What tells these data from others: all values in memory, or the name of a Dask graph."""
    metadata = describe([variable.shape, variable.dtype.str])
    if is_loaded(variable):
        values = np.asarray(variable.values)
        rows = max(HASHED_BYTES // max(variable[:1].nbytes, 1), 1)
        checksum = 0
        for a in range(0, len(values), rows):
            checksum = zlib.crc32(np.ascontiguousarray(values[a : a + rows]).data, checksum)
        return [metadata, str(checksum)]
    if variable.chunks is not None:
        return [metadata, str(variable.data.name)]
    return [metadata, describe(variable.encoding)]


def _chunks(variable: xr.Variable, stacking: Stacking) -> tuple[int, ...]:
    """Largest chunk along each dimension; arrays in memory can be cut between any two rows."""
    if variable.chunks is not None:
        return tuple(max(sizes, default=1) for sizes in variable.chunks)
    stored = {} if is_loaded(variable) else variable.encoding.get("preferred_chunks", {})
    return tuple(
        int(stored.get(d, 1 if axis in stacking.samples else max(extent, 1)))
        for axis, (d, extent) in enumerate(variable.sizes.items())
    )

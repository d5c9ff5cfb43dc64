"""Open arrays and tables of Python: NumPy, Dask, pandas and xarray."""

from __future__ import annotations

import sys
import zlib
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from kmufs_stream.errors import RequestError, Text, did_you_mean, first_few, listed

if TYPE_CHECKING:
    import dask.array as da

from kmufs_stream.sources.dimensions import (
    Stacking,
    arrange,
    of_dimensions,
    stack_frame,
    variables_beside,
)
from kmufs_stream.sources.matrix import (
    BARE_DIMS,
    Matrix,
    Metadata,
    Provenance,
    check_table,
    is_numeric,
)
from kmufs_stream.sources.names import feature_labels, joined
from kmufs_stream.sources.opening import Opening
from kmufs_stream.sources.variables import VARIABLE, common_dimensions
from kmufs_stream.storage.chunks import describe
from kmufs_stream.storage.internals import is_loaded

HASHED_BYTES = 2**22  # at a time
DATASET = "an xarray.Dataset"


@dataclass(frozen=True)
class ArrayRows:
    """Rows of an xarray variable over any kind of array."""

    variable: xr.Variable
    stacking: Stacking

    def read(self, start: int, stop: int) -> NDArray[Any]:
        return self.stacking.gather(self._fetch, start, stop)

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        return self.stacking.gather(self._fetch, start, stop, columns)

    def _fetch(self, index: tuple[Any, ...]) -> NDArray[Any]:
        # The caller is a Dask task itself: compute the graph behind these rows within it.
        return self.variable[index].compute(scheduler="synchronous").values


def open_dataarray(
    array: xr.DataArray,
    opening: Opening = Opening(),  # noqa: B008
    dataset: xr.Dataset | None = None,
    source: str = "an xarray.DataArray",
) -> Matrix:
    """Open a DataArray, with its coordinates and attributes.

    Parameters
    ----------
    dataset : the dataset of which it is a variable, if any.
    source : what the user gave, for messages.
    """
    name = "data" if array.name is None else str(array.name)
    if not name or "/" in name or name.startswith((".", "zarr.json", "__")):
        raise RequestError(
            "bad_name",
            f"The DataArray's name {name!r} cannot be a variable of a store.",
            "Give it another: array.rename('data').",
        )
    what = f"{name!r} in {source}"
    check_table(what, array.shape, array.dtype)
    multi = {str(d): i for d, i in array.indexes.items() if isinstance(i, pd.MultiIndex)}
    array = array.rename({d: str(d) for d in array.dims if not isinstance(d, str)})
    # Stores keep the levels of an index, not their product.
    array = array.reset_index([d for d in array.dims if d in multi])
    stacking = arrange(
        tuple(map(str, array.dims)),
        array.shape,
        opening.sample_dims,
        opening.feature_dims,
        what,
    )
    variable = array.variable
    frame = array.coords.to_dataset().reset_coords(drop=False).set_coords(list(array.coords))
    frame = stack_frame(frame, stacking)
    feature_dim = stacking.name(samples=False)
    if feature_dim in multi:
        index = multi[feature_dim]
        labels = joined(index.names, index, len(index))
        frame = frame.assign_coords(
            xr.Coordinates({feature_dim: xr.Variable(feature_dim, labels)}, indexes={})
        )
    return Matrix(
        rows=ArrayRows(variable, stacking),
        shape=stacking.table,
        dtype=variable.dtype,
        labels=feature_labels(frame, feature_dim),
        layout=stacking.layout(
            variable.dtype, _chunks(variable, stacking), in_memory=is_loaded(variable)
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
        guessed=not opening.has_dims,
    )


def open_dataset(dataset: xr.Dataset, opening: Opening) -> Matrix:
    """Open a variable of a Dataset, or all of them as features."""
    numeric = {str(n): v for n, v in dataset.data_vars.items() if v.ndim and is_numeric(v.dtype)}
    if opening.features_from_variables:
        shapes = {n: (tuple(map(str, v.dims)), v.shape) for n, v in numeric.items()}
        names, *_ = common_dimensions("the xarray.Dataset", shapes, opening)
        chosen = dataset[names]
        whole = chosen.to_dataarray(VARIABLE, name="data")
        opening = replace(opening, feature_dims=(VARIABLE,))
        matrix = open_dataarray(whole, opening, dataset, DATASET)
        return replace(matrix, dtypes=tuple(v.dtype for v in chosen.data_vars.values()))
    dims = {n: [*map(str, v.dims)] for n, v in numeric.items() if v.ndim >= 2}
    tables = of_dimensions(dims, opening)
    if opening.variable is None and len(tables) != 1:
        raise RequestError(
            "ambiguous_variable" if tables else "no_table",
            f"The Dataset holds {len(tables)} numeric variables of two or more dimensions"
            + (f": {listed(tables)}." if tables else "."),
            Text(
                "Name one with {variable}, or say {features_from_variables}.",
                features_from_variables=True,
            ),
        )
    name = tables[0] if opening.variable is None else opening.variable
    there = [str(other) for other in dataset.data_vars]
    if name not in dataset.data_vars:
        raise RequestError(
            "unknown_variable",
            f"The Dataset has no variable {name!r}.",
            f"{did_you_mean(name, there)}Its variables are {listed(there)}.",
        )
    return open_dataarray(dataset[name], opening, dataset, DATASET)


def open_frame(frame: pd.DataFrame, opening: Opening) -> Matrix:
    """Open a pandas DataFrame, whose columns are the features."""
    check_columns(frame)
    matrix = open_dataarray(
        xr.DataArray(frame, dims=BARE_DIMS), opening, source="a pandas DataFrame"
    )
    dtypes = tuple(dtype for dtype in frame.dtypes if isinstance(dtype, np.dtype))
    if matrix.metadata.transposed or len(dtypes) < frame.shape[1]:
        return matrix
    return replace(matrix, dtypes=dtypes)


def check_columns(frame: pd.DataFrame) -> None:
    """Raise RequestError for a DataFrame with columns that are not numbers."""
    others = [str(name) for name, column in frame.items() if not _is_of_numbers(column)]
    if others:
        raise RequestError(
            "bad_dtype",
            f"The DataFrame holds columns that are not numbers: {first_few(map(repr, others))}.",
            "Leave out what describes the samples, as df.select_dtypes('number') does.",
        )


def _is_of_numbers(column: pd.Series[Any]) -> bool:
    if pd.api.types.is_numeric_dtype(column.dtype):
        return True
    known = column.dropna()
    return column.dtype == object and bool(pd.to_numeric(known, errors="coerce").notna().all())


def is_dask_array(data: Any) -> TypeGuard[da.Array]:
    """Whether data are a Dask array: none is, where nobody has imported Dask."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(data, module.Array)


def open_bare(array: NDArray[Any] | da.Array, opening: Opening) -> Matrix:
    """Open a NumPy or Dask array, without names of features."""
    source = "a Dask array" if is_dask_array(array) else "a NumPy array"
    dims = BARE_DIMS if array.ndim == 2 else None
    return open_dataarray(xr.DataArray(array, dims=dims, name="data"), opening, source=source)


def _inventory(variable: xr.Variable) -> list[str]:
    """Identify the data: by a checksum of values in memory, or by the name of a Dask graph."""
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
    """Largest chunk along each dimension; arrays in memory are divided between any rows."""
    if variable.chunks is not None:
        return tuple(max(sizes, default=1) for sizes in variable.chunks)
    stored = {} if is_loaded(variable) else variable.encoding.get("preferred_chunks", {})
    return tuple(
        int(stored.get(d, 1 if axis in stacking.samples else max(extent, 1)))
        for axis, (d, extent) in enumerate(variable.sizes.items())
    )

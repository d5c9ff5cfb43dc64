"""Write a result: selected columns with their coordinates, and groups beside them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
import zarr
from numpy.typing import NDArray
from xarray.conventions import encode_cf_variable
from zarr.abc.store import Store

from kmufs_stream.errors import BrokenError, RequestError
from kmufs_stream.events import SILENT, Progress, Started
from kmufs_stream.sources import Matrix
from kmufs_stream.sources.dimensions import COORDINATE_ROWS
from kmufs_stream.sources.matrix import Rows
from kmufs_stream.storage.chunks import coordinate_of
from kmufs_stream.storage.output import new_zarr
from kmufs_stream.storage.places import Place
from kmufs_stream.streaming.cluster import active_client
from kmufs_stream.streaming.passes import StoppedError, run_each
from kmufs_stream.streaming.planning.plan import Plan

GROUPS = ("all_features", "diagnostics")
OURS = ("feature_index", "score", "rank", *GROUPS)
# Tells xarray that objects are text; it would load a Dask array to find out.
STRINGS = np.dtype("O", metadata={"element_type": str})


def subset_frame(
    matrix: Matrix,
    selected: NDArray[np.int64],
    scores: NDArray[np.float64],
    ranks: NDArray[np.int64],
    attrs: dict[str, Any],
    *,
    samples: bool,
) -> xr.Dataset:
    """Return the root of a result without the data variable, encoded as in the source.

    Parameters
    ----------
    selected, scores, ranks : (h,) of the chosen features, in source order.
    samples : keep the coordinates along the samples (False if no data are copied).
    """
    frame, dim = matrix.metadata.coords, matrix.metadata.feature_dim
    if not samples:
        frame = frame.drop_dims(matrix.metadata.sample_dim, errors="ignore")
    if dim in frame.dims:
        frame = frame.isel({dim: selected})
    # The source's own names are changed where they are ours.
    taken = {*OURS, *(str(name) for name in frame.coords)}
    frame = frame.rename({c: _free(str(c), taken) for c in frame.coords if c in OURS})
    theirs = dict(frame.attrs)
    for key in attrs:
        if key in theirs:
            theirs[_free(key, {*theirs, *attrs}, "input")] = theirs.pop(key)
    return frame.assign_coords(
        feature_index=(dim, selected, {"long_name": "0-based source index"}),
        score=(dim, scores, {"long_name": "share of variance in k components"}),
        rank=(dim, ranks, {"long_name": "1 = highest score among the selected"}),
    ).assign_attrs(theirs | attrs)


def column_name(matrix: Matrix, frame: xr.Dataset) -> str:
    """Name the data variable as in the source, unless that name is taken."""
    taken = {*OURS, *(str(name) for name in frame.variables)}
    return _free(matrix.metadata.name, taken)


def free_dim(dim: str, matrix: Matrix) -> str:
    """Name a dimension of a group differently from the root's, which has another size."""
    while dim in (matrix.metadata.sample_dim, matrix.metadata.feature_dim):
        dim += "_"
    return dim


def _free(name: str, taken: set[str], prefix: str = "source") -> str:
    while name in taken:
        name = f"{prefix}_{name}"
    return name


def lazy_columns(matrix: Matrix, selected: NDArray[np.int64], rows: int) -> xr.Variable:
    """Return the selected columns as a lazy variable, in the source's order of dimensions."""
    import dask.array as da
    from dask.delayed import delayed

    n, h = matrix.shape[0], len(selected)
    take = delayed(matrix.rows.take, pure=False)
    pieces = [
        da.from_delayed(  # type: ignore[no-untyped-call]
            take(a, min(a + rows, n), selected), (min(a + rows, n) - a, h), matrix.layout.dtype
        )
        for a in range(0, n, rows)
    ]
    columns = da.concatenate(pieces)  # type: ignore[no-untyped-call]
    dims = (matrix.metadata.sample_dim, matrix.metadata.feature_dim)
    variable = xr.Variable(dims, columns, matrix.metadata.attrs)
    return variable.transpose() if matrix.metadata.transposed else variable


def write_result(
    out: Place,
    matrix: Matrix,
    frame: xr.Dataset,
    groups: dict[str, xr.Dataset],
    plan: Plan,
    *,
    samples: bool,
    overwrite: bool,
    verify: Callable[[], None],
    progress: Progress = SILENT,
) -> None:
    """Write a result to ``out``, whole or not at all.

    The columns are copied by chunks of the output, by ``plan.threads`` threads or the workers of a
    cluster. Each source chunk is read once, if it holds a selected feature. ``verify`` is called
    before the result appears. Raises BrokenError if writing fails.
    """
    selected = frame["feature_index"].values
    name = column_name(matrix, frame)
    shape = (matrix.shape[0], len(selected))
    chunk = (plan.output_chunk_rows, len(selected))
    values = {}
    if samples:
        dims = (matrix.metadata.sample_dim, matrix.metadata.feature_dim)
        if matrix.metadata.transposed:
            dims, shape, chunk = dims[::-1], shape[::-1], chunk[::-1]
        values = {name: (dims, shape, chunk)}
    with new_zarr(out, overwrite=overwrite) as folder:
        try:
            write_frame(folder, frame, matrix, values)
            if samples:
                target = zarr.open_array(folder, path=name)
                _copy_columns(matrix, selected, target, plan, progress)
        except BrokenError:
            verify()  # the source may have been changed meanwhile
            raise
        for group, content in groups.items():
            content.to_zarr(folder, group=group, mode="w", **_form(matrix))
        verify()


def write_frame(
    folder: Store,
    frame: xr.Dataset,
    matrix: Matrix,
    values: Mapping[str, tuple[tuple[str, str], tuple[int, int], tuple[int, int]]],
) -> None:
    """Write coordinates, and arrays of the table's dtype that are to be filled.

    ``values`` holds dimensions, shape and chunks of these arrays by name. What lies along the
    samples is written without any, and grown: xarray writes the metadata, and nobody holds all
    values. Raises BrokenError for coordinates that cannot be read.
    """
    dim, n = matrix.metadata.sample_dim, matrix.shape[0]
    root = frame.drop_dims(dim, errors="ignore")
    texts = {name: _of_texts(c.variable, matrix) for name, c in root.coords.items()}
    along = {
        str(name): c.variable if matrix.metadata.encoded else _encoded(c.variable)
        for name, c in frame.coords.items()
        if dim in c.dims
    }
    empty: dict[str, xr.Variable] = {}
    for name, variable in along.items():
        empty[name] = _of_texts(variable.isel({dim: slice(0)}), matrix)
        chunk = tuple(size or min(n, COORDINATE_ROWS) for size in empty[name].shape)
        empty[name].encoding = {"chunks": chunk}
    root = root.assign_coords(xr.Coordinates(texts | empty, indexes={}))
    for name, (dims, shape, chunk) in values.items():
        none = [0 if d == dim else size for d, size in zip(dims, shape, strict=True)]
        array = np.empty(none, matrix.layout.dtype)
        empty[name] = xr.Variable(dims, array, matrix.metadata.attrs)
        empty[name].encoding = {"chunks": chunk}
        root = root.assign({name: empty[name]})
    root.to_zarr(folder, mode="w", **_form(matrix))
    for name, variable in empty.items():
        target = zarr.open_array(folder, path=name)
        target.resize(tuple(n if d == dim else size for d, size in variable.sizes.items()))
        if name in values:
            continue
        before = (slice(None),) * variable.dims.index(dim)
        for start in range(0, n, COORDINATE_ROWS):
            piece = slice(start, min(start + COORDINATE_ROWS, n))
            with coordinate_of(matrix.source):
                part = _of_texts(along[name].isel({dim: piece}), matrix).values
            target[(*before, piece)] = part


def _form(matrix: Matrix) -> dict[str, Any]:
    return {"zarr_format": matrix.layout.zarr_format, "consolidated": False}


def _encoded(variable: xr.Variable) -> xr.Variable:
    """Encode a variable as xarray does, of which each part alone might be encoded differently."""
    if variable.dtype.kind == "b":
        return variable  # xarray would make integers of them, and Zarr has booleans
    encoded = encode_cf_variable(variable.compute() if variable.dtype.kind == "O" else variable)
    if encoded.dtype.kind != "O":
        return encoded
    values = np.array(encoded.values)
    kind = pd.api.types.infer_dtype(values.ravel(), skipna=True)
    if kind not in ("string", "bytes", "empty"):
        raise RequestError(
            "bad_coordinate",
            f"A coordinate along {variable.dims[0]!r} holds objects ({kind}).",
            "Stores keep text, numbers and times: convert it, or leave it out.",
        )
    nothing, dtype = (b"", np.dtype(np.bytes_)) if kind == "bytes" else ("", STRINGS)
    values[pd.isna(values)] = nothing
    return encoded.copy(deep=False, data=values.astype(dtype))


def _of_texts(variable: xr.Variable, matrix: Matrix) -> xr.Variable:
    """Return text of any kind as strings of variable length; other values as they are."""
    # Objects of a DataArray may be anything that xarray can store.
    if variable.dtype.kind not in ("UTO" if matrix.metadata.encoded else "UT"):
        return variable.copy(deep=False)
    return variable.astype(np.dtypes.StringDType()).astype(STRINGS)


@dataclass(frozen=True)
class _Copy:
    """A copy of columns, made piece by piece, on whichever worker."""

    rows: Rows
    selected: NDArray[np.int64]
    target: zarr.Array[Any]
    transposed: bool
    dtype: np.dtype[Any]
    block_rows: int

    def write(self, piece: range, stopped: Callable[[], bool]) -> int:
        """Copy the selected columns of some rows; return their checksum."""
        columns = np.empty((len(piece), len(self.selected)), self.dtype)
        for a in range(0, len(columns), self.block_rows):
            if stopped():
                raise StoppedError
            part = columns[a : a + self.block_rows]
            start = piece.start + a
            part[:] = self.rows.take(start, start + len(part), self.selected)
        stored = np.ascontiguousarray(columns.T if self.transposed else columns)
        self.target[self._region(piece)] = stored
        return zlib.crc32(stored.data)

    def read_back(self, piece: range, stopped: Callable[[], bool]) -> int:
        """Return the checksum of what the output holds of some rows."""
        return zlib.crc32(np.ascontiguousarray(self.target[self._region(piece)]).data)

    def _region(self, piece: range) -> tuple[slice, slice]:
        samples, features = slice(piece.start, piece.stop), slice(None)
        return (features, samples) if self.transposed else (samples, features)


def _copy_columns(
    matrix: Matrix,
    selected: NDArray[np.int64],
    target: zarr.Array[Any],
    plan: Plan,
    progress: Progress,
) -> None:
    """Copy whole chunks of the output, so that no two tasks write one; check what was written."""
    n, dtype = matrix.shape[0], matrix.layout.dtype
    # At least a source chunk at a time, so that none is decoded twice.
    rows = max(plan.output_chunk_rows, min(matrix.layout.chunk_rows, n))
    pieces = [range(start, min(start + rows, n)) for start in range(0, n, rows)]
    transposed = matrix.metadata.transposed
    copy = _Copy(matrix.rows, selected, target, transposed, dtype, plan.block_rows)
    client = active_client() if plan.cluster is not None else None
    run = partial(run_each, threads=plan.threads, client=client, progress=progress)
    row = len(selected) * dtype.itemsize
    progress(Started("writing", total=n, unit="rows", unit_bytes=row))
    written = run(_Copy.write, copy, pieces)
    if client is None:
        return
    # Machines may see different folders under one path, and shared file systems may lose data:
    # others read what each worker has written, and this process counts the chunks.
    progress(Started("verifying", total=n, unit="rows", unit_bytes=row))
    found = run(_Copy.read_back, copy, pieces[::-1])
    if found != written or target.nchunks_initialized < target.nchunks:
        wrong = [piece for piece in pieces if found[piece] != written[piece]]
        what = f"Rows {wrong[0].start}..{wrong[0].stop - 1}" if wrong else "Chunks"
        raise BrokenError(
            "output_differs",
            f"{what} of the output are not as a worker wrote them.",
            "All workers and this process must see the output's folder under the same path; "
            "choose such a place for it.",
        )

"""The result as an xarray Dataset: selected columns, scores of all features, diagnostics."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr
import zarr
from dask.delayed import delayed
from numpy.typing import NDArray

from kmufs_stream.output import new_store
from kmufs_stream.progress import SILENT, Progress
from kmufs_stream.sources import Matrix
from kmufs_stream.streaming.passes import StoppedError, run_tasks
from kmufs_stream.streaming.plan import Plan
from kmufs_stream.zarr_io import written_quietly

OURS = ("feature_index", "score", "rank")
COORDINATE_ROWS = 2**20  # of a sample coordinate copied at a time


def subset_frame(
    matrix: Matrix,
    selected: NDArray[np.int64],
    scores: NDArray[np.float64],
    ranks: NDArray[np.int64],
    attrs: dict[str, Any],
    *,
    samples: bool,
) -> xr.Dataset:
    """Everything of the result's root but the data variable, encoded as in the source.

    Parameters
    ----------
    selected, scores, ranks : (h,) of the chosen features, in source order.
    samples : keep the coordinates along the samples (False: no data are copied).
    """
    frame = matrix.frame
    if not samples:
        frame = frame.drop_vars([c for c in frame.coords if matrix.sample_dim in frame[c].dims])
    if matrix.feature_dim in frame.dims:
        frame = frame.isel({matrix.feature_dim: selected})
    # A coordinate of the source under one of our names keeps its values under another.
    frame = frame.rename({name: f"source_{name}" for name in OURS if name in frame.coords})
    theirs = {(f"input_{k}" if k in attrs else k): v for k, v in frame.attrs.items()}
    return frame.assign_coords(
        feature_index=(matrix.feature_dim, selected, {"long_name": "0-based source index"}),
        score=(matrix.feature_dim, scores, {"long_name": "share of variance in k components"}),
        rank=(matrix.feature_dim, ranks, {"long_name": "1 = highest score among the selected"}),
    ).assign_attrs(theirs | attrs)


def lazy_columns(matrix: Matrix, selected: NDArray[np.int64], rows: int) -> xr.Variable:
    """The selected columns as a lazily read variable, in the source's order of dimensions."""
    n, h = matrix.shape[0], len(selected)
    take = delayed(matrix.rows.take, pure=False)
    pieces = [
        da.from_delayed(  # type: ignore[no-untyped-call]
            take(a, min(a + rows, n), selected), (min(a + rows, n) - a, h), matrix.stored_dtype
        )
        for a in range(0, n, rows)
    ]
    columns = da.concatenate(pieces)  # type: ignore[no-untyped-call]
    variable = xr.Variable((matrix.sample_dim, matrix.feature_dim), columns, matrix.attrs)
    return variable.transpose() if matrix.transposed else variable


def write_result(
    out: Path,
    matrix: Matrix,
    frame: xr.Dataset,
    groups: dict[str, xr.Dataset],
    plan: Plan,
    *,
    samples: bool,
    progress: Progress = SILENT,
) -> None:
    """Write the result at ``out``, whole or not at all.

    The columns are copied chunk by chunk of the output, ``plan.threads`` at a time, each source
    chunk read once and only where it holds a selected feature.

    Raises BrokenError if writing fails.
    """
    selected = frame["feature_index"].values
    name = f"source_{matrix.name}" if matrix.name in frame.variables else matrix.name
    shape = (matrix.shape[0], len(selected))
    chunk = (plan.output_chunk_rows, len(selected))
    root = _storable(frame, matrix)
    encoding = {}
    if samples:
        dims = (matrix.sample_dim, matrix.feature_dim)
        if matrix.transposed:
            dims, shape, chunk = dims[::-1], shape[::-1], chunk[::-1]
        template = da.zeros(shape, dtype=matrix.stored_dtype, chunks=-1)
        root = root.assign({name: xr.Variable(dims, template, matrix.attrs)})
        encoding = {name: {"chunks": chunk}}
    form: Any = {"zarr_format": matrix.zarr_format, "consolidated": False}
    with new_store(out) as folder, written_quietly(), zarr.config.set(ALL_CHUNKS):
        root.to_zarr(folder, mode="w", compute=False, encoding=encoding, **form)
        _copy_coordinates(root, folder, form)
        if samples:
            _copy_columns(matrix, selected, zarr.open_array(folder, path=name), plan, progress)
        for group, content in groups.items():
            content.to_zarr(folder, group=group, mode="w", **form)
        zarr.consolidate_metadata(folder)


# A chunk of nothing but fill values is written like any other: what is not there, is lost.
ALL_CHUNKS = {"array.write_empty_chunks": True}


def _storable(frame: xr.Dataset, matrix: Matrix) -> xr.Dataset:
    """Coordinates along the samples in pieces; text of any kind as variable-length strings."""
    if matrix.sample_dim in frame.dims:
        frame = frame.chunk({matrix.sample_dim: COORDINATE_ROWS})
    text = [name for name, c in frame.coords.items() if c.dtype.kind in "UT"]
    return frame.assign_coords({name: frame[name].variable.astype(object) for name in text})


def _copy_coordinates(root: xr.Dataset, folder: Path, form: Any) -> None:
    lazy = [c for c, v in root.coords.items() if v.chunks is not None]
    if lazy:
        coordinates = xr.Dataset({c: root[c].variable for c in lazy})
        coordinates.to_zarr(folder, mode="a", **form)


def _copy_columns(
    matrix: Matrix,
    selected: NDArray[np.int64],
    target: zarr.Array[Any],
    plan: Plan,
    progress: Progress,
) -> None:
    n, rows = matrix.shape[0], plan.output_chunk_rows
    progress.start("writing", n)

    def copy(stop: threading.Event, start: int) -> None:
        chunk = np.empty((min(rows, n - start), len(selected)), matrix.stored_dtype)
        for a in range(0, len(chunk), plan.block_rows):
            if stop.is_set():
                raise StoppedError
            part = chunk[a : a + plan.block_rows]
            part[:] = matrix.rows.take(start + a, start + a + len(part), selected)
            progress.advance(len(part))
        if matrix.transposed:
            target[:, start : start + rows] = chunk.T
        else:
            target[start : start + rows] = chunk

    def chunks(stop: threading.Event) -> Any:
        task = delayed(partial(copy, stop), pure=False)
        return delayed(list)([task(start) for start in range(0, n, rows)])

    run_tasks(chunks, threads=plan.threads)

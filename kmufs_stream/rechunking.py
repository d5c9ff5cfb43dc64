"""Stores written again in chunks of few rows."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr
import zarr
from zarr.abc.store import Store

from kmufs_stream.errors import BrokenError, RequestError, Text
from kmufs_stream.events import SILENT, Advanced, Noticed, Progress, Started
from kmufs_stream.factors.identity import check_unchanged, identity_of_copy
from kmufs_stream.results.writing import copy_coordinates, storable
from kmufs_stream.sources import Matrix, open_matrix
from kmufs_stream.storage.output import check_output, filled, new_output, new_zarr
from kmufs_stream.storage.places import Place, PlaceLike, name_of, place_of
from kmufs_stream.storage.provenance import origin
from kmufs_stream.streaming.checkpoint import Checkpoint
from kmufs_stream.streaming.planning.plan import memory_budget
from kmufs_stream.streaming.planning.sizing import BASELINE, MB
from kmufs_stream.streaming.planning.table import DECODED_AT_ONCE
from kmufs_stream.system.memory import peak_memory, size
from kmufs_stream.version import __version__

CHUNK_BYTES = 8 * MB
TILE_BYTES = 128 * MB  # more at a time gains nothing, but where a source chunk asks for it
COPIES = 4  # of a tile: as read, in one piece, read back, and what the codecs make of it


@dataclass(frozen=True)
class Tiling:
    """What is read and written at a time, and the chunks that are written.

    Attributes
    ----------
    rows, columns : of a tile, which is made of whole source chunks.
    chunk_rows : rows of a written chunk; it has the columns of a tile.
    peak : predicted resident bytes at most.
    """

    rows: int
    columns: int
    chunk_rows: int
    peak: int

    def tiles(self, shape: tuple[int, int]) -> Iterator[tuple[slice, slice]]:
        """All tiles, those of the same rows one after another."""
        n, p = shape
        for a in range(0, n, self.rows):
            for b in range(0, p, self.columns):
                yield slice(a, min(a + self.rows, n)), slice(b, min(b + self.columns, p))


@dataclass(frozen=True)
class Rechunking:
    """What :func:`kmufs_stream.rechunk` wrote.

    Attributes
    ----------
    output : path, address or Zarr store
        Where.
    shape : (int, int)
        Samples and features.
    chunks_before, chunks : (int, int)
        Samples and features of a chunk, of the data and as they were written.
    seconds : float
        Wall-clock seconds.
    predicted_peak : int
        Resident bytes that the plan allowed for, at most.
    """

    output: Place
    shape: tuple[int, int]
    chunks_before: tuple[int, int]
    chunks: tuple[int, int]
    seconds: float
    predicted_peak: int

    def summary(self) -> dict[str, Any]:
        """The same in plain JSON types; the keys are listed in docs/output.md."""
        return {
            "output": name_of(self.output),
            "samples": self.shape[0],
            "features": self.shape[1],
            "chunks_before": list(self.chunks_before),
            "chunks": list(self.chunks),
            "seconds": {"total": self.seconds},
            "peak_rss_bytes": peak_memory(),
            "predicted_peak_bytes": self.predicted_peak,
            "version": __version__,
        }


def rechunk(
    data: Any,
    out: PlaceLike,
    *,
    memory: str | int | None = None,
    overwrite: bool = False,
    resume: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    command: str | None = None,
    progress: Progress = SILENT,
) -> Rechunking:
    """Write a table again in chunks of few rows, so that it can be streamed.

    Parameters
    ----------
    data : path, address, Zarr store or array, table in memory, or Matrix
        (n, p), whatever :func:`kmufs_stream.open_matrix` opens, but for sparse data.
    out : path, address or empty Zarr store
        Where to write samples x features, the stored values and their dtype, the coordinates and
        attributes. Where whole rows do not fit, a chunk holds some of the features.
    memory : str or int, optional
        Most memory to use; half of what is available by default.
    overwrite : bool, default False
        Replace what is there; see :func:`kmufs_stream.select`.
    resume : bool, default False
        Go on from what an earlier call, which did not end, has left in ``<out>.checkpoint``: where
        ``out`` is a folder of this machine.
    storage_options : mapping, optional
        For fsspec, where any of these is an address.
    command : str, optional
        The command line that asks for this, to be kept in that checkpoint with the date.
    progress : callable, optional
        Told of what happens; see :func:`kmufs_stream.select`.

    Returns
    -------
    Rechunking
        What was written.

    Raises
    ------
    RequestError
        Sparse data, a budget in which no source chunk fits, an output that must not be written; to
        go on from what was left by a call with other data or in other chunks.
    BrokenError
        A chunk cannot be read, writing fails, what was written reads back otherwise, the data
        change meanwhile.

    Notes
    -----
    Reads each source chunk once, and what was written once: what an earlier call wrote too, and
    where that reads back otherwise it is written again.
    """
    began = time.perf_counter()
    target = place_of(out, storage_options)
    matrix = open_matrix(data, storage_options=storage_options)
    check_output(target, matrix.inputs, overwrite=overwrite, parameter="out")
    tiling = plan_tiles(matrix, memory)
    identity = identity_of_copy(matrix)
    dims = (matrix.metadata.sample_dim, matrix.metadata.feature_dim)
    chunks = (tiling.chunk_rows, tiling.columns)
    template = da.zeros(matrix.shape, dtype=matrix.layout.dtype, chunks=-1)
    root = storable(matrix.metadata.coords, matrix)
    root = root.assign({matrix.metadata.name: xr.Variable(dims, template, matrix.metadata.attrs)})
    encoding = {matrix.metadata.name: {"chunks": chunks}}
    form: dict[str, Any] = {"zarr_format": matrix.layout.zarr_format, "consolidated": False}

    def lay_out(store: Store) -> None:
        root.to_zarr(store, mode="w", compute=False, encoding=encoding, **form)
        copy_coordinates(root, store, matrix.source)

    def fill(store: Store, tiles: Path | None) -> None:
        array = zarr.open_array(store, path=matrix.metadata.name)
        _copy(matrix, array, tiling, tiles, progress)
        check_unchanged(matrix, identity["data chunks"])

    if isinstance(target, Path):
        place = target.resolve()
        beside = place.with_name(f"{place.name}.checkpoint")
        about = origin(matrix.source, command)

        def tell(text: str) -> None:
            if resume:
                progress(Noticed(text))

        with (
            Checkpoint(beside, resume=resume, tell=tell, about=about) as kept,
            new_output(target, overwrite=overwrite) as partial,
        ):
            kept.begin({**identity, "chunks": f"{chunks}, {tiling.rows} rows at a time"})
            assert isinstance(kept.folder, Path)
            folder, begun, tiles = (kept.folder / name for name in ("store", "begun", "tiles"))
            with filled(folder) as store:
                if not begun.exists():
                    lay_out(store)
                    tiles.mkdir(exist_ok=True)
                    begun.touch()
                fill(store, tiles)
            folder.rename(partial)
    else:
        if resume:
            raise RequestError(
                "bad_option",
                f"{name_of(target)} is not on this machine: nothing is kept there to go on from.",
                Text("Leave out {resume}, or rechunk into a folder and copy it."),
            )
        with new_zarr(target, overwrite=overwrite) as store:
            lay_out(store)
            fill(store, None)
    return Rechunking(
        output=target,
        shape=matrix.shape,
        chunks_before=(matrix.layout.chunk_rows, matrix.layout.chunk_columns),
        chunks=chunks,
        seconds=time.perf_counter() - began,
        predicted_peak=tiling.peak,
    )


def plan_tiles(matrix: Matrix, memory: str | int | None) -> Tiling:
    """Whole rows where they fit, else as many columns as do; whole source chunks either way.

    Raises RequestError for sparse data, and where not even one source chunk fits.
    """
    if matrix.layout.sparsity is not None:
        raise RequestError(
            "sparse",
            f"{matrix.source} is sparse: it has no chunks of rows and columns.",
            f"Have it stored by rows: {matrix.layout.sparsity.csr_command}"
            if matrix.layout.sparsity.csr_command
            else "Stored by rows it is streamed as it is.",
        )
    (n, p), item = matrix.shape, matrix.layout.dtype.itemsize
    budget = memory_budget(memory)
    rows, columns = min(matrix.layout.chunk_rows, max(n, 1)), min(matrix.layout.chunk_columns, p)
    chunk = rows * columns * item

    def peak(tile: int) -> int:
        return (
            BASELINE
            + matrix.layout.held_bytes
            + COPIES * tile
            + 2 * min(DECODED_AT_ONCE * chunk, tile)
        )

    if peak(chunk) > budget:
        raise RequestError(
            "does_not_fit",
            f"One chunk of {matrix.source} holds {size(chunk)}; {size(peak(chunk))} of memory are "
            f"needed, {size(budget)} may be used.",
            Text("Give {memory} or more.", memory=f"{-(-peak(chunk) // MB)}MB"),
        )
    spare = budget - BASELINE - matrix.layout.held_bytes
    most = max(min(spare // (COPIES + 2), TILE_BYTES), chunk)
    if rows * p * item <= most:
        columns = p
        rows = min(rows * (most // (rows * p * item)), max(n, 1))
    else:
        columns = min(columns * (most // chunk), p)
    chunk_rows = min(max(CHUNK_BYTES // (columns * item), 1), rows)
    return Tiling(rows, columns, chunk_rows, peak(rows * columns * item))


def _copy(
    matrix: Matrix, target: zarr.Array[Any], tiling: Tiling, marks: Path | None, progress: Progress
) -> None:
    """Copy tile by tile, reading back each; ``marks`` keeps a checksum of each that is done."""
    n, p = matrix.shape
    item = matrix.layout.dtype.itemsize
    progress(Started("rechunking", total=n * p * item, unit="bytes", unit_bytes=1))
    for number, (rows, columns) in enumerate(tiling.tiles(matrix.shape)):
        mark = None if marks is None else marks / str(number)
        if (
            mark is not None
            and mark.exists()
            and mark.read_text() == _checksum(target, rows, columns)
        ):
            count = (rows.stop - rows.start) * (columns.stop - columns.start) * item
            progress(Advanced(count, restored=True))
            continue
        chosen = np.arange(columns.start, columns.stop)
        tile = np.ascontiguousarray(matrix.rows.take(rows.start, rows.stop, chosen))
        _start_damaged_chunk_anew(target, rows.stop, columns)
        target[rows, columns] = tile
        checksum = str(zlib.crc32(tile.data))
        if checksum != _checksum(target, rows, columns):
            raise BrokenError(
                "output_differs",
                f"Rows {rows.start}..{rows.stop - 1} of the output read back otherwise than they "
                "were written.",
                "Check the disk, or choose another place.",
            )
        if mark is not None:
            mark.write_text(checksum)
        progress(Advanced(tile.nbytes))


def _start_damaged_chunk_anew(target: zarr.Array[Any], stop: int, columns: slice) -> None:
    """Overwrite the chunk that row ``stop`` cuts, if it cannot be decoded to write part of it.

    The rows from ``stop`` on then differ from their checksum, and are written again too. The chunk
    that the first row of a tile cuts has been written or read just before.
    """
    start = stop - stop % target.chunks[0]
    chunk = slice(start, min(start + target.chunks[0], target.shape[0]))
    if start < stop < chunk.stop and not _checksum(target, chunk, columns):
        target[chunk, columns] = 0


def _checksum(target: zarr.Array[Any], rows: slice, columns: slice) -> str:
    """Of what is written there; nothing where it cannot be read."""
    try:
        written = np.ascontiguousarray(target[rows, columns])
    except Exception:  # whatever a codec makes of a damaged chunk: it is written again
        return ""
    return str(zlib.crc32(written.data))

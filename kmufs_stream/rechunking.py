"""Write a store again in chunks of few rows."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from dask.array.core import normalize_chunks, slices_from_chunks
from zarr.abc.store import Store

from kmufs_stream.errors import BrokenError, RequestError, Text
from kmufs_stream.events import SILENT, Advanced, Noticed, Progress, Started
from kmufs_stream.factors.identity import check_unchanged, identity_of_copy
from kmufs_stream.formats.blocks import check_fits
from kmufs_stream.results.writing import write_frame
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
TILE_BYTES = 128 * MB  # more at a time gains nothing; a larger source chunk is one tile
COPIES = 4  # of a tile: as read, contiguous, read back, and in the codecs


@dataclass(frozen=True)
class Tiling:
    """The tiles that are copied at a time, and the chunks that are written.

    Attributes
    ----------
    rows, columns : of a tile, which consists of whole source chunks.
    chunk_rows : rows of a written chunk, which has the columns of a tile.
    peak : upper bound of the process's resident bytes.
    """

    rows: int
    columns: int
    chunk_rows: int
    peak: int


@dataclass(frozen=True)
class Rechunking:
    """Result of :func:`kmufs_stream.rechunk`.

    Attributes
    ----------
    output : path, address or Zarr store
        Where it was written.
    shape : (int, int)
        Samples and features.
    chunks_before, chunks : (int, int)
        Samples and features of a chunk, in the data and as written.
    seconds : float
        Wall-clock seconds.
    predicted_peak : int
        Upper bound of the process's resident bytes, by the plan.
    """

    output: Place
    shape: tuple[int, int]
    chunks_before: tuple[int, int]
    chunks: tuple[int, int]
    seconds: float
    predicted_peak: int

    def summary(self) -> dict[str, Any]:
        """Return the same in plain JSON types; docs/output.md lists the keys."""
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
    """Copy a table into chunks of few rows, so that it can be streamed.

    Parameters
    ----------
    data : path, address, Zarr store or array, table in memory, or Matrix
        Anything that :func:`kmufs_stream.open_matrix` opens, except sparse data.
    out : path, address or empty Zarr store
        Where to write samples x features: the stored values in their dtype, coordinates and
        attributes. If whole rows do not fit in memory, a chunk holds some of the features.
    memory, overwrite, storage_options, progress
        See :func:`kmufs_stream.decompose`.
    resume : bool, default False
        Continue from ``<out>.checkpoint``, which a call that did not end has left, if ``out`` is a
        folder of this machine.
    command : str, optional
        A command line to record in that checkpoint, with the date.

    Returns
    -------
    Rechunking
        What was written.

    Raises
    ------
    RequestError
        The data are sparse, no source chunk fits in the budget, the output must not be written, or
        the checkpoint is of other data or other chunks.
    BrokenError
        A chunk cannot be read, writing fails, what was written reads back otherwise, or the data
        changed meanwhile.

    Notes
    -----
    Reads each source chunk once, and the output once. With ``resume`` it reads back what the
    earlier call wrote, and writes again what is damaged.
    """
    began = time.perf_counter()
    target = place_of(out, storage_options)
    matrix = open_matrix(data, storage_options=storage_options)
    check_output(target, matrix.inputs, overwrite=overwrite, parameter="out")
    tiling = plan_tiles(matrix, memory)
    identity = identity_of_copy(matrix)
    metadata, chunks = matrix.metadata, (tiling.chunk_rows, tiling.columns)
    dims = (metadata.sample_dim, metadata.feature_dim)

    def lay_out(store: Store) -> None:
        write_frame(store, metadata.coords, matrix, {metadata.name: (dims, matrix.shape, chunks)})

    def fill(store: Store, marks: Path | None) -> None:
        array = zarr.open_array(store, path=metadata.name)
        _copy(matrix, array, tiling, marks, progress)
        check_unchanged(matrix, identity["data chunks"])

    if isinstance(target, Path):
        place = target.resolve()
        checkpoint = Checkpoint(
            place.with_name(f"{place.name}.checkpoint"),
            resume=resume,
            tell=lambda text: progress(Noticed(text)) if resume else None,
            about=origin(matrix.source, command),
        )
        with checkpoint, new_output(target, overwrite=overwrite) as partial:
            checkpoint.begin({**identity, "chunks": f"{chunks}, {tiling.rows} rows at a time"})
            assert isinstance(checkpoint.folder, Path)
            folder, begun, marks = (checkpoint.folder / n for n in ("store", "begun", "tiles"))
            with filled(folder) as store:
                if not begun.exists():
                    lay_out(store)
                    marks.mkdir(exist_ok=True)
                    begun.touch()
                fill(store, marks)
            folder.rename(partial)
    elif resume:
        raise RequestError(
            "bad_option",
            f"{name_of(target)} is not on this machine: nothing is kept there to go on from.",
            Text("Leave out {resume}, or rechunk into a folder and copy it."),
        )
    else:
        with new_zarr(target, overwrite=overwrite) as store:
            lay_out(store)
            fill(store, None)
    before = (matrix.layout.chunk_rows, matrix.layout.chunk_columns)
    seconds = time.perf_counter() - began
    return Rechunking(target, matrix.shape, before, chunks, seconds, tiling.peak)


def plan_tiles(matrix: Matrix, memory: str | int | None) -> Tiling:
    """Plan tiles of whole rows if these fit, else of as many columns as do.

    Raises RequestError for sparse data, and if not even one source chunk fits.
    """
    layout = matrix.layout
    if layout.sparsity is not None:
        raise RequestError(
            "sparse",
            f"{matrix.source} is sparse: it has no chunks of rows and columns.",
            "Stored by rows (with anndata: a.X = a.X.tocsr()) it is streamed as it is.",
        )
    (n, p), item, budget = matrix.shape, layout.dtype.itemsize, memory_budget(memory)
    rows, columns = min(layout.chunk_rows, max(n, 1)), min(layout.chunk_columns, p)
    chunk = rows * columns * item

    def needed(tile: int) -> int:
        return layout.held_bytes + COPIES * tile + 2 * min(DECODED_AT_ONCE * chunk, tile)

    copying = f"One chunk of {matrix.source} holds {size(chunk)}: copying it"
    check_fits(copying, needed(chunk), budget)
    spare = budget - BASELINE - layout.held_bytes
    most = max(min(spare // (COPIES + 2), TILE_BYTES), chunk)
    if rows * p * item <= most:
        columns = p
        rows = min(rows * (most // (rows * p * item)), max(n, 1))
    else:
        columns = min(columns * (most // chunk), p)
    chunk_rows = min(max(CHUNK_BYTES // (columns * item), 1), rows)
    return Tiling(rows, columns, chunk_rows, BASELINE + needed(rows * columns * item))


def _copy(
    matrix: Matrix, target: zarr.Array[Any], tiling: Tiling, marks: Path | None, progress: Progress
) -> None:
    """Copy tile by tile, and read each back; ``marks`` keeps the checksums of finished tiles."""
    (n, p), item = matrix.shape, matrix.layout.dtype.itemsize
    progress(Started("rechunking", total=n * p * item, unit="bytes", unit_bytes=1))
    tiles = normalize_chunks((tiling.rows, tiling.columns), (n, p))  # type: ignore[no-untyped-call]
    for number, (rows, columns) in enumerate(slices_from_chunks(tiles)):  # type: ignore[no-untyped-call]
        mark = None if marks is None else marks / str(number)
        done = mark.read_text() if mark is not None and mark.exists() else None
        if done is not None and done == _checksum(target, rows, columns):
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
    """Overwrite a chunk that row ``stop`` cuts in two, if it cannot be decoded to write a part.

    Its rows from ``stop`` on then differ from their checksum, and are written again as well. A
    chunk that the first row of a tile cuts was read or written with the tile before.
    """
    start = stop - stop % target.chunks[0]
    chunk = slice(start, min(start + target.chunks[0], target.shape[0]))
    if start < stop < chunk.stop and not _checksum(target, chunk, columns):
        target[chunk, columns] = 0


def _checksum(target: zarr.Array[Any], rows: slice, columns: slice) -> str:
    """Compute the checksum of what is stored there; "" if it cannot be read."""
    try:
        written = np.ascontiguousarray(target[rows, columns])
    except Exception:  # codecs raise anything for a damaged chunk, which is then written again
        return ""
    return str(zlib.crc32(written.data))

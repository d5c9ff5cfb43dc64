"""Keep some samples: given rows, or those that meet a condition on coordinates."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kmufs_stream.errors import KmufsError, RequestError, Text, did_you_mean, listed
from kmufs_stream.sources.condition import parsed
from kmufs_stream.sources.dimensions import COORDINATE_ROWS
from kmufs_stream.sources.layout import Block, dense, joined_rows
from kmufs_stream.sources.matrix import Matrix, Rows
from kmufs_stream.sources.names import plain
from kmufs_stream.storage.chunks import coordinate_of, describe


@dataclass(frozen=True)
class SomeRows:
    """The rows ``index``, ascending, of other rows."""

    rows: Rows
    index: NDArray[np.int64]
    chunk_rows: int

    def read(self, start: int, stop: int) -> Block:
        return self._pick(self.rows.read, start, stop)

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        return dense(self._pick(partial(self.rows.take, columns=columns), start, stop))

    def _pick(self, read: Callable[[int, int], Block], start: int, stop: int) -> Block:
        """Read runs of whole chunks, of about as many rows as are wanted, and pick from each."""
        if start == stop:
            return read(0, 0)
        index = self.index[start:stop]
        run = max((stop - start) // self.chunk_rows, 1) * self.chunk_rows
        parts = np.split(index, np.flatnonzero(np.diff(index // run)) + 1)
        return joined_rows([read(part[0], part[-1] + 1)[part - part[0]] for part in parts])


def keep_samples(matrix: Matrix, index: NDArray[np.int64]) -> Matrix:
    """Return the matrix of the rows ``index``, ascending."""
    if len(index) == matrix.shape[0]:
        return matrix
    layout, metadata, provenance = matrix.layout, matrix.metadata, matrix.provenance
    some = {metadata.sample_dim: index}
    sparsity = None if layout.sparsity is None else layout.sparsity.of_rows(index)
    pointers = 0 if sparsity is None else sparsity.indptr.nbytes
    held = layout.held_bytes + index.nbytes + pointers
    return replace(
        matrix,
        rows=SomeRows(matrix.rows, index, layout.chunk_rows),
        shape=(len(index), matrix.shape[1]),
        layout=replace(layout, copied=True, sparsity=sparsity, held_bytes=held),
        metadata=replace(
            metadata,
            coords=metadata.coords.isel(some, missing_dims="ignore"),
            beside=metadata.beside.isel(some, missing_dims="ignore"),
        ),
        provenance=replace(provenance, inventory=partial(_inventory, provenance.inventory, index)),
    )


def _inventory(of_all: Callable[[], list[str]], index: NDArray[np.int64]) -> list[str]:
    metadata, *chunks = of_all()
    return [describe([metadata, len(index), zlib.crc32(index.tobytes())]), *chunks]


def samples_meeting(matrix: Matrix, condition: str) -> Matrix:
    """Return the matrix of the samples whose coordinates meet a condition.

    Raises RequestError for an invalid condition, or one that no sample meets.
    """
    met = keep_samples(matrix, _samples_where(matrix, condition))
    return replace(met, provenance=replace(met.provenance, where=condition))


def _samples_where(matrix: Matrix, condition: str) -> NDArray[np.int64]:
    """Find the rows, ascending, whose coordinates meet a condition."""
    along = _along(matrix)
    kept, near = [], ""
    try:
        asked = parsed(condition, along)
        unknown = [name for name in asked.names.values() if name not in along]
        if unknown:
            near = did_you_mean(unknown[0], along)
            raise ValueError(f"the samples have no coordinate {unknown[0]}")
        for start in range(0, matrix.shape[0], COORDINATE_ROWS):
            rows = {name: _values(matrix, name, start) for name in asked.names.values()}
            kept.append(np.flatnonzero(asked.met(rows)) + start)
    except KmufsError:
        raise
    except Exception as error:
        said = " ".join(str(error.args[0] if error.args else type(error).__name__).split())
        raise RequestError(
            "bad_condition",
            Text("{where} {!r} cannot be answered: {}", condition, said),
            f"{near}Compare coordinates of the samples as in \"batch == 'b1' and depth > 10\"; "
            f"there are {listed(along)}.",
        ) from error
    index = np.concatenate(kept) if kept else np.empty(0, np.int64)
    if not len(index):
        raise RequestError(
            "no_samples",
            Text("No sample of {} meets {where} {!r}.", matrix.source, condition),
            f"The coordinates of the samples are {listed(along)}.",
        )
    return index


def _values(matrix: Matrix, name: str, start: int) -> NDArray[Any]:
    """Read COORDINATE_ROWS values of a coordinate, as they are compared."""
    with coordinate_of(matrix.source):
        stored = matrix.metadata.coords[name].variable[start : start + COORDINATE_ROWS].load()
    piece = xr.Dataset({"c": stored})
    try:
        piece = xr.decode_cf(piece) if matrix.metadata.encoded else piece
    except ValueError as error:
        raise ValueError(f"the coordinate {name} cannot be read as times: {error}") from error
    values: NDArray[Any] = piece["c"].values
    if values.dtype == object and hasattr(values[0], "calendar"):
        # pandas compares times of other calendars with no text.
        return np.array([plain(value) for value in values], dtype=object)
    return values


def _along(matrix: Matrix) -> list[str]:
    frame = matrix.metadata.coords
    return [str(c) for c in frame.coords if frame[c].dims == (matrix.metadata.sample_dim,)]

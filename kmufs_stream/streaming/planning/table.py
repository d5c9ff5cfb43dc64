"""What a plan knows about a matrix: its sizes, and the bytes that reading it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kmufs_stream.sources.layout import Layout

DECODED_AT_ONCE = 10  # chunks that zarr fetches and decodes together, per read
ROW_POINTER_BYTES = 8  # of a sparse row
SPARSE_WORK_BYTES = 40  # per entry: values in float64, their columns, and one of them sorted


@dataclass(frozen=True)
class Table:
    """The facts about a matrix that a plan follows from.

    Attributes
    ----------
    shape, dtype, layout : as of the Matrix.
    width : features that take part; 0 for all.
    copies : that reading and screening make of a block.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    layout: Layout
    width: int = 0
    copies: int = 0

    @property
    def columns(self) -> int:
        """Features that take part."""
        return self.width or self.shape[1]

    @property
    def is_one_block(self) -> bool:
        """Whether a chunk spans all samples but not all features, so that all are read at once."""
        layout, (samples, features) = self.layout, self.shape
        spans_all = layout.chunk_rows >= samples > 1 and layout.chunk_columns < features
        return layout.sparsity is None and spans_all

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, or of a sparse one if it were dense."""
        return self.shape[1] * self.dtype.itemsize

    @property
    def mean_row_bytes(self) -> int:
        """Bytes that a row takes in a block as it is read, on average."""
        sparsity = self.layout.sparsity
        if sparsity is None:
            return self.row_bytes
        entries = int(sparsity.indptr[-1]) * self._entry_bytes
        return entries // max(self.shape[0], 1) + ROW_POINTER_BYTES

    @property
    def _entry_bytes(self) -> int:
        """A value and its column number in a block."""
        sparsity = self.layout.sparsity
        stored = 0 if sparsity is None else sparsity.entry_bytes - self.layout.dtype.itemsize
        return self.dtype.itemsize + max(stored, 4)

    def block_bytes(self, rows: int) -> int:
        """Bytes of the largest block of ``rows`` rows as it is read."""
        if self.layout.sparsity is None:
            return rows * self.row_bytes
        return self.layout.sparsity.fullest(rows) * self._entry_bytes + rows * ROW_POINTER_BYTES

    def work_bytes(self, rows: int) -> int:
        """Bytes of the largest block ready for products, in float64 at worst."""
        if self.layout.sparsity is None:
            return rows * self.shape[1] * 8
        # Columns, values scaled, and what comes and goes with them.
        return self.layout.sparsity.fullest(rows) * SPARSE_WORK_BYTES + rows * ROW_POINTER_BYTES

    def first_rows(self, budget: int) -> int:
        """How many of the first rows, kept as they were read, fit in so many bytes."""
        sparsity = self.layout.sparsity
        if sparsity is None:
            return budget // self.row_bytes
        steps = np.arange(len(sparsity.indptr)) * ROW_POINTER_BYTES
        kept = sparsity.indptr * self._entry_bytes + steps
        return int(np.searchsorted(kept, budget, side="right")) - 1

    def read_bytes(self, rows: int) -> int:
        """Peak bytes of reading ``rows`` rows: the rows, and the chunks decoded on the way."""
        layout, sparsity = self.layout, self.layout.sparsity
        copied = self.copies * self.block_bytes(rows)
        if layout.in_memory:
            return copied
        if sparsity is not None:
            block = sparsity.most_read(rows) * self._entry_bytes + rows * ROW_POINTER_BYTES
            chunk = sparsity.chunk_entries * sparsity.entry_bytes
            return 2 * block + 2 * min(DECODED_AT_ONCE * chunk, block + 2 * chunk) + copied
        p, itemsize = self.shape[1], layout.dtype.itemsize
        wide = -(-p // layout.chunk_columns) * layout.chunk_columns
        covered = -(-rows // layout.chunk_rows) * layout.chunk_rows * wide * itemsize
        chunk = (layout.chunk_cells or layout.chunk_rows * layout.chunk_columns) * itemsize
        decoding = 2 * min(DECODED_AT_ONCE * chunk, covered)
        unpacked = rows * self.row_bytes if itemsize != self.dtype.itemsize else 0
        return rows * p * itemsize + decoding + unpacked + copied

"""How the values of a table are stored: chunks, shards, and the entries of sparse data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

Block = NDArray[Any] | csr_array


def dense(block: Block) -> NDArray[Any]:
    """Return a block as a dense array; one that is dense already is not copied."""
    return block.toarray() if isinstance(block, csr_array) else block


def with_values(block: Block, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Block:
    """Change the values of a block elementwise; of CSR, those of its entries."""
    if not isinstance(block, csr_array):
        return change(block)
    return csr_array((change(block.data), block.indices, block.indptr), shape=block.shape)


def joined_rows(pieces: Sequence[Block]) -> Block:
    """Stack blocks, all dense or all CSR, one below the other."""
    if len(pieces) == 1:
        return pieces[0]
    parts: Any = pieces
    joined: Block = (
        vstack(parts, format="csr") if isinstance(pieces[0], csr_array) else np.concatenate(parts)
    )
    return joined


@dataclass(frozen=True, eq=False, repr=False)
class Sparsity:
    """Where the stored entries of a sparse matrix lie.

    Attributes
    ----------
    indptr : (n + 1,) int64, entries before each row.
    entry_bytes : bytes of a stored value and its column number.
    chunk_entries : the smallest run of entries that can be decoded alone.
    whole : entries before each row of the source, if only some of its rows are taken.
    """

    indptr: NDArray[np.int64]
    entry_bytes: int
    chunk_entries: int
    whole: NDArray[np.int64] | None = None

    def fullest(self, rows: int) -> int:
        """Entries of the fullest block of ``rows`` rows. O(n / rows)."""
        return _fullest(self.indptr, rows)

    def most_read(self, rows: int) -> int:
        """Upper bound of the entries decoded together for such a block. O(n / rows)."""
        return self.fullest(rows) if self.whole is None else 2 * _fullest(self.whole, rows)

    def of_rows(self, index: NDArray[np.int64]) -> Sparsity:
        """Where the entries of some rows lie: ``index``, ascending."""
        entries = np.diff(self.indptr)[index]
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(entries)])
        whole = self.indptr if self.whole is None else self.whole
        return replace(self, indptr=indptr, whole=whole)


def _fullest(indptr: NDArray[np.int64], rows: int) -> int:
    cuts = np.append(indptr[:-1:rows], indptr[-1])
    return int(np.diff(cuts).max(initial=0))


@dataclass(frozen=True, eq=False, repr=False)
class Layout:
    """How the values of a table are stored.

    Attributes
    ----------
    dtype : on disk; that of ``rows.take``.
    chunk_rows, chunk_columns : the smallest piece that can be decoded alone.
    shard_rows : rows of the smallest piece that can be written alone; ``chunk_rows`` if unsharded.
    chunk_cells : numbers in the smallest piece that can be decoded alone; 0 for ``chunk_rows *
        chunk_columns``.
    zarr_format : 2 or 3; 3 for arrays open in Python.
    in_memory : the values are in this process's memory and are read without a copy. Such data are
        not read on a cluster, and not checked for changes.
    copied : reading a block copies it: its rows are assembled from several dimensions, or picked.
    sparsity : of sparse data, which ``rows.read`` returns as CSR; None for dense data.
    held_bytes : memory that the source itself takes.
    """

    dtype: np.dtype[Any]
    chunk_rows: int
    chunk_columns: int
    shard_rows: int
    chunk_cells: int = 0
    zarr_format: int = 3
    in_memory: bool = False
    copied: bool = False
    sparsity: Sparsity | None = None
    held_bytes: int = 0

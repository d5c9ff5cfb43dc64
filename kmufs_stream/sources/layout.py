"""How the values of a table are stored: chunks, shards, and the entries of sparse data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

Block = NDArray[Any] | csr_array


def dense(block: Block) -> NDArray[Any]:
    """A block as a dense array; a dense one as it is."""
    return block.toarray() if isinstance(block, csr_array) else block


def joined_rows(pieces: Sequence[Block]) -> Block:
    """Blocks, all dense or all CSR, one below the other."""
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
    entry_bytes : a stored value and its column number.
    chunk_entries : the smallest run of entries that can be decoded alone.
    whole : entries before each row of the source, where only some of its rows are taken.
    turn : what to type to have by rows what is stored by columns; "" for what is by rows.
    """

    indptr: NDArray[np.int64]
    entry_bytes: int
    chunk_entries: int
    whole: NDArray[np.int64] | None = None
    turn: str = ""

    def fullest(self, rows: int) -> int:
        """Entries of the fullest block, where each holds ``rows`` rows. O(n / rows)."""
        return _fullest(self.indptr, rows)

    def most_read(self, rows: int) -> int:
        """Upper bound of the entries decoded together for such a block. O(n / rows)."""
        return self.fullest(rows) if self.whole is None else 2 * _fullest(self.whole, rows)

    def of_rows(self, index: NDArray[np.int64]) -> Sparsity:
        """Where the entries of the rows ``index``, ascending, lie; read about as many at a time."""
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
    dtype : numpy.dtype
        On disk, of the values that ``rows.take`` yields.
    chunk_rows, chunk_columns : int
        The smallest piece that can be decoded alone.
    shard_rows : int
        Rows of the smallest piece that can be written alone (``chunk_rows`` unsharded).
    chunk_cells : int
        Numbers in the smallest piece that can be decoded alone; 0 for ``chunk_rows *
        chunk_columns``.
    zarr_format : int
        2 or 3, the format of the store; 3 for arrays open in Python.
    in_memory : bool
        The values are in this process's memory, where reading copies nothing; then no cluster
        reads them, and they are not looked at for changes.
    copied : bool
        Reading a block takes a copy: its rows are put together from more dimensions, or from
        some of the rows.
    sparsity : Sparsity or None
        Of sparse data, whose blocks ``rows.read`` yields as CSR; None for dense data.
    held_bytes : int
        Memory that the source itself takes, while open or once it is read.
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

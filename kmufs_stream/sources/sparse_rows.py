"""Read rows of sparse matrices stored as values, indices and indptr, as AnnData and 10x do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from kmufs_stream.sources.layout import Sparsity
from kmufs_stream.storage.chunks import readable

COUNTED_AT_ONCE = 2**22  # entries of CSC
INT32 = np.iinfo(np.int32).max


class Stored(Protocol):
    """A one-dimensional array on disk: a ``zarr.Array``, or an ``HDF5Array``."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> Any: ...

    @property
    def chunks(self) -> tuple[int, ...]: ...

    def __getitem__(self, region: Any, /) -> Any: ...


class CSRRows:
    """Rows of a matrix stored by rows (CSR); a block is a run of entries.

    Parameters
    ----------
    data, indices : entries on disk.
    indptr : (n + 1,) int64, in memory.
    shape : (n, p).
    place : where the matrix is stored, for people.
    """

    def __init__(
        self,
        data: Stored,
        indices: Stored,
        indptr: NDArray[np.int64],
        shape: tuple[int, int],
        place: str,
    ) -> None:
        self._data, self._indices, self._indptr = data, indices, indptr
        self._shape, self._place = shape, place

    def read(self, start: int, stop: int) -> csr_array:
        indptr = self._indptr[start : stop + 1]
        first, last = (int(indptr[0]), int(indptr[-1])) if len(indptr) else (0, 0)
        with readable(f"rows {start}..{stop - 1} of {self._place}"):
            parts = (self._data[first:last], self._indices[first:last], indptr - first)
            block: csr_array = _canonical(csr_array, parts, (len(indptr) - 1, self._shape[1]))
        return block

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        picked: NDArray[Any] = self.read(start, stop)[:, columns].toarray()
        return picked

    @property
    def held_bytes(self) -> int:
        """Upper bound of the memory that the rows take."""
        return self._indptr.nbytes

    def sparsity(self) -> Sparsity:
        """Where the entries lie; nothing is read."""
        return self._sparsity(self._indptr)

    def _sparsity(self, indptr: NDArray[np.int64]) -> Sparsity:
        data, indices = self._data, self._indices
        entry = data.dtype.itemsize + indices.dtype.itemsize
        return Sparsity(indptr, entry, max(data.chunks[0], indices.chunks[0], 1))


class CSCRows(CSRRows):
    """Rows of a matrix stored by columns (CSC), read as a whole and converted in memory once.

    ``indptr`` is (p + 1,).
    """

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._by_rows: csr_array | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in ("_by_rows", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._by_rows, self._lock = None, threading.Lock()

    def read(self, start: int, stop: int) -> csr_array:
        with self._lock:
            if self._by_rows is None:
                with readable(self._place):
                    parts = (self._data[:], self._indices[:], self._indptr)
                    self._by_rows = _canonical(csc_array, parts, self._shape).tocsr()
        return self._by_rows[start:stop]

    def sparsity(self) -> Sparsity:
        """Where the entries lie, row by row: reads the row numbers of all entries."""
        n = self._shape[0]
        counts = np.zeros(n, np.int64)
        for a in range(0, int(self._indptr[-1]), COUNTED_AT_ONCE):
            with readable(self._place):
                rows = np.asarray(self._indices[a : a + COUNTED_AT_ONCE])
                counts += np.bincount(rows, minlength=n)
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        return self._sparsity(indptr)

    @property
    def held_bytes(self) -> int:
        """Upper bound of the memory to convert: entries as stored, sorted, and by rows."""
        entry = int(self._data.dtype.itemsize) + max(int(self._indices.dtype.itemsize), 8)
        return super().held_bytes + 3 * int(self._indptr[-1]) * entry + 8 * self._shape[0]


def read_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of sparse data in scipy: native, and not half precision."""
    half = dtype.kind == "f" and dtype.itemsize == 2
    return np.dtype(np.float32) if half else dtype.newbyteorder("=")


def _canonical(
    kind: Callable[..., Any], parts: tuple[Any, Any, NDArray[np.int64]], shape: tuple[int, int]
) -> Any:
    """Check entries, and bring them into native byte order, sorted and without duplicates."""
    data, indices, indptr = parts
    small = len(data) <= INT32 and max(shape) <= INT32
    number = np.int32 if small else np.int64
    data = np.asarray(data)
    made = kind(
        (
            data.astype(read_dtype(data.dtype), copy=False),
            np.asarray(indices).astype(number, copy=False),
            indptr.astype(number),
        ),
        shape=shape,
    )
    made.check_format(full_check=True)
    made.sum_duplicates()
    return made

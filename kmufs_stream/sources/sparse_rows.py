"""Sparse matrices as AnnData, and 10x before it, store them: values, indices and indptr."""

from __future__ import annotations

import contextlib
import json
import shlex
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from kmufs_stream.errors import BrokenError
from kmufs_stream.sources.layout import Sparsity
from kmufs_stream.storage.places import Place

COUNTED_AT_ONCE = 2**22  # column-wise entries whose rows are counted at a time
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
    """Rows of a matrix stored by rows (CSR): a run of entries per block.

    Parameters
    ----------
    data, indices : entries on disk.
    indptr : (n + 1,) int64, in memory.
    p : features.
    place : where they lie, for people.
    """

    def __init__(
        self, data: Stored, indices: Stored, indptr: NDArray[np.int64], p: int, place: str
    ) -> None:
        self._data, self._indices, self._indptr = data, indices, indptr
        self._p, self._place = p, place

    def read(self, start: int, stop: int) -> csr_array:
        """See Rows."""
        indptr = self._indptr[start : stop + 1]
        first, last = (int(indptr[0]), int(indptr[-1])) if len(indptr) else (0, 0)
        with _sound(f"rows {start}..{stop - 1} of {self._place}"):
            parts = (self._data[first:last], self._indices[first:last], indptr - first)
            block: csr_array = _canonical(csr_array, parts, (len(indptr) - 1, self._p))
        return block

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        """See Rows."""
        picked: NDArray[Any] = self.read(start, stop)[:, columns].toarray()
        return picked

    def sparsity(self) -> Sparsity:
        """Where the entries lie; nothing is read."""
        return _sparsity(self._data, self._indices, self._indptr)


class CSCRows:
    """Rows of a matrix stored by columns (CSC): read whole, once, and turned in memory.

    Parameters are those of CSRRows, but that ``indptr`` is (p + 1,).
    """

    def __init__(
        self, data: Stored, indices: Stored, indptr: NDArray[np.int64], n: int, place: str
    ) -> None:
        self._data, self._indices, self._indptr = data, indices, indptr
        self._n, self._place = n, place
        self._turned: csr_array | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in ("_turned", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._turned, self._lock = None, threading.Lock()

    def read(self, start: int, stop: int) -> csr_array:
        """See Rows."""
        return self._rows()[start:stop]

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        """See Rows."""
        picked: NDArray[Any] = self._rows()[start:stop][:, columns].toarray()
        return picked

    def _rows(self) -> csr_array:
        with self._lock:
            if self._turned is None:
                with _sound(self._place):
                    parts = (self._data[:], self._indices[:], self._indptr)
                    shape = (self._n, len(self._indptr) - 1)
                    self._turned = _canonical(csc_array, parts, shape).tocsr()
            return self._turned

    def sparsity(self) -> Sparsity:
        """Where the entries lie, row by row: reads the row numbers of all entries."""
        counts = np.zeros(self._n, np.int64)
        for a in range(0, int(self._indptr[-1]), COUNTED_AT_ONCE):
            with _sound(self._place):
                rows = np.asarray(self._indices[a : a + COUNTED_AT_ONCE])
                counts += np.bincount(rows, minlength=self._n)
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        return _sparsity(self._data, self._indices, indptr)

    @property
    def held_bytes(self) -> int:
        """Upper bound of what turning takes: the entries as stored, sorted, and turned."""
        entry = int(self._data.dtype.itemsize) + max(int(self._indices.dtype.itemsize), 8)
        return 3 * int(self._indptr[-1]) * entry + 8 * self._n


def _canonical(
    kind: Callable[..., Any], parts: tuple[Any, Any, NDArray[np.int64]], shape: tuple[int, int]
) -> Any:
    """Checked, in native byte order, with one entry per place and column numbers ascending."""
    data, indices, indptr = parts
    small = len(data) <= INT32 and max(shape) <= INT32
    number = np.int32 if small else np.int64
    data = np.asarray(data)
    if data.dtype.kind == "f" and data.dtype.itemsize == 2:  # scipy knows no half precision
        data = data.astype(np.float32)
    made = kind(
        (
            data.astype(data.dtype.newbyteorder("="), copy=False),
            np.asarray(indices).astype(number, copy=False),
            indptr.astype(number),
        ),
        shape=shape,
    )
    made.check_format(full_check=True)
    made.sum_duplicates()
    return made


def _sparsity(data: Stored, indices: Stored, indptr: NDArray[np.int64]) -> Sparsity:
    entry = data.dtype.itemsize + indices.dtype.itemsize
    return Sparsity(indptr, entry, max(data.chunks[0], indices.chunks[0], 1))


def turn_command(place: Place, group: str | None, layer: str | None, *, raw: bool) -> str:
    """What to type to have a matrix by rows that AnnData stores by columns; it takes memory.

    A command for a file or folder of its own, else what to do to the object.
    """
    held = "a.X" if layer is None else f"a.layers[{_quoted(layer)}]"
    turn = f"{held} = {held}.tocsr()"
    if raw:
        turn = "r = a.raw.to_adata(); r.X = r.X.tocsr(); a.raw = r"
    if group or not isinstance(place, Path) or place.suffix == ".zip":
        return f"in Python, a being the AnnData object: {turn}"
    kind = "h5ad" if place.is_file() else "zarr"
    read = f"a = anndata.read_{kind}({_quoted(str(place))})"
    write = f"a.write_{kind}({_quoted(f'{place.stem}.csr.{kind}')})"
    return shlex.join(["python", "-c", f"import anndata; {read}; {turn}; {write}"])


def _quoted(text: str) -> str:
    """A text in Python, in quotes that need none around them in a shell."""
    return json.dumps(text, ensure_ascii=False)


@contextlib.contextmanager
def _sound(what: str) -> Iterator[None]:
    """Say of whatever fails inside that ``what`` cannot be read."""
    try:
        yield
    except BrokenError:
        raise
    except Exception as error:
        raise broken(what, error) from error


def broken(what: str, error: Exception) -> BrokenError:
    """What is told of stored values that cannot be read."""
    return BrokenError(
        "corrupt_chunk",
        f"{what} cannot be read: {type(error).__name__}: {error}",
        "Restore them from the data's origin (or write the store again), then rerun.",
    )

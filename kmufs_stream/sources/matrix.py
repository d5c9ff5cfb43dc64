"""The labelled samples x features matrix that every source yields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Protocol

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from kmufs_stream.errors import RequestError, did_you_mean, listed
from kmufs_stream.sources.id_columns import beside_real
from kmufs_stream.storage.places import Place

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


class Rows(Protocol):
    """Row-wise access to the values of a matrix; picklable, safe to call from many threads."""

    def read(self, start: int, stop: int) -> Block:
        """Values of rows ``start:stop`` as numbers, all p features, decoded; CSR where sparse."""

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        """Rows ``start:stop`` of the given columns as they are stored, not decoded."""


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
class Matrix:
    """A samples x features matrix of numbers, its labels and coordinates, not yet read.

    :func:`kmufs_stream.open_matrix` makes it. What xarray can hold lazily needs no more than
    ``replace(open_dataarray(array), source=..., place=..., inventory=...)``: see
    :func:`kmufs_stream.sources.arrays.open_dataarray`.

    Attributes
    ----------
    rows : Rows
        Reader of the values.
    shape : (int, int)
        (n, p), samples and features.
    dtype : numpy.dtype
        Of the values that ``rows.read`` yields.
    stored_dtype : numpy.dtype
        Of those that ``rows.take`` yields, the one on disk.
    chunk_rows, chunk_columns : int
        The smallest piece that can be decoded alone.
    shard_rows : int
        Rows of the smallest piece that can be written alone (``chunk_rows`` unsharded).
    name : str
        The data variable's name.
    sample_dim, feature_dim : str
        Dimension names.
    transposed : bool
        The store holds features x samples.
    frame : xarray.Dataset
        Coordinates along either dimension, and attributes of the whole; not the values.
    attrs : dict
        Attributes of the data variable.
    labels : array, shape (p,), or None
        Names of the features.
    source : str
        Where the data is, for people.
    zarr_format : int
        2 or 3, the format of the store; 3 for arrays open in Python.
    in_memory : bool
        The values are in this process's memory, where reading copies nothing; then no cluster
        reads them, and they are not looked at for changes.
    encoded : bool
        ``take``, ``frame`` and ``attrs`` are as a store encodes them (CF: packed numbers, times as
        numbers), and a result is written so; else as xarray decodes them.
    inventory : callable
        Lists what identifies the stored data beyond its shape: first a text of their metadata,
        then one for each stored piece, with its size and time. Called before and after reading, to
        notice changes; raises BrokenError if pieces are missing. May take a while.
    chunk_cells : int
        Numbers in the smallest piece that can be decoded alone; 0 for ``chunk_rows *
        chunk_columns``.
    stacked : bool
        Rows are put together from an array of more dimensions, or from some of the rows, which
        takes a copy.
    guessed : bool
        Nobody said which dimension holds the samples.
    asked : int64 array or None
        Source indices, ascending, of the features that take part; None for all.
    sparsity : Sparsity or None
        Of sparse data, whose blocks ``rows.read`` yields as CSR; None for dense data.
    held_bytes : int
        Memory that the source itself takes, while open or once it is read.
    transforms : tuple of str
        What ``rows.read`` has applied to the stored values, in this order.
    where : str
        The condition that its samples meet, where one was asked for.
    feature_table : str or None
        Where an AnnData store keeps what it knows of the features.
    place : path, address, Zarr store or None
        Of the store that holds the data, which no output may overwrite.
    beside : xarray.Dataset
        Variables beside the data that lie along the samples, as coordinates; encoded as ``frame``
        is, and lazy.
    dtypes : sequence of dtypes, length p or 0
        Of each feature, where they have dtypes of their own.
    located : dict
        What was said of where in the data the table is: those parameters of
        :func:`kmufs_stream.open_matrix` that were given, as plain JSON types.
    """

    rows: Rows
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    stored_dtype: np.dtype[Any]
    chunk_rows: int
    chunk_columns: int
    shard_rows: int
    name: str
    sample_dim: str
    feature_dim: str
    frame: xr.Dataset
    source: str
    inventory: Callable[[], list[str]]
    transposed: bool = False
    attrs: dict[str, Any] = field(default_factory=dict)
    labels: NDArray[Any] | None = None
    zarr_format: int = 3
    in_memory: bool = False
    encoded: bool = False
    chunk_cells: int = 0
    stacked: bool = False
    guessed: bool = False
    asked: NDArray[np.int64] | None = None
    sparsity: Sparsity | None = None
    held_bytes: int = 0
    transforms: tuple[str, ...] = ()
    where: str = ""
    feature_table: str | None = None
    place: Place | None = None
    beside: xr.Dataset = field(default_factory=xr.Dataset)
    dtypes: tuple[np.dtype[Any], ...] = ()
    located: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.shape[1] == 0:
            raise RequestError(
                "no_features",
                f"{self.name!r} in {self.source} has no features: its shape is {self.shape}.",
                "A samples x features table is needed.",
            )

    def __repr__(self) -> str:
        n, p = self.shape
        part = "" if self.asked is None else f" ({self.width:,} take part)"
        return (
            f"<Matrix: {n:,} samples x {p:,} features{part} of {self.dtype}, {self.name!r} in "
            f"{self.source}>"
        )

    @property
    def width(self) -> int:
        """How many features take part."""
        return self.shape[1] if self.asked is None else len(self.asked)

    @property
    def hint(self) -> str | None:
        """What to say where samples and features may have been mixed up."""
        n, p = self.shape
        if not self.guessed or p <= n:
            return None
        return (
            f"wider than tall, {n:,} samples x {p:,} features: if the samples lie along "
            f"{self.feature_dim!r}, say `sample_dims={self.feature_dim!r}`"
        )

    @property
    def doubt(self) -> str | None:
        """What to say where features look as if they described the samples."""
        if not self.dtypes or self.labels is None:
            return None
        asked = range(self.shape[1]) if self.asked is None else self.asked.tolist()
        return beside_real(self.labels, self.dtypes, asked)

    def feature_name(self, index: int) -> str:
        """Feature ``index`` as people are shown it: its label and its number."""
        if self.labels is None:
            return f"feature {index}"
        return f"{plain(self.labels[index])!r} (feature {index})"


@dataclass(frozen=True)
class DenseRows:
    """Rows whose blocks are made dense as they are read."""

    rows: Rows

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """See Rows."""
        return dense(self.rows.read(start, stop))

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        """See Rows."""
        return self.rows.take(start, stop, columns)


def densified(matrix: Matrix) -> Matrix:
    """The matrix with dense blocks, for kernels that know no other."""
    if matrix.sparsity is None:
        return matrix
    return replace(matrix, rows=DenseRows(matrix.rows), sparsity=None)


def plain(value: Any) -> str | int | float | bool:
    """A label as a plain JSON value: numbers stay numbers, times become ISO strings.

    Spans of time are told in the largest unit that fits. Numbers have as few digits as tell them
    from all others of their dtype: 75.1 in float32, not what that is in float64; times no fraction
    of a second where there is none.
    """
    if isinstance(value, np.timedelta64 | timedelta):
        return _span(np.timedelta64(value))
    if isinstance(value, np.datetime64):
        text = str(value)
        return text.rstrip("0").rstrip(".") if "." in text else text
    if hasattr(value, "isoformat"):  # times of other calendars, as cftime has them
        return str(value.isoformat())
    if isinstance(value, np.float16 | np.float32):
        value = float(str(value))
    item = value.item() if isinstance(value, np.generic) else value
    if isinstance(item, bytes):
        return item.decode("utf-8", "replace")
    if isinstance(item, float) and not np.isfinite(item):
        return str(item)
    return item if isinstance(item, str | int | float | bool) else str(item)


def _span(value: np.timedelta64) -> str:
    """A span of time in the largest unit that it is whole in, like ``6 hours``."""
    units = (value.astype(f"m8[{unit}]") for unit in ("D", "h", "m", "s", "ms", "us"))
    return str(next((span for span in units if span == value), value))


BARE_DIMS: tuple[str, ...] = ("sample", "feature")  # of 2-d arrays without names

KINDS = {
    "c": "complex numbers",
    "m": "time spans",
    "M": "times",
    "O": "objects",
    "S": "text",
    "T": "text",
    "U": "text",
}


def is_numeric(dtype: np.dtype[Any]) -> bool:
    """Whether values of this dtype are real numbers."""
    return dtype.kind in "biuf" and dtype.itemsize <= 8


def check_table(name: str, source: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse what is not an array of real numbers of two or more dimensions."""
    if len(shape) < 2:
        raise RequestError(
            "not_2d",
            f"{name!r} in {source} is {len(shape)}-d, of shape {shape}.",
            "A samples x features table is needed; choose another with `variable`, or say "
            "`features_from_variables=True` where every variable of a dataset is a feature.",
        )
    if not is_numeric(dtype):
        raise RequestError(
            "bad_dtype",
            f"{name!r} in {source} holds {KINDS.get(dtype.kind, 'values')} of dtype {dtype}.",
            "Real numbers are needed: bool, integer or floating point."
            + (" Take the real part or the modulus first." if dtype.kind == "c" else ""),
        )


def feature_labels(frame: xr.Dataset, feature_dim: str) -> NDArray[Any] | None:
    """The names of the features: their index coordinate, else their only textual coordinate."""
    along = [name for name, c in frame.coords.items() if c.dims == (feature_dim,)]
    if feature_dim not in along:
        along = [name for name in along if frame[name].dtype.kind in "OUST"]
    if feature_dim in along:
        along = [feature_dim]
    return decoded_values(frame[along[0]].variable) if len(along) == 1 else None


def feature_texts(matrix: Matrix) -> NDArray[np.object_] | None:
    """The names of the features as text, or None: what tables are matched by."""
    if matrix.labels is None:
        return None
    texts = (str(plain(label)) for label in matrix.labels)
    return np.fromiter(texts, dtype=object, count=len(matrix.labels))


def labelled(matrix: Matrix, coordinate: str) -> Matrix:
    """The matrix with its features named by one of their coordinates."""
    along = [str(c) for c, v in matrix.frame.coords.items() if v.dims == (matrix.feature_dim,)]
    if coordinate not in along:
        raise RequestError(
            "unknown_labels",
            f"{matrix.source} has no labels {coordinate!r} of its features.",
            f"{did_you_mean(coordinate, along)}There are: {listed(along)}.",
        )
    return replace(matrix, labels=decoded_values(matrix.frame[coordinate].variable))


def decoded_values(stored: xr.Variable) -> NDArray[Any]:
    """A coordinate's values: times and packed numbers as what they stand for."""
    try:
        return np.asarray(xr.decode_cf(xr.Dataset({"labels": stored}))["labels"].values)
    except ValueError:  # time units that nobody knows: the numbers then are the labels
        return np.asarray(stored.values)


def joined(names: Sequence[Any], rows: Iterable[Iterable[Any]], count: int) -> NDArray[Any]:
    """Labels of stacked features: each dimension and the label there, like ``lat=75 lon=2.5``."""
    texts = (
        " ".join(f"{name}={_short(plain(x))}" for name, x in zip(names, levels, strict=True))
        for levels in rows
    )
    return np.fromiter(texts, dtype=object, count=count)


def _short(label: str | int | float | bool) -> str:
    whole = isinstance(label, float) and label.is_integer() and abs(label) < 2**53
    return str(int(label) if whole else label)

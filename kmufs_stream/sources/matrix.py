"""The labelled samples x features matrix that every source yields."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.sparse import csr_array

from kmufs_stream.errors import RequestError

Block = NDArray[Any] | csr_array


def dense(block: Block) -> NDArray[Any]:
    """A block as a dense array; a dense one as it is."""
    return block.toarray() if isinstance(block, csr_array) else block


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
    """

    indptr: NDArray[np.int64]
    entry_bytes: int
    chunk_entries: int

    def fullest(self, rows: int) -> int:
        """Entries of the fullest block, where each holds ``rows`` rows. O(n / rows)."""
        cuts = np.append(self.indptr[:-1:rows], self.indptr[-1])
        return int(np.diff(cuts).max(initial=0))


@dataclass(frozen=True)
class Matrix:
    """A samples x features matrix of numbers, its labels and coordinates, not yet read.

    Attributes
    ----------
    rows : reader of the values.
    shape : (n, p), samples and features.
    dtype : dtype of the values that ``rows.read`` yields.
    stored_dtype : dtype that ``rows.take`` yields, the one on disk.
    chunk_rows, chunk_columns : the smallest piece that can be decoded alone.
    shard_rows : rows of the smallest piece that can be written alone (``chunk_rows`` unsharded).
    name : the data variable's name.
    sample_dim, feature_dim : dimension names.
    transposed : the store holds features x samples.
    frame : coordinates, and attributes of the whole, encoded as they are stored.
    attrs : attributes of the data variable, encoded as they are stored.
    labels : (p,) names of the features, or None.
    source : where the data is, for people.
    zarr_format : 2 or 3, the format of the store; 3 for arrays open in Python.
    in_memory : reading copies nothing.
    encoded : values, coordinates and attributes stand as a store encodes them (CF).
    inventory : lists what identifies the stored data beyond its shape (metadata and chunks);
        raises BrokenError if stored pieces are missing. May take a while on a large store.
    sparsity : of sparse data, whose blocks ``rows.read`` yields as CSR; None for dense data.
    held_bytes : memory that the source itself takes, while open or once it is read.
    transforms : what ``rows.read`` has applied to the stored values, in this order.
    feature_table : where an AnnData store keeps what it knows of the features.
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
    transposed: bool
    frame: xr.Dataset
    attrs: dict[str, Any]
    labels: NDArray[Any] | None
    source: str
    zarr_format: int
    in_memory: bool
    encoded: bool
    inventory: Callable[[], list[str]]
    sparsity: Sparsity | None = None
    held_bytes: int = 0
    transforms: tuple[str, ...] = ()
    feature_table: str | None = None

    def __post_init__(self) -> None:
        if self.shape[1] == 0:
            raise RequestError(
                "no_features",
                f"{self.name!r} in {self.source} has no features: its shape is {self.shape}.",
                "A samples x features table is needed.",
            )

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
    """A label as a plain JSON value: numbers stay numbers, times become ISO strings."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return str(value)
    item = value.item() if isinstance(value, np.generic) else value
    if isinstance(item, bytes):
        return item.decode("utf-8", "replace")
    if isinstance(item, float) and not np.isfinite(item):
        return str(item)
    return item if isinstance(item, str | int | float | bool) else str(item)


def describe(metadata: Any) -> str:
    """Canonical text of a JSON-like metadata document, for fingerprints."""
    return json.dumps(metadata, sort_keys=True, default=str)


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
    """Refuse what is not a 2-d table of real numbers."""
    if len(shape) != 2:
        stacking = (
            "Stacking dimensions is planned; until then write a stacked 2-d variable "
            "(xarray: da.stack(feature=[...])), or choose another with --variable."
            if len(shape) > 2
            else "A samples x features table is needed; choose another with --variable."
        )
        raise RequestError(
            "not_2d", f"{name!r} in {source} is {len(shape)}-d, of shape {shape}.", stacking
        )
    if not is_numeric(dtype):
        raise RequestError(
            "bad_dtype",
            f"{name!r} in {source} holds {KINDS.get(dtype.kind, 'values')} of dtype {dtype}.",
            "Real numbers are needed: bool, integer or floating point."
            + (" Take the real part or the modulus first." if dtype.kind == "c" else ""),
        )


def orient(
    dims: tuple[str, str], sample_dim: str | None, feature_dim: str | None, name: str
) -> tuple[str, str, bool]:
    """Which dimension holds the samples: the first, unless either is named.

    Returns the sample dimension, the feature dimension, and whether the array is transposed.
    """
    for option, wanted in (("--sample-dim", sample_dim), ("--feature-dim", feature_dim)):
        if wanted is not None and wanted not in dims:
            raise RequestError(
                "unknown_dimension",
                f"{name!r} has no dimension {wanted!r} ({option}).",
                f"Its dimensions are {dims[0]!r} and {dims[1]!r}.",
            )
    if sample_dim is not None and sample_dim == feature_dim:
        raise RequestError(
            "same_dimension",
            f"--sample-dim and --feature-dim are both {sample_dim!r}.",
            f"The dimensions are {dims[0]!r} and {dims[1]!r}; naming one is enough.",
        )
    transposed = sample_dim == dims[1] or feature_dim == dims[0]
    return (dims[1], dims[0], True) if transposed else (dims[0], dims[1], False)


def feature_labels(frame: xr.Dataset, feature_dim: str) -> NDArray[Any] | None:
    """The names of the features: their index coordinate, else their only textual coordinate."""
    along = [name for name, c in frame.coords.items() if c.dims == (feature_dim,)]
    if feature_dim not in along:
        along = [name for name in along if frame[name].dtype.kind in "OUST"]
    if feature_dim in along:
        along = [feature_dim]
    return _decoded(frame, str(along[0])) if len(along) == 1 else None


def labelled(matrix: Matrix, coordinate: str) -> Matrix:
    """The matrix with its features named by one of their coordinates."""
    along = [str(c) for c, v in matrix.frame.coords.items() if v.dims == (matrix.feature_dim,)]
    if coordinate not in along:
        raise RequestError(
            "unknown_labels",
            f"{matrix.source} has no labels {coordinate!r} of its features.",
            "There are: " + (", ".join(along) or "none") + ".",
        )
    return replace(matrix, labels=_decoded(matrix.frame, coordinate))


def _decoded(frame: xr.Dataset, coordinate: str) -> NDArray[Any]:
    stored = frame[coordinate].variable
    try:
        return np.asarray(xr.decode_cf(xr.Dataset({"labels": stored}))["labels"].values)
    except ValueError:  # time units that nobody knows: the numbers then are the labels
        return np.asarray(stored.values)

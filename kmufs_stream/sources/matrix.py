"""The labelled samples x features matrix that every source yields."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kmufs_stream.errors import RequestError


class Rows(Protocol):
    """Row-wise access to the values of a matrix; picklable, safe to call from many threads."""

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Values of rows ``start:stop`` as numbers, all p features, decoded."""

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        """Rows ``start:stop`` of the given columns as they are stored, not decoded."""


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
    chunk_cells : numbers in the smallest piece that can be decoded alone; 0 for
        ``chunk_rows * chunk_columns``.
    stacked : rows are put together from an array of more dimensions, which takes a copy.
    guessed : nobody said which dimension holds the samples.
    asked : source indices, ascending, of the features that take part; None for all.
    held_bytes : what the reader itself keeps in memory.
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
    chunk_cells: int = 0
    stacked: bool = False
    guessed: bool = False
    asked: NDArray[np.int64] | None = None
    held_bytes: int = 0

    def __post_init__(self) -> None:
        if self.shape[1] == 0:
            raise RequestError(
                "no_features",
                f"{self.name!r} in {self.source} has no features: its shape is {self.shape}.",
                "A samples x features table is needed.",
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
            f"{self.feature_dim!r}, say --sample-dims {self.feature_dim}"
        )

    def feature_name(self, index: int) -> str:
        """Feature ``index`` as people are shown it: its label and its number."""
        if self.labels is None:
            return f"feature {index}"
        return f"{plain(self.labels[index])!r} (feature {index})"


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
            "A samples x features table is needed; choose another with --variable, or say "
            "--features-from-variables where every variable of a dataset is a feature.",
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
    if len(along) != 1:
        return None
    return decoded_values(frame[along[0]].variable)


def decoded_values(stored: xr.Variable) -> NDArray[Any]:
    """A coordinate's values: times and packed numbers as what they stand for."""
    try:
        return np.asarray(xr.decode_cf(xr.Dataset({"labels": stored}))["labels"].values)
    except ValueError:  # time units that nobody knows: the numbers then are the labels
        return np.asarray(stored.values)


def joined(rows: Iterable[Iterable[Any]], count: int) -> NDArray[Any]:
    """Labels of stacked features: the labels of the dimensions, one after the other."""
    texts = (", ".join(str(plain(x)) for x in levels) for levels in rows)
    return np.fromiter(texts, dtype=object, count=count)

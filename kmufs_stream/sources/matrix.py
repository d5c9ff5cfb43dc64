"""The labelled samples x features matrix that every source yields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kmufs_stream.errors import RequestError, Text, did_you_mean, listed
from kmufs_stream.sources.id_columns import note_of_whole_numbers
from kmufs_stream.sources.layout import Block, Layout, dense
from kmufs_stream.sources.names import decoded_values, plain
from kmufs_stream.storage.places import Place


class Rows(Protocol):
    """Row-wise access to the values of a matrix; picklable, safe to call from many threads."""

    def read(self, start: int, stop: int) -> Block:
        """Read and decode rows ``start:stop`` of all features: (rows, p), CSR if sparse."""

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        """Read rows ``start:stop`` of some columns as stored, without decoding them."""


@dataclass(frozen=True)
class ChangedRows:
    """Rows whose blocks are changed as they are read; ``take`` returns them as stored.

    Parameters
    ----------
    rows : what is read.
    change : the new block, from one that was read and the number of its first row; picklable.
    """

    rows: Rows
    change: Callable[[Any, int], Block]

    def read(self, start: int, stop: int) -> Block:
        return self.change(self.rows.read(start, stop), start)

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        return self.rows.take(start, stop, columns)


@dataclass(frozen=True, eq=False, repr=False)
class Metadata:
    """Names, coordinates, attributes and encoding of a table.

    Attributes
    ----------
    name : of the data variable.
    sample_dim, feature_dim : names of the dimensions.
    coords : coordinates along either dimension, and attributes of the dataset.
    transposed : the store holds features x samples.
    attrs : attributes of the data variable.
    encoded : ``rows.take``, ``coords`` and ``attrs`` are encoded by CF conventions (packed numbers,
        times as numbers), and results are written so; otherwise as xarray decodes them.
    beside : other variables along the samples, lazy, encoded as ``coords`` are.
    """

    name: str
    sample_dim: str
    feature_dim: str
    coords: xr.Dataset
    transposed: bool = False
    attrs: dict[str, Any] = field(default_factory=dict)
    encoded: bool = False
    beside: xr.Dataset = field(default_factory=xr.Dataset)


@dataclass(frozen=True, eq=False, repr=False)
class Provenance:
    """Where a table comes from.

    Attributes
    ----------
    source : where the data are, for people.
    inventory : lists what identifies the stored data: their metadata as text, then a text for each
        stored chunk, with its size and time. Called before and after reading, to notice changes;
        raises BrokenError for missing chunks. May take a while.
    place : the store that holds the data, which no output may overwrite.
    located : parameters of :func:`kmufs_stream.open_matrix` that chose the table, as JSON types.
    where : the condition that its samples meet, or "".
    feature_table : group of an AnnData store that describes the features.
    """

    source: str
    inventory: Callable[[], list[str]]
    place: Place | None = None
    located: dict[str, Any] = field(default_factory=dict)
    where: str = ""
    feature_table: str | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Matrix:
    """A samples x features table of numbers, not yet read.

    :func:`kmufs_stream.open_matrix` makes it. To add a source that xarray can hold lazily, call
    :func:`kmufs_stream.sources.arrays.open_dataarray` and replace the provenance.

    Attributes
    ----------
    rows : Rows
        Reads the values.
    shape : (int, int)
        (n, p), samples and features.
    dtype : numpy.dtype
        That of ``rows.read``.
    labels : array, shape (p,), or None
        Names of the features.
    layout : Layout
        How the values are stored.
    metadata : Metadata
        Names, coordinates and attributes.
    provenance : Provenance
        Where the data come from.
    asked : int64 array or None
        Source indices, ascending, of the features that take part; None for all.
    transforms : tuple of str
        Transforms that ``rows.read`` applies, in this order.
    dtypes : sequence of dtypes, length p or 0
        Of each feature, where these differ.
    guessed : bool
        The user did not say which dimension holds the samples.
    """

    rows: Rows
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    labels: NDArray[Any] | None
    layout: Layout
    metadata: Metadata
    provenance: Provenance
    asked: NDArray[np.int64] | None = None
    transforms: tuple[str, ...] = ()
    dtypes: tuple[np.dtype[Any], ...] = ()
    guessed: bool = False

    def __post_init__(self) -> None:
        if self.shape[1] == 0:
            raise RequestError(
                "no_features",
                f"{self.metadata.name!r} in {self.source} has no features: its shape is "
                f"{self.shape}.",
                "A samples x features table is needed.",
            )

    def __repr__(self) -> str:
        n, p = self.shape
        part = "" if self.asked is None else f" ({self.width:,} take part)"
        return (
            f"<Matrix: {n:,} samples x {p:,} features{part} of {self.dtype}, "
            f"{self.metadata.name!r} in {self.source}>"
        )

    @property
    def source(self) -> str:
        """Where the data are, for people."""
        return self.provenance.source

    @property
    def inputs(self) -> list[Place]:
        """The store that holds the data, if one does: no output may overwrite it."""
        return [] if self.provenance.place is None else [self.provenance.place]

    @property
    def width(self) -> int:
        """Number of features that take part."""
        return self.shape[1] if self.asked is None else len(self.asked)

    @property
    def hint(self) -> str | None:
        """Warning that samples and features may be mixed up, if so."""
        n, p = self.shape
        if not self.guessed or p <= n:
            return None
        return Text(
            "wider than tall, {:,} samples x {:,} features: if the samples lie along "
            "{!r}, say {sample_dims}",
            n,
            p,
            self.metadata.feature_dim,
            sample_dims=self.metadata.feature_dim,
        )

    @property
    def doubt(self) -> str | None:
        """Warning about features that may describe the samples, if there are any."""
        if not self.dtypes or self.labels is None:
            return None
        asked = range(self.shape[1]) if self.asked is None else self.asked.tolist()
        return note_of_whole_numbers(self.labels, self.dtypes, asked)

    def first_labels(self, count: int) -> list[str | int | float | bool] | None:
        """The first so many labels, in plain JSON types; None without any."""
        return None if self.labels is None else [plain(label) for label in self.labels[:count]]

    def feature_name(self, index: int) -> str:
        """Describe a feature by its name and its number."""
        if self.labels is None:
            return f"feature {index}"
        return f"{plain(self.labels[index])!r} (feature {index})"


def densified(matrix: Matrix) -> Matrix:
    """Return the matrix with dense blocks, for kernels that take no others."""
    if matrix.layout.sparsity is None:
        return matrix
    layout = replace(matrix.layout, sparsity=None)
    return replace(matrix, rows=ChangedRows(matrix.rows, _dense), layout=layout)


def _dense(block: Block, start: int) -> NDArray[Any]:
    return dense(block)


BARE_DIMS: tuple[str, ...] = ("sample", "feature")  # of 2-d arrays without names


def is_numeric(dtype: np.dtype[Any]) -> bool:
    """Whether values of this dtype are real numbers."""
    return dtype.kind in "biuf" and dtype.itemsize <= 8


def check_table(what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise RequestError unless ``what`` is an array of real numbers, of two or more dimensions."""
    if len(shape) < 2:
        raise RequestError(
            "not_2d",
            f"{what} is {len(shape)}-d, of shape {shape}.",
            Text(
                "A samples x features table is needed. In a dataset, choose another variable with "
                "{variable}, or give {features_from_variables} if every variable is a feature.",
                features_from_variables=True,
            ),
        )
    if not is_numeric(dtype):
        raise RequestError(
            "bad_dtype",
            f"{what} holds values of dtype {dtype}.",
            "Real numbers are needed: bool, integer or floating point.",
        )


def labelled(matrix: Matrix, coordinate: str) -> Matrix:
    """Return the matrix with its features named by one of their coordinates."""
    coords, dim = matrix.metadata.coords, matrix.metadata.feature_dim
    along = [str(name) for name, c in coords.coords.items() if c.dims == (dim,)]
    if coordinate not in along:
        raise RequestError(
            "unknown_labels",
            f"{matrix.source} has no labels {coordinate!r} of its features.",
            f"{did_you_mean(coordinate, along)}There are: {listed(along)}.",
        )
    return replace(matrix, labels=decoded_values(coords[coordinate].variable))


def feature_texts(matrix: Matrix) -> NDArray[np.object_] | None:
    """Return the names of the features as text, or None without names."""
    if matrix.labels is None:
        return None
    texts = (str(plain(label)) for label in matrix.labels)
    return np.fromiter(texts, dtype=object, count=len(matrix.labels))

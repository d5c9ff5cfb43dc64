"""A selection that was written before, opened again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kmufs_stream.errors import RequestError
from kmufs_stream.places import Place, absence, is_there, name_of, zarr_root
from kmufs_stream.result import FORMAT, FORMAT_VERSION
from kmufs_stream.sources import Matrix, Rows, open_matrix
from kmufs_stream.sources.matrix import dense
from kmufs_stream.streaming.lloyd import Standard
from kmufs_stream.zarr_io import opened_quietly


@dataclass(frozen=True)
class StoredSelection:
    """What a written selection says, and its columns where it holds them.

    Attributes
    ----------
    k : clusters it was made for.
    selected : (h,) int64 source indices, ascending.
    standard : means and standard deviations of all p features of the source; a feature that was
        excluded has standard deviation 0.
    samples : rows of the source.
    matrix : the selected columns, (n, h), or None.
    """

    k: int
    selected: NDArray[np.int64]
    standard: Standard
    samples: int
    source: str
    matrix: Matrix | None

    def columns(self, whole: Matrix | None) -> Matrix:
        """The selected columns, from the selection itself or else from what it was made from.

        Raises RequestError where neither is there.
        """
        if self.matrix is not None:
            return self.matrix
        if whole is None:
            raise RequestError(
                "no_data",
                f"{self.source} holds no data: it was written with --selection-only.",
                "Give the table that it was made from as --data.",
            )
        return restricted(whole, self.selected)

    def check_made_from(self, whole: Matrix) -> None:
        """Refuse a table that this selection cannot have been made from."""
        expected = (self.samples, len(self.standard.mean))
        if whole.shape != expected:
            raise RequestError(
                "wrong_data",
                f"{self.source} was not made from {whole.source}: that is {whole.shape[0]} x "
                f"{whole.shape[1]}, not {expected[0]} x {expected[1]}.",
                "Give the table that it was made from as --data.",
            )
        ours = None if self.matrix is None else self.matrix.labels
        if ours is None or whole.labels is None:
            return
        theirs = whole.labels[self.selected]
        for index, mine, other in zip(self.selected, ours, theirs, strict=True):
            if str(mine) != str(other):
                raise RequestError(
                    "wrong_data",
                    f"{self.source} was not made from {whole.source}: feature {index} is "
                    f"{other!s} there, not {mine!s}.",
                    "Give the table that it was made from as --data.",
                )


def read_selection(place: Place) -> tuple[xr.Dataset, xr.Dataset]:
    """The root of a written selection and its table of all features, lazily.

    Raises RequestError for anything else.
    """
    source = name_of(place)
    if not is_there(place):
        raise RequestError("not_found", absence(place), "Make it with kmufs-stream select.")
    try:
        with opened_quietly():
            # An index would load the labels of all samples.
            opened = partial(
                xr.open_zarr, zarr_root(place), chunks=None, create_default_indexes=False
            )
            root = opened()
            ours = root.attrs.get("format") == FORMAT
            every = opened(group="all_features") if ours else None
    except Exception as error:
        raise RequestError(
            "not_a_selection",
            f"{source} cannot be read as a selection: {type(error).__name__}: {error}",
            "Make one with kmufs-stream select.",
        ) from error
    if every is None:
        raise RequestError(
            "not_a_selection",
            f"{source} is not a selection.",
            "Give what kmufs-stream select wrote.",
        )
    version = root.attrs.get("format_version")
    if version != FORMAT_VERSION:
        raise RequestError(
            "selection_format",
            f"{source} is a selection of format {version}, this version reads {FORMAT_VERSION}.",
            "Select again, or use the version that wrote it "
            f"({root.attrs.get('version', 'unknown')}).",
        )
    return root, every


def open_selection(place: Place) -> StoredSelection:
    """Open what :func:`kmufs_stream.select` wrote; its data are not read.

    Raises RequestError for anything else.
    """
    source = name_of(place)
    root, every = read_selection(place)
    if root.attrs.get("transforms"):
        raise RequestError(
            "transformed",
            f"{source} was selected from values transformed by {root.attrs['transforms']}; the "
            "columns that it holds are the stored ones.",
            "Only selections from the stored values can be evaluated.",
        )
    usable = every["excluded"].values == ""
    data = list(root.data_vars)
    matrix = None
    if data:
        matrix = open_matrix(
            place,
            variable=str(data[0]),
            feature_dims=str(root["feature_index"].dims[0]),
        )
    return StoredSelection(
        k=int(root.attrs["k"]),
        selected=root["feature_index"].values.astype(np.int64),
        standard=Standard(
            np.nan_to_num(every["mean"].values), np.where(usable, every["std"].values, 0.0)
        ),
        samples=int(root.attrs["samples"]),
        source=source,
        matrix=matrix,
    )


@dataclass(frozen=True)
class ColumnRows:
    """Rows of which only some columns are seen."""

    rows: Rows
    columns: NDArray[np.int64]

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """See Rows."""
        return dense(self.rows.read(start, stop))[:, self.columns]

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        """See Rows."""
        return self.rows.take(start, stop, self.columns[columns])


def restricted(matrix: Matrix, columns: NDArray[np.int64]) -> Matrix:
    """The matrix with these columns alone; all of them are still read."""
    frame = matrix.frame
    if matrix.feature_dim in frame.dims:
        frame = frame.isel({matrix.feature_dim: columns})
    return replace(
        matrix,
        rows=ColumnRows(matrix.rows, columns),
        shape=(matrix.shape[0], len(columns)),
        chunk_columns=matrix.shape[1],
        frame=frame,
        labels=None if matrix.labels is None else matrix.labels[columns],
        in_memory=False,
        chunk_cells=0,
        asked=None,
    )

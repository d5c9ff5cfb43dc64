"""A selection that was written before, opened again."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kmufs_stream.errors import RequestError, Text, listed
from kmufs_stream.sources import Matrix, Rows, open_matrix
from kmufs_stream.sources.layout import dense
from kmufs_stream.sources.names import plain
from kmufs_stream.sources.recognition import recognised, stored_attributes
from kmufs_stream.sources.restrict import keep_samples, samples_meeting, unknown_names
from kmufs_stream.sources.transforms import by_row, transformed
from kmufs_stream.storage.places import Place, check_exists, name_of, zarr_root
from kmufs_stream.storage.provenance import APPLICATION, FORMAT_VERSIONS, SELECTION
from kmufs_stream.storage.zarr_io import open_decoded
from kmufs_stream.streaming.kernels.lloyd import Standard

KINDS = {  # what may be opened, and how it is made again
    SELECTION: ("a selection", "Select again"),
    APPLICATION: ("an applied selection", "Apply the selection again"),
}


@dataclass(frozen=True)
class StoredSelection:
    """What a written selection, or what apply made with one, says, and its columns if it has them.

    Attributes
    ----------
    k : clusters it was made for.
    selected : (h,) int64 source indices.
    standard : means and standard deviations of all p features of the source; a feature that was
        excluded has standard deviation 0. None where nobody knows: of what apply made.
    samples : rows that were standardised.
    transforms, where, dropped : what was done to the source's values, which condition its samples
        met, and which rows of these were left out because they miss values.
    solver : that chose the features; None of what apply made.
    made_of : where the data that it was selected from lie; None of what apply made.
    labels : (h,) of the selected features, or None.
    matrix : the selected columns, (n, h), as they are stored; or None.
    """

    k: int
    selected: NDArray[np.int64]
    standard: Standard | None
    samples: int
    transforms: tuple[str, ...]
    where: str
    dropped: NDArray[np.int64]
    source: str
    solver: str | None
    made_of: str | None
    labels: NDArray[Any] | None
    matrix: Matrix | None

    def as_selected(self, whole: Matrix) -> Matrix:
        """The table that this was selected from, as it was then: transformed, without some rows.

        Raises RequestError for one that it cannot have been selected from.
        """
        if not whole.transforms:
            whole = transformed(whole, self.transforms)
        elif whole.transforms != self.transforms:
            raise RequestError(
                "wrong_data",
                f"{self.source} was made with the transforms: "
                f"{', '.join(self.transforms) or 'none'}; {whole.source} is opened with: "
                f"{', '.join(whole.transforms)}.",
                "Open it without: those of the selection are applied.",
            )
        if self.where and not whole.provenance.where:
            whole = self._samples_of(whole)
        if whole.shape[0] != self.samples + len(self.dropped):
            raise self._other_than(whole, f"that has {whole.shape[0]} samples, not as many")
        if len(self.dropped):
            whole = keep_samples(whole, np.delete(np.arange(whole.shape[0]), self.dropped))
        self._check_made_from(whole)
        return whole

    def _samples_of(self, whole: Matrix) -> Matrix:
        """The samples that meet the selection's own condition, which nobody has typed here."""
        try:
            return samples_meeting(whole, self.where)
        except RequestError as error:
            lost = unknown_names(whole, self.where)
            why = f"it has no coordinate {listed(lost)}." if lost else error.message
            raise RequestError(
                "wrong_data",
                Text(
                    "{} was made of the samples that meet its own condition, {!r}, and those of {} "
                    "cannot be told by it: {}",
                    self.source,
                    self.where,
                    whole.source,
                    why,
                ),
                Text("Give the table that it was made from as {data}, with its coordinates."),
            ) from error

    def columns(self, whole: Matrix | None) -> Matrix:
        """The selected columns, from the selection itself or else from what it was made from.

        Raises RequestError where neither is there, or does.
        """
        own = self._own_columns()
        if own is not None:
            return own
        if whole is None:
            why = (
                "was made of normalised rows, which takes all features"
                if self.matrix is not None
                else Text(
                    "holds no data: it was written with {selection_only}", selection_only=True
                )
            )
            raise RequestError(
                "no_data",
                Text("{} {}.", self.source, why),
                Text("Give the table that it was made from: {data}", data=self.made_of),
            )
        return restricted(whole, self.selected)

    def _own_columns(self) -> Matrix | None:
        """The selected columns as they were selected, where the selection itself tells."""
        if self.matrix is None or by_row(self.transforms):
            return None
        return transformed(self.matrix, self.transforms)

    def _check_made_from(self, whole: Matrix) -> None:
        features = whole.shape[1] if self.standard is None else len(self.standard.mean)
        if whole.shape[1] != features:
            raise self._other_than(whole, f"that has {whole.shape[1]} features, not {features}")
        if self.labels is not None and whole.labels is not None:
            theirs = whole.labels[self.selected]
            for index, mine, other in zip(self.selected, self.labels, theirs, strict=True):
                ours, others = plain(mine), plain(other)
                if str(ours) != str(others):
                    raise self._other_than(whole, f"feature {index} is {others} there, not {ours}")
        own = self._own_columns()
        if own is None:
            return
        there, n = restricted(whole, self.selected), self.samples
        for row in sorted({0, n // 2, n - 1}):
            mine, other = (dense(m.rows.read(row, row + 1)) for m in (own, there))
            if not np.array_equal(mine, other, equal_nan=mine.dtype.kind == "f"):
                raise self._other_than(whole, f"sample {row} holds other values there")

    def _other_than(self, whole: Matrix, how: str) -> RequestError:
        return RequestError(
            "wrong_data",
            f"{self.source} was not made from {whole.source}: {how}.",
            Text("Give the table that it was made from as {data}."),
        )


def read_selection(place: Place) -> tuple[xr.Dataset, xr.Dataset]:
    """The root of a written selection and its table of all features, lazily.

    Raises RequestError for anything else.
    """
    root = _read(place)
    if root.attrs["format"] != SELECTION:
        raise _not_a_selection(place)
    return root, _read(place, "all_features")


def open_selection(place: Place) -> StoredSelection:
    """Open what :func:`kmufs_stream.select` or :func:`kmufs_stream.apply` wrote.

    Its data are not read. Raises RequestError for anything else.
    """
    root = _read(place)
    dim, data = str(root["feature_index"].dims[0]), list(root.data_vars)
    named = json.loads(root.attrs.get("located", "{}")).get("feature_labels")
    matrix = None
    if data:
        matrix = open_matrix(
            place,
            variable=str(data[0]),
            feature_dims=dim,
            feature_labels=named if named in root.variables else None,
        )
    standard, samples, dropped = None, 0 if matrix is None else matrix.shape[0], None
    selected = root["feature_index"].values.astype(np.int64)
    labels = None if matrix is None else matrix.labels
    if root.attrs["format"] == SELECTION:
        every = _read(place, "all_features")
        usable = every["excluded"].values == ""
        standard = Standard(
            np.nan_to_num(every["mean"].values), np.where(usable, every["std"].values, 0.0)
        )
        along = str(every["score"].dims[0])
        if along in every.coords:
            labels = every[along].values[selected]
        samples = int(root.attrs["samples"])
        dropped = _read(place, "diagnostics").get("dropped")
    return StoredSelection(
        k=int(root.attrs["k"]),
        selected=selected,
        standard=standard,
        samples=samples,
        transforms=tuple(filter(None, root.attrs["transforms"].split(", "))),
        where=str(root.attrs.get("where", "")),
        dropped=np.empty(0, np.int64) if dropped is None else dropped.values,
        source=name_of(place),
        solver=None if standard is None else str(root.attrs["solver"]),
        made_of=None if standard is None else str(root.attrs["source"]),
        labels=labels,
        matrix=matrix,
    )


def _read(place: Place, group: str | None = None) -> xr.Dataset:
    """The root of a written selection or application, or one of its groups, lazily."""
    source = name_of(place)
    check_exists(place, "Make it with kmufs-stream select.")
    try:
        # An index would load the labels of all samples.
        stored = open_decoded(
            zarr_root(place), group=group, chunks=None, create_default_indexes=False
        )
    except Exception as error:
        if (stored_attributes(place) or {}).get("format") not in KINDS:
            raise _not_a_selection(place) from error
        raise RequestError(
            "not_a_selection",
            f"{source} cannot be read as a selection: {type(error).__name__}: {error}",
            "Make one with kmufs-stream select.",
        ) from error
    if group is not None:
        return stored
    kind, version = stored.attrs.get("format"), stored.attrs.get("format_version")
    if kind not in KINDS:
        raise _not_a_selection(place)
    if version != FORMAT_VERSIONS[kind]:
        what, remake = KINDS[kind]
        raise RequestError(
            "selection_format",
            f"{source} is {what} of format {version}, this version reads {FORMAT_VERSIONS[kind]}.",
            f"{remake}, or use the version that wrote it "
            f"({stored.attrs.get('version', 'unknown')}).",
        )
    return stored


def _not_a_selection(place: Place) -> RequestError:
    what, then = recognised(place)
    return RequestError(
        "not_a_selection",
        f"{name_of(place)} is not a selection: it is {what}.",
        f"Give what kmufs-stream select wrote. {then}",
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
    frame = matrix.metadata.coords
    if matrix.metadata.feature_dim in frame.dims:
        frame = frame.isel({matrix.metadata.feature_dim: columns})
    return replace(
        matrix,
        rows=ColumnRows(matrix.rows, columns),
        shape=(matrix.shape[0], len(columns)),
        labels=None if matrix.labels is None else matrix.labels[columns],
        layout=replace(
            matrix.layout, chunk_columns=matrix.shape[1], chunk_cells=0, in_memory=False
        ),
        metadata=replace(matrix.metadata, coords=frame),
        asked=None,
        dtypes=(),
    )

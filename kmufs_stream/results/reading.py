"""Open a selection that was written earlier."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kmufs_stream.errors import RequestError, Text, listed
from kmufs_stream.factors.reopening import as_made
from kmufs_stream.sources import Matrix, open_matrix
from kmufs_stream.sources.layout import dense
from kmufs_stream.sources.matching import ReorderedRows
from kmufs_stream.sources.names import plain
from kmufs_stream.sources.samples import keep_samples
from kmufs_stream.sources.transforms import by_row, transformed
from kmufs_stream.sources.written import Written, open_written
from kmufs_stream.storage.places import Place, name_of
from kmufs_stream.storage.provenance import APPLICATION, SELECTION
from kmufs_stream.streaming.kernels.lloyd import Standard


@dataclass(frozen=True, eq=False)
class StoredSelection:
    """A written selection, or an application of one; arrays are read when they are asked for.

    Attributes
    ----------
    written : what is stored.
    root : its root: ``feature_index``, ``score``, ``rank``, coordinates, and the columns if it
        holds them.
    """

    written: Written
    root: xr.Dataset

    @property
    def source(self) -> str:
        return name_of(self.written.place)

    @property
    def attrs(self) -> dict[Any, Any]:
        return self.root.attrs

    @property
    def applied(self) -> bool:
        """Whether apply wrote it, which knows nothing of the features left out."""
        return self.written.format == APPLICATION

    @property
    def k(self) -> int:
        return int(self.attrs["k"])

    @property
    def transforms(self) -> tuple[str, ...]:
        """Transforms of the values it was made from."""
        return tuple(filter(None, self.attrs["transforms"].split(", ")))

    @property
    def samples(self) -> int:
        """Samples that were standardised."""
        if self.applied:
            return 0 if self.matrix is None else self.matrix.shape[0]
        return int(self.attrs["samples"])

    @cached_property
    def selected(self) -> NDArray[np.int64]:
        """(h,) source indices."""
        return self.root["feature_index"].values.astype(np.int64)

    @cached_property
    def every(self) -> xr.Dataset:
        """Table of all p features, which an application does not have."""
        return self.written.read("all_features", load=True)

    @cached_property
    def diagnostics(self) -> xr.Dataset:
        return self.written.read("diagnostics", load=True)

    @cached_property
    def standard(self) -> Standard | None:
        """Means and standard deviations of all p features, std 0 for excluded ones.

        None for an application.
        """
        if self.applied:
            return None
        usable = self.every["excluded"].values == ""
        std = np.where(usable, self.every["std"].values, 0.0)
        return Standard(np.nan_to_num(self.every["mean"].values), std)

    @cached_property
    def every_label(self) -> NDArray[Any] | None:
        """(p,) names of all features; None if the source has none."""
        dim = str(self.every["score"].dims[0])
        return self.every[dim].values if dim in self.every.coords else None

    @cached_property
    def labels(self) -> NDArray[Any] | None:
        """(h,) names of the selected features; None if the source has none."""
        if not self.applied and self.every_label is not None:
            return self.every_label[self.selected]
        return None if self.matrix is None else self.matrix.labels

    @cached_property
    def dropped(self) -> NDArray[np.int64]:
        """Rows that were left out because they lack values."""
        if self.applied or "dropped" not in self.diagnostics:
            return np.empty(0, np.int64)
        return self.diagnostics["dropped"].values

    @cached_property
    def matrix(self) -> Matrix | None:
        """The selected columns as they are stored, (n, h); None if it holds no data."""
        data = list(self.root.data_vars)
        if not data:
            return None
        named = json.loads(self.attrs.get("located", "{}")).get("feature_labels")
        return open_matrix(
            self.written.place,
            variable=str(data[0]),
            feature_dims=str(self.root["feature_index"].dims[0]),
            feature_labels=named if named in self.root.variables else None,
        )

    def as_selected(self, whole: Matrix) -> Matrix:
        """Transform the table that this was selected from, and keep the samples that took part.

        Raises RequestError for a table that it cannot have been selected from.
        """
        if whole.transforms and whole.transforms != self.transforms:
            theirs, ours = listed(whole.transforms), listed(self.transforms)
            raise self._other_than(whole, f"it had the transforms {ours}; that has {theirs}")
        whole = as_made(whole, self.transforms, self.attrs.get("where", ""))
        if whole.shape[0] != self.samples + len(self.dropped):
            raise self._other_than(whole, f"that has {whole.shape[0]} samples, not as many")
        if len(self.dropped):
            whole = keep_samples(whole, np.delete(np.arange(whole.shape[0]), self.dropped))
        self._check_made_from(whole)
        return whole

    def columns(self, whole: Matrix | None) -> Matrix:
        """Return the selected columns, from the selection itself or else from the whole table.

        Raises RequestError if neither has them.
        """
        own = self._own_columns()
        if own is not None:
            return own
        if whole is None:
            raise RequestError(
                "no_data",
                Text(
                    "{} holds no data ({selection_only}), or was made of normalised rows, which "
                    "takes all features.",
                    self.source,
                    selection_only=True,
                ),
                Text("Give the table that it was made from: {data}", data=self.attrs["source"]),
            )
        return restricted(whole, self.selected)

    def _own_columns(self) -> Matrix | None:
        """Return the columns that the selection holds, transformed; None if it cannot tell."""
        if self.matrix is None or not self.self_contained:
            return None
        return transformed(self.matrix, self.transforms)

    @property
    def self_contained(self) -> bool:
        """Whether it holds all that evaluate needs: data, and not of normalised rows."""
        return self.matrix is not None and not by_row(self.transforms)

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


def open_selection(place: Place, *, applied: bool = True) -> StoredSelection:
    """Open what :func:`kmufs_stream.select` wrote, and :func:`kmufs_stream.apply` if ``applied``.

    Raises RequestError for anything else.
    """
    written = open_written(place, SELECTION, *[APPLICATION] * applied)
    return StoredSelection(written, written.read())


def restricted(matrix: Matrix, columns: NDArray[np.int64]) -> Matrix:
    """Keep these columns of a dense matrix alone; all of them are still read."""
    frame = matrix.metadata.coords
    if matrix.metadata.feature_dim in frame.dims:
        frame = frame.isel({matrix.metadata.feature_dim: columns})
    return replace(
        matrix,
        rows=ReorderedRows(matrix.rows, columns),
        shape=(matrix.shape[0], len(columns)),
        labels=None if matrix.labels is None else matrix.labels[columns],
        layout=replace(
            matrix.layout, chunk_columns=matrix.shape[1], chunk_cells=0, in_memory=False
        ),
        metadata=replace(matrix.metadata, coords=frame),
        asked=None,
        dtypes=(),
    )

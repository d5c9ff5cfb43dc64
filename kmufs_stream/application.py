"""Apply a written selection to other data."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.events import SILENT, Progress
from kmufs_stream.factors.identity import check_unchanged, digest_of_chunks
from kmufs_stream.factors.planning import table_of
from kmufs_stream.factors.reopening import open_like
from kmufs_stream.results.reading import StoredSelection, open_selection
from kmufs_stream.results.writing import subset_frame, write_result
from kmufs_stream.sources.labels import likely_classes
from kmufs_stream.sources.matching import Matched, ReorderedRows, find_features
from kmufs_stream.sources.names import plain
from kmufs_stream.storage.output import check_output
from kmufs_stream.storage.places import Place, PlaceLike, name_of, place_of
from kmufs_stream.storage.provenance import APPLICATION, origin, stamp
from kmufs_stream.streaming.planning.plan import make_plan
from kmufs_stream.streaming.planning.sizing import Candidate, Cost, PlanRequest
from kmufs_stream.system.memory import peak_memory
from kmufs_stream.version import __version__

FREE = Cost(state=0, update=0, driver=0, finish=0, kept=0, reads=0)


@dataclass(frozen=True, eq=False, repr=False)
class Application:
    """What :func:`kmufs_stream.apply` wrote.

    Attributes
    ----------
    output : path, address or Zarr store
        Where it was written.
    samples : int
        Samples of the new data.
    columns : int64 array, shape (h,)
        Indices of the chosen features in the new data, in the order of the selection.
    labels : list or None
        Their names there.
    matched : {'label', 'position'}
        How they were found.
    seconds : float
        Wall-clock seconds.
    predicted_peak : int
        Predicted peak of resident bytes.
    peak : int
        Peak resident bytes of the process until all was written.
    """

    output: Place
    samples: int
    columns: NDArray[np.int64]
    labels: list[str | int | float | bool] | None
    matched: Matched
    seconds: float
    predicted_peak: int
    peak: int

    def __repr__(self) -> str:
        return (
            f"<Application: {len(self.columns)} features of {self.samples:,} samples, found by "
            f"{self.matched}, in {name_of(self.output)}>"
        )

    @cached_property
    def _stored(self) -> StoredSelection:
        return open_selection(self.output)

    @property
    def likely_classes(self) -> list[str]:
        """Coordinates of the samples that look like their classes, the likeliest first."""
        matrix = self._stored.matrix
        return [] if matrix is None else likely_classes(matrix, self._stored.k)

    @property
    def self_contained(self) -> bool:
        """Whether it holds all that evaluate needs: data, and not of normalised rows."""
        return self._stored.self_contained

    def summary(self) -> dict[str, Any]:
        """Return the same in plain JSON types; the keys are listed in docs/output.md."""
        return {
            "output": name_of(self.output),
            "samples": self.samples,
            "h": len(self.columns),
            "columns": self.columns.tolist(),
            "labels": self.labels,
            "matched": self.matched,
            "seconds": {"total": self.seconds},
            "peak_rss_bytes": self.peak,
            "predicted_peak_bytes": self.predicted_peak,
            "version": __version__,
        }


def apply(
    result: PlaceLike,
    data: Any,
    *,
    out: PlaceLike,
    overwrite: bool = False,
    memory: str | int | None = None,
    threads: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    command: str | None = None,
    progress: Progress = SILENT,
) -> Application:
    """Write the features that a selection chose, from other data.

    Parameters
    ----------
    result : path, address or Zarr store
        A selection that :func:`kmufs_stream.select` wrote, with data or without.
    data : path, address, Zarr store or array, table in memory, or Matrix
        (m, q), whatever :func:`kmufs_stream.open_matrix` opens. Its features are found by label, in
        any order; if either side has no labels, by position, and q must be the number of features
        selected from. Where the table is in the data is taken from ``result``.
    out : path, address or empty Zarr store
        Where to write the columns in the order of ``result``, as they are stored in ``data``, with
        its coordinates, and with ``score`` and ``rank`` of ``result``.
    overwrite : bool, default False
        Replace an existing output; see :func:`kmufs_stream.select`.
    memory, threads, storage_options
        See :func:`kmufs_stream.decompose`.
    command : str, optional
        A command line to record in the output, with the date.
    progress : callable, optional
        See :func:`kmufs_stream.select`.

    Returns
    -------
    Application
        What was written, and how features were found.

    Raises
    ------
    RequestError
        Not a selection, features missing or repeated, another number of features, a budget too
        small, an output that cannot be written.
    BrokenError
        A chunk cannot be read, writing failed, the data changed meanwhile.

    Notes
    -----
    Reads each chunk that holds a chosen feature once.
    """
    began = time.perf_counter()
    target, selection = place_of(out, storage_options), place_of(result, storage_options)
    chosen = open_selection(selection, applied=False)
    matrix = open_like(selection, data, storage_options=storage_options)
    check_output(target, [selection, *matrix.inputs], overwrite=overwrite)
    labels = chosen.every_label
    theirs = None if labels is None else [str(plain(label)) for label in labels]
    p = len(chosen.every["score"])
    columns, matched = find_features(chosen.selected, theirs, p, matrix, chosen.source)
    request = PlanRequest(h=len(columns), copies=True, memory=memory, threads=threads)
    plan = make_plan(table_of(matrix), {"copy": Candidate(lambda rows, itemsize: FREE)}, request)
    progress(plan.resources)
    chunks = digest_of_chunks(matrix)
    attrs = {
        **{key: chosen.attrs[key] for key in ("k", "h", "solver")},
        "selection": chosen.source,
        "matched": matched,
        "transforms": chosen.attrs["transforms"],
        "where": matrix.provenance.where,
        "variable": matrix.metadata.name,
        "located": json.dumps(matrix.provenance.located),
        **stamp(APPLICATION),
        **origin(matrix.source, command),
    }
    write_result(
        target,
        replace(matrix, rows=ReorderedRows(matrix.rows, np.arange(matrix.shape[1]))),
        subset_frame(
            matrix,
            columns,
            chosen.root["score"].values,
            chosen.root["rank"].values,
            attrs,
            samples=True,
        ),
        {},
        plan,
        samples=True,
        overwrite=overwrite,
        verify=partial(check_unchanged, matrix, chunks),
        progress=progress,
    )
    return Application(
        output=target,
        samples=matrix.shape[0],
        columns=columns,
        labels=None if matrix.labels is None else [plain(x) for x in matrix.labels[columns]],
        matched=matched,
        seconds=time.perf_counter() - began,
        predicted_peak=plan.peak,
        peak=peak_memory(),
    )

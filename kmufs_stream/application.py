"""The columns of a selection that was made before, from other data."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kmufs_stream.decomposition import inputs_of, table_of
from kmufs_stream.errors import RequestError
from kmufs_stream.identity import check_unchanged, digest_of_chunks
from kmufs_stream.output import check_output
from kmufs_stream.places import Place, PlaceLike, name_of, place_of
from kmufs_stream.progress import SILENT, Progress
from kmufs_stream.provenance import made_by
from kmufs_stream.sources import Matrix, Rows, open_matrix
from kmufs_stream.sources.matrix import plain
from kmufs_stream.stored import read_selection
from kmufs_stream.streaming.memory import peak_memory
from kmufs_stream.streaming.plan import Cost, Demand, make_plan
from kmufs_stream.subset import subset_frame, write_result
from kmufs_stream.version import __version__

FORMAT = "kmufs-application"
FORMAT_VERSION = 1
NAMED = 5  # of the features that are missing
FREE = Cost(state=0, update=0, driver=0, finish=0, kept=0, reads=0)


@dataclass(frozen=True, eq=False, repr=False)
class Application:
    """What was written.

    Attributes
    ----------
    columns : (h,) int64, where the chosen features stand in the new data; in the order of the
        selection.
    matched : by what they were found.
    """

    output: Place
    samples: int
    columns: NDArray[np.int64]
    labels: list[str | int | float | bool] | None
    matched: Literal["label", "position"]
    seconds: float
    predicted_peak: int

    def summary(self) -> dict[str, Any]:
        """The same in plain JSON types; the keys are listed in docs/output.md."""
        return {
            "output": name_of(self.output),
            "samples": self.samples,
            "h": len(self.columns),
            "columns": self.columns.tolist(),
            "labels": self.labels,
            "matched": self.matched,
            "seconds": {"total": self.seconds},
            "peak_rss_bytes": peak_memory(),
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
    result : a selection that :func:`kmufs_stream.select` wrote, with data or without.
    data : (m, q), whatever :func:`kmufs_stream.open_matrix` opens. Its features are found by
        label, wherever they stand; by position where either side has no labels, q then being
        the number of features that were selected from.
    out : store to write: the columns in the order of ``result``, as they are stored in ``data``,
        with its coordinates, and ``score`` and ``rank`` of ``result``.
    memory, threads, storage_options : see :func:`kmufs_stream.decompose`.
    command : the command line that asks for this, to be kept in the result with the date.

    Raises
    ------
    RequestError : not a selection, features missing or named twice, other numbers of features, a
        budget too small, an output that must not be written.
    BrokenError : a chunk cannot be read, writing fails, the data change meanwhile.

    Reads the data once, where they hold a chosen feature.
    """
    began = time.perf_counter()
    target, selection = place_of(out, storage_options), place_of(result, storage_options)
    source = name_of(selection)
    root, every = read_selection(selection)
    matrix = open_matrix(data, storage_options=storage_options)
    check_output(target, [selection, *inputs_of(matrix)], overwrite=overwrite)
    columns, matched = _find(root["feature_index"].values, every, matrix, source)
    demand = Demand(h=len(columns), copies=True, memory=memory, threads=threads)
    plan = make_plan(table_of(matrix), {"copy": lambda rows, itemsize: FREE}, demand)
    progress(plan.resources)
    chunks = digest_of_chunks(matrix)
    attrs = {
        **{key: root.attrs[key] for key in ("k", "h", "solver")},
        "selection": source,
        "source": matrix.source,
        "matched": matched,
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "version": __version__,
        **made_by(command),
    }
    write_result(
        target,
        replace(matrix, rows=_AnyOrder(matrix.rows)),
        subset_frame(
            matrix, columns, root["score"].values, root["rank"].values, attrs, samples=True
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
    )


def _find(
    selected: NDArray[np.int64], every: xr.Dataset, matrix: Matrix, source: str
) -> tuple[NDArray[np.int64], Literal["label", "position"]]:
    """The columns of ``matrix`` that the selected features are; (h,) int64. O(p)."""
    dim = str(every["score"].dims[0])
    selected = selected.astype(np.int64)
    if dim not in every.coords or matrix.labels is None:
        if every.sizes[dim] != matrix.shape[1]:
            raise RequestError(
                "wrong_features",
                f"{source} was made from {every.sizes[dim]} features, {matrix.source} has "
                f"{matrix.shape[1]}, and there are no labels to match them by.",
                "Name the features of both, or give data with the same features in this order.",
            )
        return selected, "position"
    theirs = [str(plain(label)) for label in every[dim].values]
    ours = [str(plain(label)) for label in matrix.labels]
    if theirs == ours:  # labels may then repeat
        return selected, "label"
    wanted = [theirs[i] for i in selected]
    place = {label: i for i, label in enumerate(ours)}
    _refuse("missing_features", [label for label in wanted if label not in place], "lacks", matrix)
    times, before = Counter(ours), Counter(theirs)
    twice = [label for label in wanted if times[label] > 1 or before[label] > 1]
    _refuse("ambiguous_features", twice, "or the selection's source repeats", matrix)
    return np.array([place[label] for label in wanted], np.int64), "label"


def _refuse(code: str, labels: Sequence[str], what: str, matrix: Matrix) -> None:
    """Name the first of the labels, if there are any."""
    if not labels:
        return
    first = ", ".join(map(repr, labels[:NAMED])) + (", ..." if len(labels) > NAMED else "")
    raise RequestError(
        code,
        f"{matrix.source} {what} {len(labels)} of the chosen features: {first}.",
        "Give data that hold each of them once; --feature-labels chooses other names.",
    )


@dataclass(frozen=True)
class _AnyOrder:
    """Rows whose columns may be asked for in any order: the source is asked in ascending order."""

    rows: Rows

    def read(self, start: int, stop: int) -> Any:
        """See Rows."""
        return self.rows.read(start, stop)

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        """See Rows."""
        order = np.argsort(columns)
        taken = np.empty((stop - start, len(columns)), self.rows.take(0, 0, columns[:1]).dtype)
        taken[:, order] = self.rows.take(start, stop, columns[order])
        return taken

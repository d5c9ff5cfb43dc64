"""What a report tells of a selection or a sweep: read from where it was written, and summed up."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.cluster.hierarchy
import xarray as xr
from numpy.typing import NDArray

from kmufs_stream.factors.methods.leading import orient_columns
from kmufs_stream.factors.noise import noise_edge
from kmufs_stream.factors.solving import is_greedy
from kmufs_stream.factors.structure import knee
from kmufs_stream.results.measures import COPIES, effective_rank, mean_correlation
from kmufs_stream.results.reading import open_selection
from kmufs_stream.solvers.clustering import fit_kmeans
from kmufs_stream.sources import Matrix
from kmufs_stream.sources.layout import dense
from kmufs_stream.sources.names import plain
from kmufs_stream.sources.written import read_trials
from kmufs_stream.storage.places import Place, name_of
from kmufs_stream.system import blas
from kmufs_stream.typing import Float

ROWS = 2000  # of a result that are looked at, at most
RUNS = 20  # places that these are read from
VALUES = 2**22  # numbers that these hold, at most
MAPPED = 150  # features in a redundancy map, at most
STARTS = 4  # of K-means on the rows looked at
TABLES = (".csv", ".json")


@dataclass(frozen=True)
class Redundancy:
    """How the chosen features correlate.

    Attributes
    ----------
    correlation : (m, m) float64, of the best of them, similar ones side by side.
    names : (m,) of these.
    of : how many features the numbers below are about.
    mean : mean absolute correlation of two of them.
    effective_rank : how many uncorrelated features they are worth.
    copies : pairs correlated by more than ``COPIES``, in absolute value.
    """

    correlation: Float
    names: list[str]
    of: int
    mean: float
    effective_rank: float
    copies: int


@dataclass(frozen=True)
class View:
    """Rows on the two leading components of the standardised chosen features.

    Attributes
    ----------
    points : (m, 2) float64.
    shares : of the variance, along each.
    clusters : (m,) int64, by K-means on all chosen features; the largest is 0.
    of : rows of the result.
    """

    points: Float
    shares: tuple[float, float]
    clusters: NDArray[np.int64]
    of: int


@dataclass(frozen=True)
class Result:
    """A written selection.

    Attributes
    ----------
    attrs : attributes of its root.
    selected, scores, ranks : (h,) source indices, a_i and ranks of the chosen features.
    labels : (h,) their names, or None.
    every_score : (p,) float64, a_i of all features; NaN where excluded.
    eigenvalues : (r,) float64, of the correlation matrix, falling.
    edge : the largest eigenvalue of independent features.
    history : what the solver noted, by name, once per iteration.
    redundancy, view : None where the result does not hold what they need.
    """

    name: str
    attrs: Mapping[str, Any]
    selected: NDArray[np.int64]
    scores: Float
    ranks: NDArray[np.int64]
    labels: list[str] | None
    every_score: Float
    eigenvalues: Float
    edge: float
    usable: int
    history: Mapping[str, NDArray[Any]]
    redundancy: Redundancy | None
    view: View | None

    @property
    def greedy(self) -> bool:
        """The solver chose one feature after another."""
        return is_greedy(self.attrs["solver"])

    @property
    def of_optimum(self) -> float:
        """The objective as a share of the largest that any choice has."""
        return float(self.attrs["objective"] / self.attrs["optimum"])

    def keys(self) -> list[str]:
        """What its chosen features are told by: labels, or indices as text."""
        return self.labels or [str(i) for i in self.selected]


@dataclass(frozen=True)
class Trials:
    """What sweep wrote.

    Attributes
    ----------
    curves : (k, solver) to its trials, by h; the columns are those of ``COLUMNS``, and
        ``of_optimum``.
    knees : (k, solver) to the h at the knee of what is explained, or None.
    """

    name: str
    curves: dict[tuple[int, str], pd.DataFrame]
    knees: dict[tuple[int, str], int | None]


def read_all(places: Sequence[Place]) -> list[Result | Trials]:
    """Read what is to be reported, named by file names, or by paths where these repeat."""
    names = [name_of(place).rpartition("/")[2] for place in places]
    if len(set(names)) < len(names):
        names = [name_of(place) for place in places]
    return [read(place, name) for place, name in zip(places, names, strict=True)]


def read(place: Place, name: str) -> Result | Trials:
    """Read what select or sweep wrote; of the data a sample of rows, whatever their number.

    Raises RequestError for anything else.
    """
    if isinstance(place, Path) and place.suffix.lower() in TABLES and place.is_file():
        return _trials(place, name)
    chosen = open_selection(place, applied=False)
    noted, every, ranks = chosen.diagnostics, chosen.every, chosen.root["rank"].values
    attrs = {**chosen.attrs}
    attrs |= json.loads(attrs.pop("located", "{}"))
    labels = None
    if chosen.labels is not None:
        labels = [str(plain(label)) for label in chosen.labels]
    usable = int((every["excluded"].values == "").sum())
    with blas.all_cores():
        return Result(
            name=name,
            attrs=attrs,
            selected=chosen.selected,
            scores=chosen.root["score"].values,
            ranks=ranks,
            labels=labels,
            every_score=every["score"].values,
            eigenvalues=noted["singular_values"].values ** 2 / chosen.samples,
            edge=noise_edge(usable, chosen.samples),
            usable=usable,
            history={
                str(name): variable.values
                for name, variable in noted.data_vars.items()
                if str(variable.dims[0]).startswith("iteration")
            },
            redundancy=_redundancy(noted, chosen.selected, ranks, labels),
            view=None if chosen.matrix is None else _view(chosen.matrix, chosen.k),
        )


def _redundancy(
    noted: xr.Dataset,
    selected: NDArray[np.int64],
    ranks: NDArray[np.int64],
    labels: list[str] | None,
) -> Redundancy | None:
    """Sum up the correlations that were kept, and order those shown by average linkage."""
    if "correlation" not in noted:  # of a result that an earlier version wrote
        return None
    places = np.searchsorted(selected, noted["related_index"].values)
    best = np.argsort(ranks[places])
    correlation = noted["correlation"].values.astype(np.float64)[np.ix_(best, best)]
    h = len(correlation)
    strong = np.abs(correlation) > COPIES
    shown, names = correlation[:MAPPED, :MAPPED], places[best][:MAPPED]
    if len(shown) > 2:
        distance = np.clip(1 - np.abs(shown), 0, 1)
        pairs = distance[np.triu_indices(len(shown), 1)]
        tree = scipy.cluster.hierarchy.linkage(pairs, "average", optimal_ordering=True)
        order = scipy.cluster.hierarchy.leaves_list(tree)
        shown, names = shown[np.ix_(order, order)], names[order]
    return Redundancy(
        correlation=shown,
        names=[str(selected[i]) if labels is None else labels[i] for i in names],
        of=h,
        mean=mean_correlation(correlation),
        effective_rank=effective_rank(correlation),
        copies=int(np.triu(strong, 1).sum()),
    )


def _view(matrix: Matrix, k: int) -> View | None:
    """A sample of the rows, standardised within the sample."""
    rows = _sample(matrix).astype(np.float64)
    rows[~np.isfinite(rows)] = np.nan
    seen = ~np.isnan(rows).all(axis=0)
    rows = rows[:, seen]
    rows -= np.nanmean(rows, axis=0)
    spread = np.sqrt(np.nanmean(rows**2, axis=0))
    rows /= np.where(spread > 0, spread, 1.0)
    rows = np.nan_to_num(rows, nan=0.0)
    m, h = rows.shape
    if m < 2 or h == 0:
        return None
    _, values, axes = np.linalg.svd(rows, full_matrices=False)
    shares = values**2 / max(float((values**2).sum()), np.finfo(float).tiny)
    points = rows @ orient_columns(axes[:2].T)
    if h == 1:
        points, shares = np.column_stack([points, np.zeros(m)]), np.append(shares, 0.0)
    found = fit_kmeans(rows, min(k, m), starts=STARTS, seed=0).labels_.astype(np.int64)
    falling = np.argsort(-np.bincount(found, minlength=k), kind="stable")
    return View(
        points=points,
        shares=(float(shares[0]), float(shares[1])),
        clusters=np.argsort(falling)[found],
        of=matrix.shape[0],
    )


def _sample(matrix: Matrix) -> NDArray[Any]:
    """Runs of rows, evenly spread over all of them: few pieces of the store are read."""
    n, h = matrix.shape
    wanted = min(n, ROWS, max(VALUES // h, 2))
    length = -(-wanted // RUNS)
    if wanted == n:
        return dense(matrix.rows.read(0, n))
    starts = np.linspace(0, n - length, -(-wanted // length)).astype(int)
    return np.concatenate([dense(matrix.rows.read(a, a + length)) for a in starts.tolist()])


def _trials(place: Path, name: str) -> Trials:
    table = read_trials(place)
    table["of_optimum"] = table["objective"] / table["optimum"]
    grouped: Any = table.groupby(["k", "solver"], sort=False)
    curves = {
        (int(k), str(solver)): curve.sort_values("h", ignore_index=True)
        for (k, solver), curve in grouped
    }
    return Trials(
        name=name,
        curves=curves,
        knees={
            which: knee(curve["h"].tolist(), curve["explained"].tolist())
            for which, curve in curves.items()
        },
    )


@dataclass(frozen=True)
class Overlap:
    """How far several selections agree.

    Attributes
    ----------
    shared : (m, m) int64, features that two of them have in common.
    jaccard : (m, m) float64, the same over the features that either has.
    by : what features are told by: ``label`` or ``index``.
    """

    shared: NDArray[np.int64]
    jaccard: Float
    by: str


def overlap(results: list[Result]) -> Overlap | None:
    """The overlap of selections: by label, or by index where the tables have as many features.

    None where neither tells features apart across the results.
    """
    labelled = all(result.labels is not None for result in results)
    if not labelled and len({len(result.every_score) for result in results}) > 1:
        return None
    sets = [
        set(result.keys()) if labelled else set(map(str, result.selected)) for result in results
    ]
    shared = np.array([[len(a & b) for b in sets] for a in sets])
    either = np.array([[len(a | b) for b in sets] for a in sets])
    return Overlap(shared, shared / either, "label" if labelled else "index")

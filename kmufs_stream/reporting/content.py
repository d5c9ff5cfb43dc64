"""Read and sum up the selections and sweeps that a report shows."""

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
from kmufs_stream.typing import Array, Float, Int

ROWS = 2000  # rows of a result that are read, at most
RUNS = 20  # runs of consecutive rows that these are read in
VALUES = 2**22  # numbers that these hold, at most
MAPPED = 150  # features in a redundancy map, at most
STARTS = 4  # of K-means on the rows read
TABLES = (".csv", ".json")


@dataclass(frozen=True)
class Redundancy:
    """Correlations of the best chosen features, of which at most ``MAPPED`` are shown."""

    correlation: Float  # (m, m), of those shown, similar ones side by side
    names: list[str]  # of those shown
    of: int  # features that the numbers below are about
    mean: float  # absolute correlation of two of them
    effective_rank: float
    copies: int  # pairs that correlate by more than COPIES, in absolute value


@dataclass(frozen=True)
class View:
    """Some rows on the two leading components of the standardised chosen features."""

    points: Float  # (m, 2)
    shares: tuple[float, float]  # of the variance, along each
    clusters: Int  # (m,), by K-means on all chosen features; 0 is the largest
    of: int  # rows of the result


@dataclass(frozen=True)
class Result:
    """A written selection."""

    name: str
    attrs: Mapping[str, Any]  # of its root
    selected: Int  # (h,) source indices
    scores: Float  # (h,)
    ranks: Int  # (h,)
    labels: list[str] | None
    every_score: Float  # (p,), NaN where excluded
    eigenvalues: Float  # of the correlation matrix, falling
    edge: float  # the noise edge of these
    usable: int
    history: Mapping[str, Array]  # what the solver noted at each iteration
    redundancy: Redundancy | None  # None where correlations were not kept
    view: View | None  # None where no data were written

    @property
    def greedy(self) -> bool:
        return is_greedy(self.attrs["solver"])

    @property
    def of_optimum(self) -> float:
        return float(self.attrs["objective"] / self.attrs["optimum"])

    def keys(self) -> list[str]:
        """Identify the chosen features by label, or by index as text."""
        return self.labels or [str(i) for i in self.selected]


@dataclass(frozen=True)
class Trials:
    """The trials of a sweep, by (k, solver)."""

    name: str
    curves: dict[tuple[int, str], pd.DataFrame]  # a row for each h, with ``of_optimum``
    knees: dict[tuple[int, str], int | None]  # the h at the knee of what is explained


def read_all(places: Sequence[Place]) -> list[Result | Trials]:
    """Read what is to be reported, named by file names, or by paths where these repeat."""
    names = [name_of(place).rpartition("/")[2] for place in places]
    if len(set(names)) < len(names):
        names = [name_of(place) for place in places]
    return [read(place, name) for place, name in zip(places, names, strict=True)]


def read(place: Place, name: str) -> Result | Trials:
    """Read what select or sweep wrote, and a sample of the rows, however many there are.

    Raises RequestError for anything else.
    """
    if isinstance(place, Path) and place.suffix.lower() in TABLES and place.is_file():
        return _trials(read_trials(place), name)
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
    noted: xr.Dataset, selected: Int, ranks: Int, labels: list[str] | None
) -> Redundancy | None:
    """Sum up the correlations that were kept, and order those shown by average linkage."""
    if "correlation" not in noted:  # an earlier version wrote it
        return None
    places = np.searchsorted(selected, noted["related_index"].values)
    best = np.argsort(ranks[places])
    correlation = noted["correlation"].values.astype(np.float64)[np.ix_(best, best)]
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
        of=len(correlation),
        mean=mean_correlation(correlation),
        effective_rank=effective_rank(correlation),
        copies=int(np.triu(np.abs(correlation) > COPIES, 1).sum()),
    )


def _view(matrix: Matrix, k: int) -> View | None:
    """Standardise a sample of the rows, project and cluster it; missing values become means."""
    from sklearn.preprocessing import StandardScaler

    rows = _sample(matrix).astype(np.float64)
    rows[~np.isfinite(rows)] = np.nan
    rows = rows[:, ~np.isnan(rows).all(axis=0)]
    m, h = rows.shape
    if m < 2 or h == 0:
        return None
    rows = np.nan_to_num(StandardScaler().fit_transform(rows))
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


def _sample(matrix: Matrix) -> Array:
    """Read runs of rows, evenly spread, so that few pieces of the store are read."""
    n, h = matrix.shape
    wanted = min(n, ROWS, max(VALUES // h, 2))
    length = -(-wanted // RUNS)
    if wanted == n:
        return dense(matrix.rows.read(0, n))
    starts = np.linspace(0, n - length, -(-wanted // length)).astype(int)
    return np.concatenate([dense(matrix.rows.read(a, a + length)) for a in starts.tolist()])


def _trials(table: pd.DataFrame, name: str) -> Trials:
    table["of_optimum"] = table["objective"] / table["optimum"]
    grouped: Any = table.groupby(["k", "solver"], sort=False)
    curves = {
        (int(k), str(solver)): curve.sort_values("h", ignore_index=True)
        for (k, solver), curve in grouped
    }
    knees = {
        which: knee(curve["h"].tolist(), curve["explained"].tolist())
        for which, curve in curves.items()
    }
    return Trials(name, curves, knees)


@dataclass(frozen=True)
class Overlap:
    """How far m selections agree."""

    shared: Int  # (m, m), features that two of them have in common
    jaccard: Float  # (m, m), the same over the features that either has
    by: str  # what identifies features: label or index


def overlap(results: list[Result]) -> Overlap | None:
    """Compare selections by label, or by index if the tables have equally many features.

    None where neither identifies features across the results.
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

"""Judge how well K-means on the chosen features finds clusters, with class labels or without."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.errors import Option, RequestError, Text, counted
from kmufs_stream.events import SILENT, Noticed, Progress
from kmufs_stream.factors.factor import as_whole, check_k
from kmufs_stream.factors.methods.gram import correlation_matrix
from kmufs_stream.factors.methods.screening import Standardised, standardise
from kmufs_stream.factors.planning import table_of
from kmufs_stream.factors.reopening import open_like
from kmufs_stream.options import Screening
from kmufs_stream.results.measures import (
    Agreement,
    agreement,
    between_clusters,
    effective_rank,
    mean_correlation,
)
from kmufs_stream.results.reading import open_selection
from kmufs_stream.sources import Matrix
from kmufs_stream.sources.labels import (
    along_samples,
    class_codes,
    likely_classes,
    refuse_feature,
)
from kmufs_stream.sources.layout import dense
from kmufs_stream.sources.matrix import densified
from kmufs_stream.sources.names import plain
from kmufs_stream.storage.places import PlaceLike, place_of
from kmufs_stream.streaming.kernels.gram import Gram
from kmufs_stream.streaming.kernels.lloyd import Clusters, Standard
from kmufs_stream.streaming.kernels.scaling import Scaling, read_probe
from kmufs_stream.streaming.kmeans import Clustering, kmeans, kmeans_candidates
from kmufs_stream.streaming.passes import run_planned
from kmufs_stream.streaming.planning.plan import Plan, make_plan
from kmufs_stream.streaming.planning.sizing import PlanRequest
from kmufs_stream.system import blas
from kmufs_stream.system.memory import peak_memory
from kmufs_stream.typing import Float
from kmufs_stream.version import __version__

STARTS = 10
ROUNDING = 1e-12  # a share of variance that is none


@dataclass(frozen=True)
class FullCost:
    """Cost over all usable features, as a share of their variance."""

    chosen: float  # of the clustering on the chosen features
    best: float  # of the best clustering that K-means found on all of them
    clustering: Clustering  # the best one
    standard: Standard  # what it standardised with

    @property
    def ratio(self) -> float:
        """chosen / best, which guarantees of the form 1 + eps are about; 1 if best is rounding."""
        return self.chosen / self.best if self.best > ROUNDING else 1.0


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The measures of one selection.

    Attributes
    ----------
    source : str
        The selection, for people.
    solver, made_of : str or None
        Of the selection, and the data that it was made from; None of what apply wrote.
    k, starts, seed : int
        Clusters, independent starts of K-means, and their seed.
    samples : int
        Samples that were clustered.
    selected : int64 array, shape (h,)
        Source indices, ascending.
    names : list or None
        Their labels.
    clustering : Clustering
        K-means on the chosen features.
    missing_values : int
        Values of the chosen features that were replaced by their means.
    sizes : int64 array, shape (k,)
        Samples per cluster.
    between : float64 array, shape (h,)
        The share of each chosen feature's variance that lies between the clusters.
    mean_correlation, effective_rank : float
        Redundancy: the mean absolute correlation of two chosen features, and the number of
        independent ones with such a spectrum.
    agreement : Agreement or None
        With the classes, if ``labels`` were given.
    full_cost : FullCost or None
        The cost on all features, if ``data`` were given.
    seconds : float
        Wall-clock seconds.
    predicted_peak : int
        Predicted peak of resident bytes.
    peak : int
        Peak resident bytes of the process until the evaluation ended.
    concessions : tuple of str
        What was given up to fit the budget.
    described_by : tuple of str
        Coordinates of the samples, any of which may hold their classes.
    likely_classes : tuple of str
        Those of the selection that look like classes, the likeliest first; empty if ``labels``
        were given.
    """

    source: str
    solver: str | None
    made_of: str | None
    k: int
    starts: int
    seed: int
    samples: int
    selected: NDArray[np.int64]
    names: list[str | int | float | bool] | None
    clustering: Clustering
    missing_values: int
    sizes: NDArray[np.int64]
    between: Float
    mean_correlation: float
    effective_rank: float
    agreement: Agreement | None
    full_cost: FullCost | None
    seconds: float
    predicted_peak: int
    peak: int
    concessions: tuple[str, ...]
    described_by: tuple[str, ...]
    likely_classes: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<Evaluation: K-means with k = {self.k} on {len(self.selected)} features>"

    def summary(self) -> dict[str, Any]:
        """Return the evaluation in plain JSON types; the keys are listed in docs/output.md."""
        agreement, full = self.agreement, self.full_cost
        return {
            "solver": self.solver,
            "k": self.k,
            "h": len(self.selected),
            "samples": self.samples,
            "missing_values": self.missing_values,
            "accuracy": None if agreement is None else agreement.accuracy,
            "nmi": None if agreement is None else agreement.nmi,
            "ari": None if agreement is None else agreement.ari,
            "classes": None if agreement is None else agreement.classes,
            "samples_with_class": None if agreement is None else agreement.samples,
            "cost_ratio": None if full is None else full.ratio,
            "full_cost": None if full is None else full.chosen,
            "best_full_cost": None if full is None else full.best,
            "cost": 1.0 - float(self.between.mean()),
            "cluster_sizes": self.sizes.tolist(),
            "selected": self.selected.tolist(),
            "labels": self.names,
            "between": self.between.tolist(),
            "mean_correlation": self.mean_correlation,
            "effective_rank": self.effective_rank,
            "starts": self.starts,
            "seed": self.seed,
            "method": self.clustering.method,
            "iterations": self.clustering.iterations,
            "converged": self.clustering.converged,
            "full_method": None if full is None else full.clustering.method,
            "full_iterations": None if full is None else full.clustering.iterations,
            "full_converged": None if full is None else full.clustering.converged,
            "source": self.source,
            "seconds": {"total": self.seconds},
            "concessions": list(self.concessions),
            "peak_rss_bytes": self.peak,
            "predicted_peak_bytes": self.predicted_peak,
            "version": __version__,
        }


def evaluate(
    result: PlaceLike,
    *,
    labels: str | None = None,
    data: Any = None,
    k: int | None = None,
    starts: int = STARTS,
    seed: int = 0,
    beside: Evaluation | None = None,
    memory: str | int | None = None,
    threads: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress = SILENT,
) -> Evaluation:
    """Cluster the samples by the chosen features, standardised, and judge the clusters.

    Parameters
    ----------
    result : path, address or Zarr store
        What :func:`kmufs_stream.select` wrote, or :func:`kmufs_stream.apply`, whose features are
        standardised anew.
    labels : str, optional
        Variable along the samples, of the result or of ``data``, that holds the true classes;
        samples without one (NaN) are not compared.
    data : path, address, Zarr store or array, table in memory, or Matrix, optional
        The table that was selected from: whatever :func:`kmufs_stream.open_matrix` opens. Needed
        for the cost on all features, for a result without data, and where rows were normalised.
        Transforms, samples and the place of the table are those recorded in the result.
    k : int, optional
        Number of clusters; that of the selection by default.
    starts : int, default 10
        Independent starts of K-means, of which the one of least cost counts.
    seed : int, default 0
        Of these starts.
    beside : Evaluation, optional
        Of another result. If samples, ``data``, ``k``, ``starts`` and ``seed`` are the same, its
        K-means on all features is used.
    memory, threads, storage_options, progress
        See :func:`kmufs_stream.decompose`.

    Returns
    -------
    Evaluation
        The measures.

    Raises
    ------
    RequestError
        Not a selection, data that it was not made from, no such labels, or labels that are among
        the chosen features, options out of range, a budget too small.
    BrokenError
        A chunk is missing or cannot be read.

    Notes
    -----
    A missing value counts as its feature's mean. Reads the chosen columns three times, and once
    more for each Lloyd step if the standardised table is larger than 32 MB; with ``data`` all
    columns, too, twice or more.
    """
    began = time.perf_counter()
    for parameter, value, least in (("starts", starts, 1), ("seed", seed, 0)):
        if value < least:
            raise RequestError(
                "bad_option", Text("{} is {}.", Option(parameter), value), f"Give {least} or more."
            )
    place = place_of(result, storage_options)
    chosen = open_selection(place)
    k = chosen.k if k is None else as_whole("k", k)
    check_k(k, chosen.samples, "samples")
    whole = None
    if data is not None:
        opened = open_like(place, data, storage_options=storage_options)
        whole = chosen.as_selected(densified(opened))
    columns = chosen.columns(whole)
    tables = [columns] if whole is None else [columns, whole]
    names = chosen.labels if columns.labels is None else columns.labels
    every, selected = chosen.standard, chosen.selected
    request = PlanRequest(memory=memory, threads=threads)
    plans = [_plan(columns, k, starts, request, square=True)]
    if whole is not None and every is not None:
        plans.append(_plan(whole, k, starts, request, square=False))
    for plan in plans:
        progress(plan.resources)
    codes, classes = None, 0
    if labels is not None:
        refuse_feature(labels, () if names is None else names, chosen.source)
        codes, classes = class_codes(labels, tables)

    known = None
    if len(plans) > 1 and every is not None and beside is not None:
        run = (k, starts, seed, columns.shape[0], plans[-1].method)
        known = _known_best(beside, run, every)
    for plan in plans[:1] if known is not None else plans:
        if plan.method == "lloyd":
            progress(Noticed(_long_run_note(plan, starts)))
    read = partial(run_planned, rows=columns.rows, plan=plans[0], progress=progress)
    cluster = partial(kmeans, k=k, starts=starts, seed=seed, progress=progress)

    scaling = Scaling.from_probe(dense(read_probe(columns)), "float64")
    features, correlation = correlation_matrix(
        read(Gram(scaling, note_gaps=True), stage="correlations"),
        scaling,
        partial(standardise, feature_name=columns.feature_name, screening=Screening("mean")),
    )
    standard = _standard(features) if every is None else every.of(selected)
    found = cluster(columns, standard, plan=plans[0])
    full_cost = None
    if len(plans) == 1 or whole is None or every is None:
        kernel = Clusters(standard, np.arange(len(selected)), found.centres, codes, classes)
        state = read(kernel, stage="clusters")
        between = _shares(between_clusters(state.counts, state.sums), state.squares)
    else:
        kernel = Clusters(every, selected, found.centres, codes, classes)
        state = read(kernel, rows=whole.rows, plan=plans[1], stage="clusters")
        squares = between_clusters(state.counts, state.sums)
        between = _shares(squares[selected], state.squares[selected])
        best, total = known or cluster(whole, every, plan=plans[1]), float(state.squares.sum())
        cost = 1.0 - float(squares.sum()) / total
        full_cost = FullCost(cost, best.cost / total, best, every)
    with blas.all_cores():
        rank = effective_rank(correlation)
    likely = []
    if labels is None and chosen.matrix is not None:
        likely = likely_classes(chosen.matrix, chosen.k)
    return Evaluation(
        source=chosen.source,
        solver=None if chosen.applied else str(chosen.attrs["solver"]),
        made_of=None if chosen.applied else str(chosen.attrs["source"]),
        k=k,
        starts=starts,
        seed=seed,
        samples=columns.shape[0],
        selected=selected,
        names=None if names is None else [plain(name) for name in names],
        clustering=found,
        missing_values=int(features.missing.sum()),
        sizes=state.counts,
        between=between,
        mean_correlation=mean_correlation(correlation),
        effective_rank=rank,
        agreement=None if codes is None else agreement(state.contingency),
        full_cost=full_cost,
        seconds=time.perf_counter() - began,
        predicted_peak=max(plan.peak for plan in plans),
        peak=peak_memory(),
        concessions=_distinct(name for plan in plans for name in plan.concessions),
        described_by=_distinct(name for table in tables for name in along_samples(table)),
        likely_classes=tuple(likely),
    )


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _plan(matrix: Matrix, k: int, starts: int, request: PlanRequest, *, square: bool) -> Plan:
    """Plan K-means and other passes, of which one may keep a square matrix."""
    matrix.provenance.inventory()  # refuses a store whose chunks are not all there
    n, p = matrix.shape
    # Includes what the Gram matrix notes of missing values.
    state = 8 * (p + 1) * max(3 * (p + 1) if square else 0, k + 2)
    methods = kmeans_candidates(n, p, k, starts, state=state, kept=4 * n + 4 * state)
    return make_plan(table_of(matrix), methods, request)


def _long_run_note(plan: Plan, starts: int) -> str:
    n, p = plan.table.shape
    said = (
        f"K-means on {counted(p, 'features')} of {n:,} samples takes most of the time: each step "
        f"goes over all of them, from {counted(starts, 'starts')}"
    )
    return said + (Text("; fewer {starts} are sooner") if starts > 1 else "")


def _standard(features: Standardised) -> Standard:
    """Standardise columns that no selection was made from; constant ones become 0."""
    std = np.zeros_like(features.std)
    std[features.usable] = features.std[features.usable]
    return Standard(np.nan_to_num(features.mean), std)


def _shares(part: Float, whole: Float) -> Float:
    return np.divide(part, whole, where=whole > 0, out=np.zeros_like(part))


def _known_best(
    other: Evaluation, run: tuple[int, int, int, int, str], standard: Standard
) -> Clustering | None:
    """Return K-means on all features if another evaluation has run it in the same way."""
    full = other.full_cost
    if full is None:
        return None
    ran = (other.k, other.starts, other.seed, other.samples, full.clustering.method)
    return full.clustering if ran == run and full.standard.same_as(standard) else None

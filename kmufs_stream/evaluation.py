"""How well K-means on the chosen features finds clusters: against labels, and without any."""

from __future__ import annotations

import time
from collections.abc import Mapping
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
from kmufs_stream.streaming.kernels.kernel import Kernel, State
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
    """What the clustering found on the chosen features costs on all of them.

    Attributes
    ----------
    chosen : cost of that clustering over all usable features, as a share of their variance.
    best : the same of the best clustering that K-means found on all usable features.
    ratio : the one over the other: what guarantees of the form 1 + eps speak of.
    clustering : that best one.
    standard : by what it standardised the features.
    """

    chosen: float
    best: float
    ratio: float
    clustering: Clustering
    standard: Standard


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The measures of one selection.

    Attributes
    ----------
    source : str
        The selection, for people.
    k : int
        Clusters that were looked for.
    starts, seed : int
        Independent starts of K-means, and their seed.
    samples : int
        Samples that were clustered.
    selected : int64 array, shape (h,)
        Source indices, ascending.
    names : list or None
        Their labels.
    clustering : Clustering
        K-means on the chosen features.
    missing_values : int
        Of the chosen features, for which their means stand in.
    sizes : int64 array, shape (k,)
        Samples per cluster.
    between : float64 array, shape (h,)
        The share of each chosen feature's variance between the clusters.
    mean_correlation, effective_rank : float
        How far the chosen features repeat each other: the mean absolute correlation of two, and how
        many independent ones would have their spectrum.
    solver : str or None
        Of the selection; None of what apply wrote.
    made_of : str or None
        Where the data that were selected from lie; None of what apply wrote.
    agreement : Agreement or None
        With the classes, where ``labels`` were given.
    full_cost : FullCost or None
        The cost on all features, where ``data`` were given.
    described_by : tuple of str
        Coordinates of the samples, any of which may hold their classes.
    likely_classes : tuple of str
        Those of the selection that look like classes, the likeliest first; not looked for where
        ``labels`` are given.
    seconds : float
        Wall-clock seconds.
    predicted_peak : int
        Resident bytes that the plan allowed for, at most.
    concessions : tuple of str
        What was given up to fit the budget.
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
    concessions: tuple[str, ...]
    described_by: tuple[str, ...]
    likely_classes: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<Evaluation: K-means with k = {self.k} on {len(self.selected)} features>"

    def summary(self) -> dict[str, Any]:
        """The evaluation in plain JSON types; the keys are listed in docs/output.md."""
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
            "peak_rss_bytes": peak_memory(),
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
    """Cluster the samples by the chosen features, standardised, and judge what is found.

    Parameters
    ----------
    result : path, address or Zarr store
        A selection that :func:`kmufs_stream.select` wrote, or what :func:`kmufs_stream.apply` made
        with one, whose features are then standardised anew.
    labels : str, optional
        Variable along the samples, of the result or of ``data``, that holds the true classes;
        samples without one (NaN) are left out of the comparison.
    data : path, address, Zarr store or array, table in memory, or Matrix, optional
        The table that was selected from: whatever :func:`kmufs_stream.open_matrix` opens. Needed
        for the cost on all features, for a result that holds no data, and where rows were
        normalised. Transforms, where in it the table is, and which samples take part, are those of
        the result.
    k : int, optional
        Number of clusters; that of the selection by default.
    starts : int, default 10
        Independent starts of K-means, of which the one of least cost counts.
    seed : int, default 0
        Of these starts.
    beside : Evaluation, optional
        That of another result, to compare with. Where it was made of the same samples by the same
        ``data``, ``k``, ``starts`` and ``seed``, K-means on all features is not done once more.
    memory, threads, storage_options, progress
        See :func:`kmufs_stream.decompose`.

    Returns
    -------
    Evaluation
        The measures.

    Raises
    ------
    RequestError
        Not a selection, data that it was not made from, no such labels, or such as are among the
        chosen features, options out of range, a budget too small.
    BrokenError
        A chunk is missing or cannot be read.

    Notes
    -----
    What is missing counts as its feature's mean. Reads the chosen columns three times; where a
    standardised table is larger than 32 MB, once per Lloyd step more. With ``data`` all columns
    too, twice or more.
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
    columns = chosen.selected
    every = chosen.standard
    whole = None
    if data is not None:
        opened = open_like(place, data, storage_options=storage_options)
        whole = chosen.as_selected(densified(opened))
    resources = (k, starts, memory, threads, progress)
    read = _Reader(chosen.columns(whole), *resources, square=True)
    read_all = None
    if whole is not None and every is not None:
        read_all = _Reader(whole, *resources, square=False)
    n, h = read.matrix.shape
    names = chosen.labels if read.matrix.labels is None else read.matrix.labels
    codes, classes = None, 0
    looked_at = [read.matrix] if whole is None else [read.matrix, whole]
    if labels is not None:
        refuse_feature(labels, () if names is None else names, chosen.source)
        codes, classes = class_codes(labels, looked_at)
    known = None
    if read_all is not None and every is not None and beside is not None:
        asked = (k, starts, seed, n, read_all.plan.method)
        known = _known_best(beside, asked, every)
    for reader in (read,) if read_all is None or known is not None else (read, read_all):
        if reader.plan.method == "lloyd":
            progress(Noticed(_foretold(reader, starts)))

    scaling = Scaling.from_probe(dense(read_probe(read.matrix)), "float64")
    scatter = read(Gram(scaling, note_gaps=True), "correlations")
    features, correlation = correlation_matrix(
        scatter,
        scaling,
        partial(standardise, feature_name=read.matrix.feature_name, screening=Screening("mean")),
    )
    standard = _standard(features) if every is None else every.of(columns)
    found = kmeans(read.matrix, standard, k, read.plan, starts=starts, seed=seed, progress=progress)
    full_cost = None
    if read_all is None or every is None:
        kernel = Clusters(standard, np.arange(h), found.centres, codes, classes)
        state = read(kernel, "clusters")
        between = _shares(between_clusters(state.counts, state.sums), state.squares)
    else:
        state = read_all(Clusters(every, columns, found.centres, codes, classes), "clusters")
        squares = between_clusters(state.counts, state.sums)
        between = _shares(squares[columns], state.squares[columns])
        best = known or kmeans(
            read_all.matrix, every, k, read_all.plan, starts=starts, seed=seed, progress=progress
        )
        full_cost = _full_cost(float(squares.sum()), float(state.squares.sum()), best, every)
    with blas.all_cores():
        rank = effective_rank(correlation)
    plans = [read.plan] if read_all is None else [read.plan, read_all.plan]
    return Evaluation(
        source=chosen.source,
        solver=None if chosen.applied else str(chosen.attrs["solver"]),
        made_of=None if chosen.applied else str(chosen.attrs["source"]),
        k=k,
        starts=starts,
        seed=seed,
        samples=n,
        selected=columns,
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
        concessions=tuple(dict.fromkeys(c for plan in plans for c in plan.concessions)),
        described_by=tuple(dict.fromkeys(name for m in looked_at for name in along_samples(m))),
        likely_classes=tuple(likely_classes(chosen.matrix, chosen.k))
        if labels is None and chosen.matrix is not None
        else (),
    )


class _Reader:
    """Reads all rows of a matrix once for each kernel, under a plan that K-means fits too."""

    def __init__(
        self,
        matrix: Matrix,
        k: int,
        starts: int,
        memory: str | int | None,
        threads: int | None,
        progress: Progress,
        *,
        square: bool,
    ) -> None:
        matrix.provenance.inventory()  # refuses a store whose chunks are not all there
        self.matrix, self.progress = matrix, progress
        n, p = matrix.shape
        # With what the Gram matrix notes of missing values.
        state = 8 * (p + 1) * max(3 * (p + 1) if square else 0, k + 2)
        methods = kmeans_candidates(n, p, k, starts, state=state, kept=4 * n + 4 * state)
        request = PlanRequest(memory=memory, threads=threads)
        self.plan: Plan = make_plan(table_of(matrix), methods, request)
        progress(self.plan.resources)

    def __call__(self, kernel: Kernel[State], stage: str) -> State:
        return run_planned(
            kernel, rows=self.matrix.rows, plan=self.plan, stage=stage, progress=self.progress
        )


def _foretold(reader: _Reader, starts: int) -> str:
    """What K-means on a large table goes over, and what shortens it."""
    (n, p), kept = reader.matrix.shape, reader.plan.cached_rows
    held = "read again for each step"
    if kept:
        held = "read once and kept in memory" if kept >= n else f"{kept:,} of them kept in memory"
    said = (
        f"K-means on {counted(p, 'features')} of {n:,} samples ({held}) takes most of the time: "
        f"each step goes over all of them, from {counted(starts, 'starts')}"
    )
    return said + (Text("; fewer {starts} are sooner") if starts > 1 else "")


def _standard(features: Standardised) -> Standard:
    """Of columns that no selection was made from; those that do not vary count for nothing."""
    std = np.zeros_like(features.std)
    std[features.usable] = features.std[features.usable]
    return Standard(np.nan_to_num(features.mean), std)


def _shares(part: Float, whole: Float) -> Float:
    """One over the other, 0 where there is nothing of the other."""
    return np.divide(part, whole, where=whole > 0, out=np.zeros_like(part))


def _known_best(
    other: Evaluation, asked: tuple[int, int, int, int, str], standard: Standard
) -> Clustering | None:
    """K-means on all features, where another evaluation has run the very same."""
    full = other.full_cost
    if full is None:
        return None
    ran = (other.k, other.starts, other.seed, other.samples, full.clustering.method)
    return full.clustering if ran == asked and full.standard.same_as(standard) else None


def _full_cost(between: float, total: float, best: Clustering, standard: Standard) -> FullCost:
    """Both costs as shares of all variance; where rounding is all that is left, they tie."""
    chosen, least = 1.0 - between / total, best.cost / total
    ratio = chosen / least if least > ROUNDING else 1.0
    return FullCost(chosen, least, ratio, best, standard)

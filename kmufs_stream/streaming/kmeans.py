"""K-means on standardised features: by scikit-learn in memory, else by steps over all rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from kmufs_stream.events import SILENT, Progress, Started
from kmufs_stream.solvers.clustering import MAX_ITERATIONS, TOL, fit_kmeans
from kmufs_stream.sources import Matrix
from kmufs_stream.streaming.kernels.lloyd import SLAB_ROWS, Lloyd, Standard
from kmufs_stream.streaming.kernels.sample import TakeRows, sample_index, sample_size, stack
from kmufs_stream.streaming.passes import CachedRows, run_planned
from kmufs_stream.streaming.planning.plan import Plan
from kmufs_stream.streaming.planning.sizing import Candidate, Candidates, Cost
from kmufs_stream.typing import Float

# Standardised tables up to this size are clustered by scikit-learn. Larger ones have so many rows
# that starts on a sample of them end close by, and a few steps over all rows suffice.
IN_MEMORY_BYTES = 32_000_000


@dataclass(frozen=True)
class Clustering:
    """The best of several starts."""

    centres: Float  # (k, p), in standardised coordinates
    cost: float  # sum of squared distances of all rows to their nearest centres
    method: str  # scikit-learn or lloyd
    iterations: int  # of the best start, over all rows
    converged: bool  # the centres of the best start no longer moved


def kmeans_candidates(n: int, p: int, k: int, starts: int, *, state: int, kept: int) -> Candidates:
    """List the methods of clustering an n x p table, the preferred one first.

    Parameters
    ----------
    state : bytes of the largest state of other kernels that run under the same plan.
    kept : bytes that the caller holds meanwhile.
    """
    draws = 2 * (2 + int(math.log(k)))  # of k-means++, with a distance to each row
    slab = 8 * SLAB_ROWS * (2 * p + 2 * starts * k + 8)

    def in_memory(rows: int, itemsize: int) -> Cost:
        table = 8 * n * (2 * p + draws + 4) + kept
        return Cost(state, state + slab, table, table, kept, reads=1)

    def lloyd(rows: int, itemsize: int) -> Cost:
        step = max(8 * starts * k * (p + 2), state)
        sample = 8 * sample_size(n, 8 * p) * (2 * p + draws + 4)
        driver = sample + 3 * step + kept
        return Cost(step, state + slab, driver, driver, kept, reads=MAX_ITERATIONS)

    if 8 * n * p <= IN_MEMORY_BYTES:
        return {"scikit-learn": Candidate(in_memory), "lloyd": Candidate(lloyd)}
    return {"lloyd": Candidate(lloyd)}


def kmeans(
    matrix: Matrix,
    standard: Standard,
    k: int,
    plan: Plan,
    *,
    starts: int,
    seed: int,
    progress: Progress = SILENT,
) -> Clustering:
    """Cluster the rows of a matrix, on all its standardised features, into k clusters.

    Parameters
    ----------
    standard : means and standard deviations of the features.
    plan : made with :func:`kmeans_candidates`.
    starts, seed : independent k-means++ starts, of which the best is returned.

    Where the table does not fit, each start is scikit-learn's K-means on a uniform row sample,
    followed by full Lloyd steps over all rows, one read per step for all starts together. O(n k p
    starts) per iteration.
    """
    (n, p), rows = matrix.shape, matrix.rows
    if plan.cached_rows:
        rows = CachedRows(rows, plan.cached_rows)
    read = partial(run_planned, rows=rows, plan=plan, progress=progress)
    if plan.method == "scikit-learn":
        table = standard.rows(stack(read(TakeRows(np.arange(n)), stage="reading")))
        progress(Started("clustering"))
        fitted = fit_kmeans(table, k, starts=starts, seed=seed, copy=False)
        return Clustering(
            np.asarray(fitted.cluster_centers_, dtype=np.float64),
            float(fitted.inertia_),
            plan.method,
            int(fitted.n_iter_),
            bool(fitted.n_iter_ < MAX_ITERATIONS),
        )
    index = sample_index(n, sample_size(n, 8 * p))
    sample = standard.rows(stack(read(TakeRows(index), stage="sample")))
    progress(Started("clustering", total=starts, unit="starts"))
    # One start at a time: scikit-learn would return only the best of several.
    fits = (fit_kmeans(sample, k, starts=1, seed=seed + i, copy=False) for i in range(starts))
    centres = np.array([fitted.cluster_centers_ for fitted in fits])
    del sample
    cost = np.full(starts, np.inf)
    iterations = np.zeros(starts, np.int64)
    moving = np.arange(starts)
    for step in range(1, MAX_ITERATIONS + 1):
        state = read(Lloyd(standard, centres[moving]), stage="K-means step", number=step)
        cost[moving], iterations[moving] = state.cost, step
        counts = state.counts[:, :, None]
        # A cluster that has lost all its rows stays where it is.
        means = np.where(counts > 0, state.sums / np.maximum(counts, 1), centres[moving])
        moved = ((means - centres[moving]) ** 2).sum(axis=(1, 2)) > TOL
        moving = moving[moved]
        if not len(moving) or step == MAX_ITERATIONS:
            break
        centres[moving] = means[moved]
    best = int(np.argmin(cost))
    return Clustering(
        centres[best], float(cost[best]), plan.method, int(iterations[best]), best not in moving
    )

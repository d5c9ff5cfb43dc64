"""Features whose geometry agrees best with an ensemble of clusterings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from kmufs_stream.solvers.clustering import fit_kmeans
from kmufs_stream.solvers.correlations import Rows
from kmufs_stream.solvers.neighbours import embedding, unit_rows
from kmufs_stream.solvers.scores import check_h
from kmufs_stream.solvers.solution import Solution, UnsolvableError, Watcher, unwatched
from kmufs_stream.typing import Float, Int

CLIP = 2.5  # standard deviations at which values are clipped: a few outliers are not a cluster
NOTHING = 1e-6  # share of the largest eigenvalue up to which a component is rounding
BLOCK_ENTRIES = 2**20  # numbers in a block of the sample, or one row of it

Blocks = Callable[[], Iterator[Float]]
"""The standardised row sample, in the same blocks, (rows, p), each time."""


def consensus(
    components: Float,
    eigenvalues: Float,
    rows: Rows,
    sample: Blocks,
    h: int,
    *,
    tolerance: float,
    watch: Watcher = unwatched,
) -> Solution:
    """Choose h features, one by one, whose kernel is best aligned with an ensemble of K-means.

    The rows of the sample, clipped to 2.5 standard deviations, are projected on the leading k
    components and scaled to unit variance along each: to rows of Q_k, which Sun, Ding and Fan use
    for the indicators. Each is joined to its ten nearest. In the leading eigenvectors of that
    graph (:func:`~kmufs_stream.solvers.neighbours.embedding`) they are clustered twelve times,
    eight times into k clusters, twice into k/2 and twice into 2k: by K-means, in as many
    eigenvectors as clusters, each row scaled to unit length. With b_i the variance of feature i
    between clusters, averaged over the clusterings, and C the correlation matrix, every step takes
    the feature that most raises

        sum_{i in S} b_i / sqrt(sum_{i,j in S} C_ij^2),

    the centred alignment of the two samples x samples kernels ``Z_S Z_S^T`` and the mean of
    ``Y Y^T``, Y the normalised indicators (eq. 3 of Sun, Ding and Fan). A feature similar to the
    chosen ones raises the denominator more than the numerator. Alignments that differ by no more
    than a share ``tolerance`` tie. ``solver_objective`` is the alignment, 0 to 1.

    Raises ValueError also for a sample of fewer than two rows.

    O(m p k) for a sample of m rows, and up to O(m^2 k) for its neighbours; O(p h) for the choice,
    which takes one row of the correlation matrix per step. Deterministic: Lanczos and K-means
    start from fixed seeds.

    Source: Cortes, Mohri and Rostamizadeh (JMLR 2012) on centred alignment; Strehl and Ghosh
    (JMLR 2002) on cluster ensembles; Ng, Jordan and Weiss (NIPS 2001) on spectral clustering.
    """
    p = len(components)
    check_h(h, p)
    found = ensemble(components, eigenvalues, sample)
    aligned, length, crossed = 0.0, 0.0, np.zeros(p)  # crossed: sum over the chosen of C_ij^2
    free = np.ones(p, dtype=bool)
    selected = np.empty(h, np.int64)
    alignment = np.empty(h)
    for step in range(h):
        values = (aligned + found.between) / np.sqrt(length + 2 * crossed + 1.0)
        values[~free] = -1.0
        best = float(values.max())
        chosen = int(np.flatnonzero(values >= best - tolerance * abs(best))[0])
        aligned += float(found.between[chosen])
        length += float(2 * crossed[chosen] + 1.0)
        crossed += rows(np.array([chosen]))[0] ** 2
        free[chosen] = False
        selected[step] = chosen
        alignment[step] = aligned / (np.sqrt(length) * found.length)
        watch(solver_objective=float(alignment[step]))
    history = {"solver_objective": alignment}
    return Solution(np.sort(selected), float(alignment[-1]), iterations=h, history=history)


def cluster_counts(k: int) -> list[int]:
    """Return the number of clusters in each run of the ensemble."""
    return [k, k, k, k, max(k // 2, 2), 2 * k] * 2


def consensus_bytes(p: int, k: int, m: int) -> int:
    """Bound the working memory of :func:`consensus` for a sample of m rows, in bytes.

    The sums of every cluster, twice for a moment; the scores, the graph of neighbours with the
    vectors of the eigensolver (six blocks of 2k for LOBPCG, and products), K-means' copies;
    blocks of the sample, twice, and vectors of length p.
    """
    clusters = sum(cluster_counts(k))
    return 8 * (2 * clusters * p + m * (24 * k + 200) + 3 * BLOCK_ENTRIES + 16 * p) + 2**24


class Ensemble(NamedTuple):
    """Figures of an ensemble of clusterings."""

    between: Float  # (p,), variance of each feature between clusters, averaged over the runs
    length: float  # Frobenius norm of the mean of the runs' centred kernels Y Y^T


def ensemble(components: Float, eigenvalues: Float, sample: Blocks) -> Ensemble:
    """Cluster the sample several times, and measure every feature's variance between clusters."""
    p, k = components.shape
    # Scores of unit variance, or 0 where the component is rounding.
    scale = np.zeros(k)
    known = eigenvalues > NOTHING * eigenvalues[0]
    scale[known] = 1 / np.sqrt(eigenvalues[known])
    leading = components * scale
    scores = np.concatenate([leading[:0], *(clipped @ leading for clipped in _clipped(sample))])
    del leading
    m = len(scores)
    if m < 2:
        raise UnsolvableError(f"a sample of {m} rows cannot be clustered")
    members = _memberships(scores, k)
    sizes = np.asarray(members.sum(axis=1))
    sums = np.zeros((len(sizes), p))
    total = np.zeros(p)
    start = 0
    for clipped in _clipped(sample):
        sums += members[:, start : start + len(clipped)] @ clipped
        total += clipped.sum(axis=0)
        start += len(clipped)
    # Of cluster c: (n_c / m) (mean of c - mean)^2; every row is in one cluster of each run.
    runs = len(cluster_counts(k))
    sums /= np.sqrt(sizes * (m * runs))[:, None]
    sums -= np.sqrt(sizes / (m * runs))[:, None] * (total / m)
    between = np.einsum("ci,ci->i", sums, sums)
    shared = (members @ members.T).toarray()
    root = np.sqrt(np.outer(sizes, sizes))
    length = float(np.linalg.norm(shared / root - root / m)) / runs
    return Ensemble(between, length)


def _memberships(scores: Float, k: int) -> csr_array:
    """Return the clusters of all runs x samples: 1 where a sample is a member."""
    m = len(scores)
    labels: list[Int] = []
    clusters = 0
    vectors, place_of = embedding(scores, max(cluster_counts(k)))
    weights = np.bincount(place_of)
    # K-means draws by position, and places are sorted: the order of the rows does not matter.
    for seed, count in enumerate(cluster_counts(k)):
        points = unit_rows(vectors[:, :count])
        means = fit_kmeans(points, min(count, len(points)), starts=1, seed=seed, weights=weights)
        kept, found = np.unique(means.labels_[place_of], return_inverse=True)
        labels.append(found + clusters)
        clusters += len(kept)
    columns = np.tile(np.arange(m), len(labels))
    ones = np.ones(len(columns))
    return csr_array((ones, (np.concatenate(labels), columns)), shape=(clusters, m))


def _clipped(sample: Blocks) -> Iterator[Float]:
    for block in sample():
        yield np.clip(block, -CLIP, CLIP)

"""Measures of a clustering and of its features, as pure functions of small arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # loads its parts when they are used
from numpy.typing import NDArray

from kmufs_stream.typing import Float

COPIES = 0.95  # absolute correlation of features that say nearly the same


@dataclass(frozen=True)
class Agreement:
    """How far clusters and classes agree."""

    accuracy: float  # share of samples in their class, by the best matching of clusters to classes
    nmi: float  # mutual information over the arithmetic mean of the two entropies
    ari: float  # adjusted Rand index
    samples: int  # compared
    classes: int  # compared


def agreement(contingency: NDArray[np.int64]) -> Agreement:
    """Return accuracy, NMI and ARI from (k, c) counts of samples per cluster and class.

    Two partitions with one part each agree entirely. O(k c min(k, c)). Sources: Kuhn, "The
    Hungarian method" (1955); Strehl and Ghosh, "Cluster ensembles" (2002); Hubert and Arabie,
    "Comparing partitions" (1985). Raises ValueError where nothing was counted.
    """
    n = int(contingency.sum())
    if n == 0:
        raise ValueError("no samples to compare")
    rows, columns = contingency.sum(axis=1), contingency.sum(axis=0)
    matched = scipy.optimize.linear_sum_assignment(contingency, maximize=True)
    entropies = _entropy(rows / n), _entropy(columns / n)
    information = sum(entropies) - _entropy(contingency / n)
    mean = sum(entropies) / 2
    together, by_cluster, by_class = (_pairs(x) for x in (contingency, rows, columns))
    expected = by_cluster * by_class / max(_pairs(np.array([n])), 1.0)
    most = (by_cluster + by_class) / 2
    return Agreement(
        accuracy=int(contingency[matched].sum()) / n,
        nmi=1.0 if mean == 0 else float(np.clip(information / mean, 0.0, 1.0)),
        ari=1.0 if most == expected else float((together - expected) / (most - expected)),
        samples=n,
        classes=int((columns > 0).sum()),
    )


def _entropy(shares: Float) -> float:
    return float(scipy.special.entr(shares).sum())


def _pairs(counts: NDArray[np.int64]) -> float:
    counts = counts.astype(np.float64)
    return float((counts * (counts - 1) / 2).sum())


def between_clusters(counts: NDArray[np.int64], sums: Float) -> Float:
    """Return (p,) parts of the features' sums of squares that lie between clusters.

    ``counts`` are (k,) samples per cluster, ``sums`` (k, p) sums of the centred features by
    cluster. The rest of the sums of squares, over all features, is the K-means cost.
    """
    squares: Float = (sums**2 / np.maximum(counts, 1)[:, None]).sum(axis=0)
    return squares


def mean_correlation(correlation: Float) -> float:
    """Return the mean absolute correlation of two different features; 0 for a single one."""
    h = len(correlation)
    off_diagonal = np.abs(correlation).sum() - np.trace(np.abs(correlation))
    return float(off_diagonal / (h * (h - 1))) if h > 1 else 0.0


def near_copies(correlation: Float) -> NDArray[np.bool_]:
    """Find features that correlate with another by more than ``COPIES``, in absolute value."""
    strong = np.abs(correlation) > COPIES
    np.fill_diagonal(strong, False)
    return np.asarray(strong.any(axis=1), np.bool_)


def effective_rank(correlation: Float) -> float:
    """Return the exponential of the entropy of the correlation's spectrum, between 1 and h.

    Source: Roy and Vetterli, "The effective rank: a measure of effective dimensionality" (2007).
    O(h^3).
    """
    values = np.maximum(np.linalg.eigvalsh(correlation), 0.0)
    return float(np.exp(_entropy(values / values.sum())))

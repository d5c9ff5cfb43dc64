"""How much of the cluster structure features explain, and what k and h the data suggest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.linalg

from kmufs_stream.factors.factor import Factor
from kmufs_stream.factors.noise import noise_edge
from kmufs_stream.typing import Float, Int

SINGULAR = 1e-10  # share of a feature's variance, left by others, that counts as none
MOST_CLUSTERS = 20  # that the noise edge is trusted with
LEAST_BEND = 0.1  # least height of a knee above the line between a curve's ends


@dataclass(frozen=True)
class ClusterStructure:
    """Correlations of features with each other and with the columns of Q, Z = Q S P^T."""

    features: Int  # (f,), ascending indices of usable features
    correlation: Float  # (f, f)
    cross: Float  # (f, r)
    total: Float  # (r,), mean squares of the columns of sqrt(n) Q: 1 over all rows
    tolerance: float  # share of variance that rounding may leave

    def of(self, selected: Int) -> tuple[Float, Int]:
        """Return the correlation matrix of some of these features, and their positions."""
        places = np.searchsorted(self.features, selected)
        return self.correlation[np.ix_(places, places)], places

    def explained(self, selected: Int, k: int) -> float:
        """Return the share of Q_k, the relaxed cluster indicators, in the span of h features.

        1 - ||Q_k - proj Q_k||_F^2 / ||Q_k||_F^2, between 0 and 1: what column subset selection
        maximises. O(h^3 + h^2 k), by a pivoted Cholesky factor, which skips copies.
        """
        correlation, places = self.of(selected)
        factor, pivots, rank, _ = scipy.linalg.lapack.dpstrf(
            correlation, tol=self.tolerance, lower=1
        )
        cross = self.cross[places[pivots[:rank] - 1], :k]
        solved = scipy.linalg.solve_triangular(
            factor[:rank, :rank], cross, lower=True, check_finite=False
        )
        return float(np.clip((solved**2).sum() / self.total[:k].sum(), 0.0, 1.0))


def cluster_structure(factor: Factor, features: Int) -> ClusterStructure:
    """Return the structure of f usable features, from the row sample: O(m u r + m f^2).

    A factor with a correlation matrix gives that of all features, without copies.
    """
    if factor.correlation is not None:
        return ClusterStructure(
            features=np.arange(len(factor.correlation)),
            correlation=factor.correlation,
            cross=factor.components * np.sqrt(factor.eigenvalues),
            total=np.ones(len(factor.eigenvalues)),
            tolerance=max(factor.tie, SINGULAR),
        )
    f, r = len(features), factor.rank
    squares, cross, total = np.zeros((f, f)), np.zeros((f, r)), np.zeros(r)
    to_scores = factor.components[:, :r] / np.sqrt(factor.eigenvalues[:r])
    for rows in factor.sample_blocks():
        some, scores = rows[:, features], rows @ to_scores
        squares += some.T @ some
        cross += some.T @ scores
        total += np.einsum("ij,ij->j", scores, scores)
    m = len(factor.sample.index)
    inverse = _to_correlations(squares)
    return ClusterStructure(
        features=features,
        correlation=squares,
        cross=cross * inverse[:, None] / np.sqrt(m),
        total=total / m,
        tolerance=SINGULAR,
    )


def correlation_of(factor: Factor, features: Int) -> Float:
    """Return the (f, f) correlation matrix of f usable features.

    From the row sample where the factor does not hold it: O(m f^2), some MB and the result.
    """
    if factor.correlation is not None:
        return factor.correlation[np.ix_(features, features)]
    squares = np.zeros((len(features), len(features)))
    for block in factor.sample_blocks(features):
        squares += block.T @ block
    _to_correlations(squares)
    np.fill_diagonal(squares, 1.0)
    return squares


def _to_correlations(squares: Float) -> Float:
    """Scale sums of products to correlations, in place; return the (f,) factors.

    A feature that is constant in the sample correlates with none.
    """
    scale = np.sqrt(squares.diagonal())
    inverse = np.divide(1.0, scale, where=scale > 0, out=np.zeros(len(scale)))
    squares *= inverse
    squares *= inverse[:, None]
    return inverse


@dataclass(frozen=True)
class KSuggestion:
    """A number of clusters suggested by the spectrum.

    Attributes
    ----------
    k : one more than the components that stand out; None where none does.
    by : what separates these from the others: ``noise edge`` or ``widest gap``.
    widest_gap : clusters by the widest gap alone, among the components above noise. Planted
        clusters are mostly counted right where it agrees with the noise edge, else mostly not.
    above_noise : components above what noise alone would give.
    noise_edge : largest eigenvalue that noise alone would give.
    components : components known.
    """

    k: int | None
    by: Literal["noise edge", "widest gap"]
    widest_gap: int | None
    above_noise: int
    noise_edge: float
    components: int


def suggest_k(factor: Factor) -> KSuggestion:
    """Suggest k from a factor's spectrum: by the Marchenko-Pastur edge, or else the widest gap.

    k separated clusters span k - 1 directions, so j components that stand out suggest j + 1
    clusters. The spectrum of u independent features ends at the edge (1 + sqrt(u / n))^2, which
    parallel analysis finds by permuting them. Real features correlate for other reasons too: where
    more than ``MOST_CLUSTERS`` components, or all of the factor, lie above the edge, the
    components before the widest relative gap are taken; see `tests/benchmarks/suggested.py`.
    Sources: Marchenko and Pastur (1967); Horn, "A rationale and test for the number of factors in
    factor analysis" (1965).
    """
    values = factor.eigenvalues
    edge = noise_edge(len(factor.components), factor.features.samples)
    above = int((values > edge).sum())
    if not above:
        return KSuggestion(None, "noise edge", None, above, edge, len(values))
    # An eigenvalue after the last one known is at most as large.
    following = np.maximum(np.append(values[1:], values[-1]), np.finfo(float).tiny)
    gap = int(np.argmax(values[:above] / following[:above])) + 2
    if above <= min(MOST_CLUSTERS, len(values) - 1):
        return KSuggestion(above + 1, "noise edge", gap, above, edge, len(values))
    return KSuggestion(gap, "widest gap", gap, above, edge, len(values))


def knee(h: Sequence[int], explained: Sequence[float]) -> int | None:
    """Find the h where a curve bends: farthest above the line from (0, 0) to its end.

    None where the curve is nearly straight, its height above the line less than ``LEAST_BEND`` of
    its end, or where it bends before a first h above 1, which has not been measured. Source:
    Satopaa, Albrecht, Irwin and Raghavan, "Finding a kneedle in a haystack" (2011).
    """
    x = np.array([0, *h], dtype=np.float64)
    y = np.array([0.0, *explained])
    if y[-1] <= 0:
        return None
    above = y / y[-1] - x / x[-1]
    best = int(np.argmax(above))
    unseen = best == 1 and h[0] > 1
    return int(h[best - 1]) if above[best] >= LEAST_BEND and not unseen else None

"""What features explain of the cluster structure, how many to take, and how many clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.linalg

from kmufs_stream.factors.factor import Factor
from kmufs_stream.factors.noise import noise_edge
from kmufs_stream.typing import Float, Int

SINGULAR = 1e-10  # a share of a feature's variance that others leave, and that is none
MOST_CLUSTERS = 20  # that a spectrum is looked through for
LEAST_BEND = 0.1  # of a knee's height: how far above the line between a curve's ends it is


@dataclass(frozen=True)
class ClusterStructure:
    """How some features relate to each other and to the leading components, in correlations.

    Attributes
    ----------
    features : (f,) int64, ascending, which of the usable features.
    correlation : (f, f) float64, of these features.
    cross : (f, r) float64, of these features with the columns of Q, Z = Q S P^T.
    total : (r,) float64, mean squares of the columns of sqrt(n) Q: 1 over all rows.
    tolerance : a share of variance that rounding alone may leave.
    """

    features: Int
    correlation: Float
    cross: Float
    total: Float
    tolerance: float

    def of(self, selected: Int) -> tuple[Float, Int]:
        """The correlation matrix of some of these features, and their places."""
        places = np.searchsorted(self.features, selected)
        return self.correlation[np.ix_(places, places)], places

    def explained(self, selected: Int, k: int) -> float:
        """The share of Q_k, the relaxed cluster indicators, in the span of some features.

        1 - ||Q_k - proj Q_k||_F^2 / ||Q_k||_F^2, between 0 and 1: what column subset selection
        maximises. O(h^3 + h^2 k), by a pivoted Cholesky factor, which passes over copies.
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
    """The structure of some usable features, at least: from the row sample, O(m u r + m f^2).

    A factor that holds the correlation matrix gives that of all of them, and nothing is copied.
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
    # A feature that is constant within the sample explains nothing there.
    scale = np.sqrt(squares.diagonal())
    inverse = np.divide(1.0, scale, where=scale > 0, out=np.zeros(f))
    squares *= inverse
    squares *= inverse[:, None]
    return ClusterStructure(
        features=features,
        correlation=squares,
        cross=cross * inverse[:, None] / np.sqrt(m),
        total=total / m,
        tolerance=SINGULAR,
    )


def correlation_of(factor: Factor, features: Int) -> Float:
    """The (f, f) correlation matrix of some usable features.

    From the row sample where the factor does not hold it: O(m f^2), some MB and the result; a
    feature that is constant there correlates with no other.
    """
    if factor.correlation is not None:
        return factor.correlation[np.ix_(features, features)]
    squares = np.zeros((len(features), len(features)))
    for block in factor.sample_blocks(features):
        squares += block.T @ block
    scale = np.sqrt(squares.diagonal())
    inverse = np.divide(1.0, scale, where=scale > 0, out=np.zeros(len(scale)))
    squares *= inverse
    squares *= inverse[:, None]
    np.fill_diagonal(squares, 1.0)
    return squares


@dataclass(frozen=True)
class KSuggestion:
    """How many clusters the spectrum speaks for: a suggestion, no more.

    Attributes
    ----------
    k : clusters, one more than the components that stand out; None where none does.
    by : what tells these from the others: ``noise edge`` or ``widest gap``.
    widest_gap : clusters by the widest gap alone, among the components above noise. Where it
        agrees with the noise edge, planted clusters are mostly counted right, else mostly not.
    above_noise : components above what noise alone would give.
    noise_edge : the largest eigenvalue that noise alone would give.
    components : how many were looked at.
    """

    k: int | None
    by: Literal["noise edge", "widest gap"]
    widest_gap: int | None
    above_noise: int
    noise_edge: float
    components: int


def suggest_k(factor: Factor) -> KSuggestion:
    """Suggest k from a factor's spectrum: by the Marchenko-Pastur edge, or else the widest gap.

    k separated clusters span k - 1 directions, so j components that stand out speak for j + 1
    clusters. The edge (1 + sqrt(u / n))^2 is where the spectrum of u independent features ends,
    what parallel analysis finds by permuting them. Real features correlate for other reasons than
    clusters too: where more than ``MOST_CLUSTERS`` components, or all that the factor holds, lie
    above the edge, it tells nothing, and those before the widest relative gap stand out;
    `tests/benchmarks/suggested.py` measures it. Sources: Marchenko and Pastur (1967); Horn, "A
    rationale and test for the number of factors in factor analysis" (1965).
    """
    values = factor.eigenvalues
    edge = noise_edge(len(factor.components), factor.features.samples)
    above = int((values > edge).sum())
    if not above:
        return KSuggestion(None, "noise edge", None, above, edge, len(values))
    # What comes after the last component that is known is at most as large as that.
    following = np.maximum(np.append(values[1:], values[-1]), np.finfo(float).tiny)
    gap = int(np.argmax(values[:above] / following[:above])) + 2
    if above <= min(MOST_CLUSTERS, len(values) - 1):
        return KSuggestion(above + 1, "noise edge", gap, above, edge, len(values))
    return KSuggestion(gap, "widest gap", gap, above, edge, len(values))


def knee(h: Sequence[int], explained: Sequence[float]) -> int | None:
    """The h where a curve of what is explained bends: farthest above the line between its ends.

    The curve starts at (0, 0); heights are shares of its end. None where it rises above that line
    by less than ``LEAST_BEND``, being nearly straight, or where it bends before the first h, unless
    that is 1: nobody has looked there. Source: Satopaa, Albrecht, Irwin and Raghavan, "Finding a
    kneedle in a haystack" (2011).
    """
    x = np.array([0, *h], dtype=np.float64)
    y = np.array([0.0, *explained])
    if y[-1] <= 0:
        return None
    above = y / y[-1] - x / x[-1]
    best = int(np.argmax(above))
    unseen = best == 1 and h[0] > 1
    return int(h[best - 1]) if above[best] >= LEAST_BEND and not unseen else None

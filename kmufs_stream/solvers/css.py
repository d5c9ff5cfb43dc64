"""Column subset selection against the leading subspace, greedily."""

from __future__ import annotations

import numpy as np

from kmufs_stream.solvers.correlations import Rows
from kmufs_stream.solvers.scores import check_h, feature_scores, ranking
from kmufs_stream.solvers.solution import Solution, Watcher, unwatched
from kmufs_stream.typing import Float

SPANNED = 1e-9  # variance left of a feature that lies in the span of the chosen ones


def css(
    components: Float,
    eigenvalues: Float,
    rows: Rows,
    h: int,
    *,
    tolerance: float,
    watch: Watcher = unwatched,
) -> Solution:
    """Choose h features, one by one, whose span comes closest to the leading subspace Q_k.

    Every step takes the feature that most reduces ``||Q_k - proj_span(chosen) Q_k||_F``:
    orthogonal matching pursuit with k targets. A copy of a chosen feature gains nothing. Gains
    that differ by no more than a share ``tolerance`` of the largest tie. Once nothing is left to
    gain, the features with the highest scores follow. ``solver_objective`` is
    ``||proj_span(chosen) Q_k||_F^2``, at most k.

    One row of the correlation matrix per step, O(p h^2 + p h k) in all: only the row of a chosen
    feature is deflated by those chosen before (a left-looking pivoted Cholesky factorisation), so
    the p x p matrix is neither copied nor updated.

    Source: Boutsidis, Mahoney and Drineas (arXiv 0812.4293) on the problem and its guarantees;
    Farahat, Ghodsi and Kamel (ICDM 2011) on the greedy recursion.
    """
    scores = feature_scores(components, eigenvalues, np.size(eigenvalues))
    p = scores.size
    check_h(h, p)
    targets = components * np.sqrt(eigenvalues)  # Z^T Q_k / sqrt(n)
    left = np.ones(p)  # variance of each feature that the chosen ones leave
    factor = np.empty((h, p))  # row t: the t-th chosen feature, deflated, against all
    free = np.ones(p, dtype=bool)
    selected = np.empty(h, np.int64)
    explained = np.zeros(h + 1)
    for step in range(h):
        gains = np.zeros(p)
        able = free & (left > SPANNED)
        gains[able] = np.einsum("ij,ij->i", targets, targets)[able] / left[able]
        best = float(gains.max())
        if best <= SPANNED:
            rest = ranking(np.where(free, scores, -1.0), tolerance)[: h - step]
            selected[step:] = rest
            explained[step + 1 :] = explained[step]
            break
        chosen = int(np.flatnonzero(gains >= best * (1 - tolerance))[0])
        row = rows(np.array([chosen]))[0] - factor[:step, chosen] @ factor[:step]
        root = np.sqrt(left[chosen])
        factor[step] = row / root
        targets -= np.outer(factor[step], targets[chosen] / root)
        left -= factor[step] ** 2
        explained[step + 1] = explained[step] + gains[chosen]
        selected[step] = chosen
        free[chosen] = False
        watch(solver_objective=float(explained[step + 1]))
    history = {"solver_objective": explained[1:]}
    return Solution(np.sort(selected), float(explained[-1]), iterations=h, history=history)


def css_bytes(p: int, k: int, h: int) -> int:
    """Bound the working memory of :func:`css`, in bytes."""
    return 8 * (p * h + 4 * p * k + 16 * p) + 2**20

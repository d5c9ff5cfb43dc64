"""Column subset selection against the leading subspace, greedily."""

from __future__ import annotations

import numpy as np

from kmufs_stream.solvers.correlations import Rows
from kmufs_stream.solvers.scores import feature_scores, ranking
from kmufs_stream.solvers.solution import Solution, Watcher, unwatched
from kmufs_stream.typing import Float

SPANNED = 1e-9
"""A feature of which less variance than this is left lies in the span of the chosen ones."""


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
    orthogonal matching pursuit with k targets. A copy of a chosen feature gains nothing.

    Parameters
    ----------
    components : float array, shape (p, k)
        Orthonormal columns P_k.
    eigenvalues : float array, shape (k,)
        ``s_j^2 / n``.
    rows : from indices to rows of the correlation matrix.
    h : int
        Number of features to choose, 1..p.
    tolerance : float
        Gains that differ by no more than this share of the largest tie, lower index first.
    watch : told of each step.

    Returns
    -------
    Solution
        ``solver_objective`` is ``||proj_span(chosen) Q_k||_F^2``, k at most;
        ``history["solver_objective"]`` has it after each step. Once nothing is left to gain, the
        highest scores fill up.

    Raises
    ------
    ValueError
        Shapes that disagree, or h outside 1..p.

    Notes
    -----
    One row of the correlation matrix per step, O(p h^2 + p h k) in all: the row is deflated by the
    features chosen before when it is needed (a pivoted Cholesky factorisation that looks left),
    so the p x p matrix is neither copied nor updated. :func:`css_bytes` of memory.

    Source: Boutsidis, Mahoney and Drineas (arXiv 0812.4293) on the problem and its guarantees;
    Farahat, Ghodsi and Kamel (ICDM 2011) on the greedy recursion.
    """
    scores = feature_scores(components, eigenvalues, np.size(eigenvalues))
    p = scores.size
    if not 1 <= h <= p:
        raise ValueError(f"h is {h}; it must lie between 1 and the {p} features")
    targets = components * np.sqrt(eigenvalues)  # Z^T Q_k / sqrt(n)
    left = np.ones(p)  # variance that the chosen features leave of each
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
    return Solution(
        selected=np.sort(selected),
        solver_objective=float(explained[-1]),
        iterations=h,
        converged=True,
        primal_residuals=None,
        history={"solver_objective": explained[1:]},
    )


def css_bytes(p: int, k: int, h: int) -> int:
    """Peak working memory of :func:`css` in bytes, an upper bound, its arguments excluded."""
    return 8 * (p * h + 4 * p * k + 16 * p) + 2**20

"""The model's optimum in closed form."""

from __future__ import annotations

import numpy as np

from kmufs_stream.solvers.scores import feature_scores, ranking
from kmufs_stream.solvers.solution import Solution
from kmufs_stream.typing import Float


def exact(components: Float, eigenvalues: Float, h: int, *, tolerance: float) -> Solution:
    """Choose the h features with the highest scores.

    With a 0/1 selection matrix S, ``Tr(S^T A S)`` is the sum of the chosen diagonal entries of
    A, so these h features maximise it.

    Parameters
    ----------
    components : float array, shape (p, k)
        Orthonormal columns P_k.
    eigenvalues : float array, shape (k,)
        ``s_j^2 / n``.
    h : int
        Number of features to choose, 1..p.
    tolerance : float
        Scores this close tie, and ties go to the lower index (see :func:`ranking`).

    Returns
    -------
    Solution
        Zero iterations, converged, no residuals, no history.

    Raises
    ------
    ValueError
        Shapes that disagree, or h outside 1..p.

    Notes
    -----
    O(p k + p log p). The model is that of Sun, Ding and Fan (arXiv 2411.15197), who call it
    NP-hard and do not use this.
    """
    scores = feature_scores(components, eigenvalues, np.size(eigenvalues))
    if not 1 <= h <= scores.size:
        raise ValueError(f"h is {h}; it must lie between 1 and the {scores.size} features")
    selected = np.sort(ranking(scores, tolerance)[:h])
    return Solution(
        selected=selected,
        solver_objective=float(scores[selected].sum()),
        iterations=0,
        converged=True,
        primal_residuals=None,
    )

"""The model's optimum in closed form."""

from __future__ import annotations

import numpy as np

from kmufs_stream.solvers.scores import check_h, feature_scores, ranking
from kmufs_stream.solvers.solution import Solution
from kmufs_stream.typing import Float


def exact(components: Float, eigenvalues: Float, h: int, *, tolerance: float) -> Solution:
    """Choose the h features with the highest scores, ties by :func:`ranking`.

    With a 0/1 selection matrix S, ``Tr(S^T A S)`` is the sum of the chosen diagonal entries of A,
    so these features maximise it. O(p k + p log p). Sun, Ding and Fan (arXiv 2411.15197), whose
    model this is, call it NP-hard and do not use this.
    """
    scores = feature_scores(components, eigenvalues, np.size(eigenvalues))
    check_h(h, scores.size)
    selected = np.sort(ranking(scores, tolerance)[:h])
    return Solution(selected, float(scores[selected].sum()))

"""NDFS: Li, Yang, Liu, Zhou and Lu, "Unsupervised feature selection using nonnegative spectral
analysis" (2012), in the paper's form."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from examples.paper.fit import Fit
from examples.paper.graph import Graph
from examples.paper.nonnegative import blurred, penalty, ridge, row_norms, towards

Float = NDArray[np.float64]


def ndfs(
    Z: Float, graph: Graph, Y: Float, *, alpha: float, beta: float, iterations: int = 30
) -> Fit:
    """min Tr(Y^T L Y) + alpha ||Z W - Y||_F^2 + beta sum_j ||W_j||, Y^T Y = I, Y >= 0.

    Parameters
    ----------
    Z : (n, p) standardised.
    Y : (n, k) indicators to start from.
    alpha, beta : above 0.

    W is found in closed form with the current weights 1 / (2 ||W_j||), then Y at that W; the
    source puts the closed form for W into the step of Y. O(n p^2 + p^3) per iteration.
    """
    Y = blurred(Y)
    n, p = Z.shape
    weights, ridges = np.full(n, alpha), np.full(p, beta)
    objective = []
    for _ in range(iterations):
        W = ridge(Z, Y, weights, ridges)
        norms = row_norms(W)
        ridges = beta / (2 * norms)
        fitted = Z @ W
        Y = towards(Y, (1 + alpha) * Y, graph.normalised @ Y, alpha * fitted)
        misfit = alpha * np.linalg.norm(fitted - Y) ** 2
        objective.append(graph.roughness(Y) + misfit + beta * float(norms.sum()) + penalty(Y))
    return Fit(W, Y, np.array(objective))

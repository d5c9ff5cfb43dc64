"""RUFS: Qian and Zhai, "Robust unsupervised feature selection" (2013), in the paper's
form."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from examples.paper.fit import Fit
from examples.paper.graph import Graph
from examples.paper.nonnegative import TINY, blurred, penalty, ridge, row_norms, towards

Float = NDArray[np.float64]


def rufs(
    Z: Float,
    graph: Graph,
    Y: Float,
    *,
    alpha: float,
    beta: float,
    nu: float = 1.0,
    iterations: int = 30,
) -> Fit:
    """min sum_i ||Z_i - Y_i C^T|| + nu Tr(Y^T L Y) + alpha sum_i ||Z_i W - Y_i||
    + beta sum_j ||W_j||, Y^T Y = I, Y >= 0, C >= 0.

    Parameters
    ----------
    Z : (n, p) standardised.
    Y : (n, k) indicators to start from.
    alpha, beta, nu : above 0; the paper does not tune nu.

    Each norm is bounded by a square with the current weights 1 / (2 norm); then C and Y are found
    by multiplicative steps and W in closed form, where the source uses L-BFGS.
    O(n p^2 + p^3) per iteration.
    """
    Y = blurred(Y)
    C = np.maximum(Z.T @ Y, TINY)
    W = ridge(Z, Y, np.full(len(Z), alpha), np.full(Z.shape[1], beta))
    objective = []
    for _ in range(iterations):
        near = 1 / (2 * row_norms(Z - Y @ C.T))
        fit = alpha / (2 * row_norms(Z @ W - Y))
        W = ridge(Z, Y, fit, beta / (2 * row_norms(W)))
        weighted = near[:, None] * Y
        pull = Z.T @ weighted
        up, down = np.maximum(pull, 0), C @ (Y.T @ weighted) + np.maximum(-pull, 0)
        C = np.maximum(C * np.sqrt(up / down), TINY**2)
        rising = weighted @ (C.T @ C) + (fit[:, None] + nu) * Y
        linear = near[:, None] * (Z @ C) + fit[:, None] * (Z @ W)
        Y = towards(Y, rising, nu * (graph.normalised @ Y), linear)
        norms = row_norms(W)
        objective.append(
            float(row_norms(Z - Y @ C.T).sum())
            + nu * graph.roughness(Y)
            + alpha * float(row_norms(Z @ W - Y).sum())
            + beta * float(norms.sum())
            + penalty(Y)
        )
    return Fit(W, Y, np.array(objective))

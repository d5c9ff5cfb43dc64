"""EUFS: Wang, Tang and Liu, "Embedded unsupervised feature selection" (2015), in the
paper's form."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from examples.paper.fit import Fit
from examples.paper.graph import Graph
from examples.paper.nonnegative import blurred, penalty, row_norms, towards

Float = NDArray[np.float64]


def eufs(
    Z: Float, graph: Graph, Y: Float, *, beta: float, nu: float = 1.0, iterations: int = 30
) -> Fit:
    """min sum_i ||Z_i - Y_i V^T|| + nu Tr(Y^T L Y) + beta sum_j ||V_j||, Y^T Y = I, Y >= 0.

    Parameters
    ----------
    Z : (n, p) standardised.
    Y : (n, k) indicators to start from.
    beta, nu : above 0; the paper does not tune nu.

    Each norm is bounded by a square with the current weights 1 / (2 norm); then V is found in
    closed form and Y by a multiplicative step. The source's ADMM with its growing penalty stalled
    before Y >= 0 held (entries to -0.28 on MicroMass), so it is not used. O(n p k) per iteration.
    """
    Y = blurred(Y)
    V = Z.T @ Y
    objective = []
    for _ in range(iterations):
        near = 1 / (2 * row_norms(Z - Y @ V.T))
        weighted = near[:, None] * Y
        values, basis = np.linalg.eigh(Y.T @ weighted)
        ridges = beta / (2 * row_norms(V))
        V = (Z.T @ weighted @ basis) / (values + ridges[:, None]) @ basis.T
        inner = V.T @ V
        rising = weighted @ np.maximum(inner, 0) + nu * Y
        falling = weighted @ np.maximum(-inner, 0) + nu * (graph.normalised @ Y)
        Y = towards(Y, rising, falling, near[:, None] * (Z @ V))
        norms = row_norms(V)
        objective.append(
            float(row_norms(Z - Y @ V.T).sum())
            + nu * graph.roughness(Y)
            + beta * float(norms.sum())
            + penalty(Y)
        )
    return Fit(V, Y, np.array(objective))

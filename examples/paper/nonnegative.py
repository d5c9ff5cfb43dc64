"""Steps that NDFS, RUFS and EUFS share: reweighted norms, and indicators that stay positive.

The orthogonality Y^T Y = I is a penalty gamma/2 ||Y^T Y - I||^2, as in both sources. Their rule
multiplies Y by the negative over the positive part of the gradient. To the power 1/4 it minimises
an upper bound that touches the objective at the current Y (the inequalities of Ding, Li and
Jordan, "Convex and semi-nonnegative matrix factorizations", 2010, with the quartic term): the
fixed points are those of the sources, and the objective cannot rise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]

GAMMA = 1e8  # weight of the orthogonality, as in the sources
TINY = 1e-8  # smooths norms at 0, and keeps indicators positive
BLUR = 0.2  # added to the first indicators, since multiplicative steps cannot leave 0


def blurred(Y: Float) -> Float:
    """Move orthonormal indicators (n, k) away from 0, with columns of unit length."""
    moved = (Y > 0) + BLUR
    return np.asarray(moved / np.linalg.norm(moved, axis=0))


def row_norms(R: Float) -> Float:
    """Return smoothed 2-norms of the rows: (||r||^2 + TINY^2)^1/2."""
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", R, R) + TINY**2))


def penalty(Y: Float) -> float:
    """Return gamma/2 ||Y^T Y - I||_F^2."""
    return float(GAMMA / 2 * np.linalg.norm(Y.T @ Y - np.eye(Y.shape[1])) ** 2)


def towards(Y: Float, rising: Float, falling: Float, linear: Float) -> Float:
    """Return the next Y for a quadratic objective plus the penalty.

    Parameters
    ----------
    Y : (n, k) positive.
    rising, falling : (n, k) not negative, P Y and N Y where the objective is
        Tr(Y^T (P - N) Y) - 2 Tr(Y^T B) and P and N are symmetric and not negative.
    linear : (n, k) B, of any sign.
    """
    up = falling + GAMMA * Y + np.maximum(linear, 0)
    down = rising + GAMMA * Y @ (Y.T @ Y) + np.maximum(-linear, 0)
    return np.asarray(np.maximum(Y * (up / down) ** 0.25, TINY**2))


def ridge(Z: Float, Y: Float, weights: Float, ridges: Float) -> Float:
    """Return the W that minimises sum_i weights_i ||Z_i W - Y_i||^2 + sum_j ridges_j ||W_j||^2.

    O(n p^2 + p^3), or with fewer samples than features O(n^2 p + n^3).
    """
    root = np.sqrt(weights)[:, None]
    Z, Y = Z * root, Y * root
    scaled = Z / np.sqrt(ridges)
    n, p = Z.shape
    # In coordinates where all ridges are 1: well scaled however far features have shrunk.
    if p <= n:
        inner = np.linalg.solve(scaled.T @ scaled + np.eye(p), scaled.T @ Y)
    else:
        inner = scaled.T @ np.linalg.solve(scaled @ scaled.T + np.eye(n), Y)
    return np.asarray(inner / np.sqrt(ridges)[:, None])

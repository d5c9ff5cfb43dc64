"""SF2SOG: Wang, Zhang, Bian, Wang, Nie and Li, "Sparse and flexible projections for unsupervised
feature selection" (2023), in the paper's form.

Neither that form nor the source's abstract says how to treat the following: as G is not symmetric,
its Laplacian is that of (G + G^T) / 2, unnormalised, since rows of G sum to 1; the rows of S are
made to sum to 1, too; G has no loops. The constraint to h rows is met as in Tian, Nie, Wang and
Li, "Learning feature sparse principal subspace" (2020), by the same group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.metrics import pairwise_distances

from examples.paper.graph import Graph

Float = NDArray[np.float64]

SETTLED = 1e-3  # share of the objective by which it must fall to go on
NOTHING = 1e-15  # share of lambda ||Z||_F^2 at which the objective is rounding
SUBSPACE_STEPS = 20


@dataclass(frozen=True, eq=False)
class Projection:
    """A sparse projection.

    Attributes
    ----------
    weights : (p, k) W: orthonormal columns, at most h rows that are not 0.
    selected : (h,) those rows, ascending.
    embedding : (n, k) Y.
    graph : (n, n) G: entries between 0 and 1, rows that sum to 1.
    objective : (iterations,) value minimised, after each iteration.
    """

    weights: Float
    selected: NDArray[np.int64]
    embedding: Float
    graph: Float
    objective: Float


def sf2sog(
    Z: Float, graph: Graph, k: int, h: int, *, lambda_: float, gamma: float, iterations: int = 5
) -> Projection:
    """min Tr(Y^T L_G Y) + lambda ||Z W - Y||_F^2 + gamma ||G - S||_F^2, W^T W = I with h rows.

    Parameters
    ----------
    Z : (n, p) standardised.
    k, h : columns of W, and rows that are not 0; k <= h.
    lambda_, gamma : above 0.

    The closed form of Y is put into the step of W, an ascent on ``eta I - B``; then G is found
    exactly, row by row. Ends early if the objective hardly falls. O(n^3 + n^2 p + p^3) per
    iteration.
    """
    similarity = graph.similarity.toarray() / graph.degrees[:, None]
    smooth, B = without_embedding(Z, similarity, lambda_)
    chosen = first_rows(B, k, h)
    nothing = NOTHING * lambda_ * float(np.vdot(Z, Z))
    objective: list[float] = []
    while True:
        W, chosen = least_subspace(B, k, chosen)
        Y = smooth @ W
        distances = pairwise_distances(Y, metric="sqeuclidean")
        G = nearest_graph(similarity - distances / (4 * gamma))
        objective.append(
            float(np.vdot(G, distances)) / 2
            + lambda_ * float(np.linalg.norm(Z @ W - Y) ** 2)
            + gamma * float(np.linalg.norm(G - similarity) ** 2)
        )
        settled = len(objective) > 1 and objective[-1] >= (1 - SETTLED) * objective[-2]
        if settled or objective[-1] <= nothing or len(objective) == iterations:
            break
        smooth, B = without_embedding(Z, G, lambda_)
    return Projection(W, chosen, Y, G, np.array(objective))


def without_embedding(Z: Float, G: Float, lambda_: float) -> tuple[Float, Float]:
    """Return R, (n, p), and B, (p, p): Y = R W is best for W, which then costs Tr(W^T B W).

    R = lambda (L_G + lambda I)^-1 Z; the cost of G is not included.
    """
    weights = (G + G.T) / 2
    matrix = np.diag(weights.sum(axis=1) + lambda_) - weights
    factor = scipy.linalg.cho_factor(matrix, overwrite_a=True, check_finite=False)
    smooth = lambda_ * scipy.linalg.cho_solve(factor, Z, check_finite=False)
    B = lambda_ * Z.T @ (Z - smooth)
    return smooth, (B + B.T) / 2


def first_rows(B: Float, k: int, h: int) -> NDArray[np.int64]:
    """Choose the h rows nearest to the eigenvectors of the k least eigenvalues of B.

    Eigenvalues that tie with the k-th are included, since LAPACK orders them arbitrarily.
    """
    values, vectors = scipy.linalg.eigh(B)
    rounding = len(B) * np.finfo(np.float64).eps * values[-1]
    least = values <= values[k - 1] + rounding
    return _largest(vectors[:, least] ** 2 @ (values[-1] - values[least]), h)


def least_subspace(B: Float, k: int, chosen: NDArray[np.int64]) -> tuple[Float, NDArray[np.int64]]:
    """Return W, (p, k) with W^T W = I, that makes Tr(W^T B W) small, and its nonzero rows.

    From the chosen rows by ascent on A = eta I - B, positive semi-definite: A W (W^T A W)^+ W^T A
    is at most A, touches it at W, and has rank k, for which the rows of the largest diagonal
    entries are best.
    """
    p = len(B)
    eta = scipy.linalg.eigh(B, eigvals_only=True, subset_by_index=(p - 1, p - 1))[0]
    W = _on_rows(B, k, chosen)
    for _ in range(SUBSPACE_STEPS):
        AW = eta * W - B @ W
        bound = np.einsum("ij,ij->i", AW @ np.linalg.pinv(W.T @ AW, hermitian=True), AW)
        better = _largest(bound, len(chosen))
        if np.array_equal(better, chosen):
            break
        chosen = better
        W = _on_rows(B, k, chosen)
    return W, chosen


def _largest(values: Float, h: int) -> NDArray[np.int64]:
    return np.sort(np.argsort(-values, kind="stable")[:h])


def _on_rows(B: Float, k: int, chosen: NDArray[np.int64]) -> Float:
    """Return the best W with the chosen nonzero rows."""
    W = np.zeros((len(B), k))
    inner = B[np.ix_(chosen, chosen)]
    W[chosen] = scipy.linalg.eigh(inner, subset_by_index=(0, k - 1))[1]
    return W


def nearest_graph(wanted: Float) -> Float:
    """Find the nearest matrix with entries >= 0, 0 on the diagonal, and rows that sum to 1.

    O(n^2 log n); Duchi, Shalev-Shwartz, Singer and Chandra (2008).
    """
    wanted = wanted.copy()
    np.fill_diagonal(wanted, -np.inf)
    falling = -np.sort(-wanted, axis=1)[:, :-1]
    shifts = (np.cumsum(falling, axis=1) - 1) / np.arange(1, len(wanted))
    last = (falling > shifts).sum(axis=1) - 1
    shift = shifts[np.arange(len(wanted)), last]
    return np.asarray(np.maximum(wanted - shift[:, None], 0.0))

"""Factors of the real data sets, and algorithms written straight from their formulas.

``literal_admm``, with a dense A and one plain SVD per iteration, is meant to be read beside
Algorithm 1 of Sun, Ding and Fan (arXiv 2411.15197).
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from tests.real_data import load

Array = npt.NDArray[np.float64]


def polar_factor(H: Array) -> Array:
    """Return P Q^T of H = P S Q^T."""
    try:
        P, _, Qt = np.linalg.svd(H, full_matrices=False)
    except np.linalg.LinAlgError:
        P, _, Qt = scipy.linalg.svd(H, full_matrices=False, lapack_driver="gesvd")
    return np.asarray(P @ Qt)


def leading_eigenvectors(P_k: Array, a: Array, h: int) -> Array:
    """P_h: the first h columns of the QR of [P_k, e_i1, e_i2, ...], i by falling a_i."""
    p = P_k.shape[0]
    order = sorted(range(p), key=lambda i: (-a[i], i))
    columns = np.hstack([P_k, np.eye(p)[:, order]])[:, :h]
    Q, R = np.linalg.qr(columns)
    return np.asarray(Q * np.where(np.diag(R) < 0, -1.0, 1.0))


def literal_admm(
    P_k: Array,
    lam: Array,
    h: int,
    *,
    rho: float = 1.05,
    max_iter: int = 3000,
    patience: int = 30,
) -> dict[str, Any]:
    """Run Algorithm 1; return selected, iterations, converged, objective by iteration, V, U, W."""
    A = (P_k * lam) @ P_k.T
    mu = 1e-6 * lam.max()
    mu_max = 1e3 * lam.max()
    V = leading_eigenvectors(P_k, np.diag(A), h)
    U = V.copy()
    W = V.copy()
    Omega = np.zeros_like(V)
    Gamma = np.zeros_like(V)
    chosen: list[int] = []
    unchanged = 0
    objective = []
    converged = False
    for _ in range(max_iter):
        D = A @ U + mu * (U - Omega / mu) + mu * (W - Gamma / mu)
        V = np.sqrt(h) * D / np.linalg.norm(D)
        H = A @ V + mu * (V + Omega / mu)
        U = polar_factor(H)
        F = V + Gamma / mu
        norms = np.linalg.norm(F, axis=1)
        rows = sorted(np.argsort(-norms, kind="stable")[:h].tolist())
        W = np.zeros_like(F)
        W[rows] = F[rows]
        Omega = Omega + mu * (V - U)
        Gamma = Gamma + mu * (V - W)
        mu = min(rho * mu, mu_max)
        objective.append(float(np.diag(A)[rows].sum()))
        unchanged = unchanged + 1 if rows == chosen else 0
        chosen = rows
        if unchanged >= patience:
            converged = True
            break
    return {
        "selected": np.array(chosen),
        "iterations": len(objective),
        "converged": converged,
        "objective": np.array(objective),
        "V": V,
        "U": U,
        "W": W,
    }


def spectral_embedding(X: Array, q: int, neighbours: int = 10) -> Array:
    """Return the leading eigenvectors of D^-1/2 A D^-1/2, A the graph of nearest rows."""
    distances = ((X[:, None] - X[None]) ** 2).sum(axis=-1)
    A = np.zeros_like(distances)
    for i, row in enumerate(distances):
        near = np.argsort(row, kind="stable")[:neighbours]
        A[i, near] = A[near, i] = 1.0
    D = np.diag(1 / np.sqrt(A.sum(axis=1)))
    return np.linalg.eigh(D @ A @ D)[1][:, ::-1][:, :q]


def traced_peak(call: Callable[[], object]) -> int:
    """Bytes that a call holds at most."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


CLUSTERS = {"HARS_3000": 6, "MicroMass_mixed360": 10, "MNIST_first3468": 10, "DNA_statlog": 3}  # k
CASES = [(name, h) for name in CLUSTERS for h in (50, 100)]


@cache
def standardised(name: str) -> tuple[Array, Array]:
    """The features that vary, with mean 0 and variance 1, and their correlations."""
    X, _ = load(name)
    Z = X[:, X.min(axis=0) != X.max(axis=0)]
    Z = (Z - Z.mean(axis=0)) / Z.std(axis=0)
    return Z, Z.T @ Z / len(Z)


@cache
def factors(name: str) -> tuple[Array, Array]:
    """P_k and the k leading eigenvalues."""
    _, C = standardised(name)
    return leading(C, CLUSTERS[name])


def leading(C: Array, k: int) -> tuple[Array, Array]:
    """The k leading eigenvectors, (p, k), and eigenvalues of a correlation matrix."""
    values, vectors = np.linalg.eigh(C)
    return np.ascontiguousarray(vectors[:, : -k - 1 : -1]), values[: -k - 1 : -1]

"""The paper's two ADMMs as printed, with A = P_k S_k^2 P_k^T formed: section 3, figure 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import svd

Float = NDArray[np.float64]

MU_MAX = 1e7


@dataclass(frozen=True, eq=False)
class Course:
    """The course of an ADMM.

    Attributes
    ----------
    norms : (iterations,) ||V||_F.
    selected : (h,) rows of W that are not 0, ascending.
    """

    norms: Float
    selected: NDArray[np.int64]


def admm(
    A: Float,
    h: int,
    form: Literal["quadratic", "bi-linear"],
    *,
    iterations: int,
    rho: float = 1.05,
) -> Course:
    """Minimise -Tr(V^T A V) over h rows by either ADMM, from the h leading eigenvectors of A.

    Parameters
    ----------
    A : (p, p) symmetric.
    form : ``quadratic`` minimises over V by (mu I - A)^-1, starting at mu = lambda_1 + 0.1;
        ``bi-linear`` adds U to V and keeps ||V||_F^2 = h, starting at mu = 0.1.

    O(p^3) per iteration.
    """
    p = len(A)
    values, vectors = np.linalg.eigh(A)
    U = vectors[:, ::-1][:, :h].copy()
    W = U.copy()
    Omega, Gamma = np.zeros_like(U), np.zeros_like(U)
    quadratic = form == "quadratic"
    mu = float(values[-1]) + 0.1 if quadratic else 0.1
    norms = np.empty(iterations)
    for t in range(iterations):
        pull = mu * (U + W) - Omega - Gamma
        if quadratic:
            V = np.linalg.solve(mu * np.eye(p) - A, pull / 2)
            target = V + Omega / mu
        else:
            V = A @ U + pull
            V *= np.sqrt(h) / np.linalg.norm(V)
            target = A @ V + mu * V + Omega
        left, _, right = svd(target, full_matrices=False, lapack_driver="gesvd")
        U = left @ right
        F = V + Gamma / mu
        chosen = np.argsort(-np.linalg.norm(F, axis=1), kind="stable")[:h]
        W = np.zeros_like(F)
        W[chosen] = F[chosen]
        Omega += mu * (V - U)
        Gamma += mu * (V - W)
        mu = min(rho * mu, MU_MAX)
        norms[t] = np.linalg.norm(V)
    return Course(norms, np.sort(chosen))

"""An ADMM that knows of copies: tried for `tried.md`, not a solver of the library.

python tests/benchmarks/redundancy.py FOLDER

`css` maximises greedily what the chosen features explain of the leading subspace, with A and the
correlation matrix C

    f(S) = Tr((S^T A S) (S^T C S)^-1),

a Schur complement. Like the paper's objective f stays the same for S R, R orthogonal, so that the
paper's bi-linear ADMM can be put on it: half the gradient of f replaces A U and A V, C being given
a ridge so that what is inverted always can be. FOLDER as in `quality.py`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from limits import show
from numpy.typing import NDArray
from quality import COST_AT, Index, Labelled, _solver, both, load

Float = NDArray[np.float64]

SIZES = (50, COST_AT)
RIDGES = (0.01, 0.3)
STARTS = 10


def explained(A: Float, C: Float, chosen: Index) -> float:
    """f of the chosen features, without a ridge; k at most."""
    inner = np.ix_(chosen, chosen)
    return float(np.trace(np.linalg.pinv(C[inner], rcond=1e-9, hermitian=True) @ A[inner]))


def redundancy_admm(A: Float, C: Float, h: int, ridge: float, *, most: int = 1000) -> Index:
    """The paper's Algorithm 1 with half the gradient of f in place of A U and A V."""
    p = len(A)
    C = C + ridge * np.eye(p)

    def pull(V: Float) -> Float:
        CV = C @ V
        N = np.linalg.inv(V.T @ CV)
        AV = A @ V
        return np.asarray((AV - CV @ (N @ (V.T @ AV))) @ N)

    U = np.linalg.eigh(A)[1][:, ::-1][:, :h].copy()
    W = U.copy()
    Omega, Gamma = np.zeros_like(U), np.zeros_like(U)
    mu, chosen, same = 1e-3, np.arange(0), 0
    for _ in range(most):
        D = pull(U) + mu * (U + W) - Omega - Gamma
        V = np.sqrt(h) / np.linalg.norm(D) * D
        left, _, right = np.linalg.svd(pull(V) + mu * V + Omega, full_matrices=False)
        U = left @ right
        F = V + Gamma / mu
        rows = np.sort(np.argsort(-np.linalg.norm(F, axis=1), kind="stable")[:h])
        W = np.zeros_like(F)
        W[rows] = F[rows]
        Omega += mu * (V - U)
        Gamma += mu * (V - W)
        mu = min(1.05 * mu, 1e3)
        same = same + 1 if np.array_equal(rows, chosen) else 0
        chosen = rows
        if same == 30:
            break
    return chosen


def row(data: Labelled, h: int) -> list[list[object]]:
    """Every choice on one set: f, and accuracy and NMI."""
    factor = data.factor
    assert factor.correlation is not None
    P, values = factor.components[:, : data.k], factor.eigenvalues[: data.k]
    A = (P * values) @ P.T
    choices = {
        name: np.searchsorted(data.usable, _solver(name)(data, h))
        for name in ("admm", "css", "consensus")
    }
    for ridge in RIDGES:
        choices[f"ADMM of f, ridge {ridge}"] = redundancy_admm(A, factor.correlation, h, ridge)
    return [
        [
            f"{data.name}, h = {h}",
            name,
            f"{explained(A, factor.correlation, chosen):.3f} of {data.k}",
            both([data.agreement(data.clusterings(data.usable[chosen], STARTS))]),
        ]
        for name, chosen in choices.items()
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="holds .npz and .h5ad files")
    asked = parser.parse_args()
    for data in load(asked.folder, "bulk_labels"):
        rows = [cells for h in SIZES for cells in row(data, h)]
        show(data.name, ["set", "choice", "f", "ACC / NMI, %"], rows)


if __name__ == "__main__":
    main()

"""Factors of the real data sets."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from tests.real_data import load

Array = npt.NDArray[np.float64]

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

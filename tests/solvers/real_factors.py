"""Factors of the real data sets and the reference values published with them."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from tests.real_data import load

Array = npt.NDArray[np.float64]

# name: (features kept, k, lambda_1, {h: optimum}, five highest a_i by source index)
REFERENCE: dict[str, tuple[int, int, float, dict[int, float], list[int]]] = {
    "HARS_3000": (561, 6, 279.733976, {50: 48.504300, 100: 95.977389}, [280, 359, 95, 226, 231]),
    "MicroMass_mixed360": (
        1087, 10, 68.439780, {50: 45.182863, 100: 87.087735}, [220, 792, 895, 397, 1078],
    ),
    "MNIST_first3468": (
        653, 10, 39.719125, {50: 28.102089, 100: 54.209535}, [595, 594, 358, 623, 454],
    ),
    "DNA_statlog": (180, 3, 4.814537, {50: 6.402646, 100: 9.011578}, [89, 84, 92, 104, 82]),
}  # fmt: skip

CASES = [(name, h) for name in REFERENCE for h in (50, 100)]


@cache
def standardised(name: str) -> tuple[Array, npt.NDArray[np.int64]]:
    """The features that vary, with mean 0 and variance 1, and their source indices."""
    X, _ = load(name)
    kept = np.flatnonzero(X.min(axis=0) != X.max(axis=0))
    Z = X[:, kept]
    return (Z - Z.mean(axis=0)) / Z.std(axis=0), kept


@cache
def factors(name: str) -> tuple[Array, Array, npt.NDArray[np.int64]]:
    """P_k, s^2 / n and the source indices of the features that vary."""
    Z, kept = standardised(name)
    _, s, Pt = np.linalg.svd(Z, full_matrices=False)
    k = REFERENCE[name][1]
    return np.ascontiguousarray(Pt[:k].T), s[:k] ** 2 / len(Z), kept

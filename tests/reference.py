"""The model in plain float64 NumPy: whole arrays, no streaming. The oracle of the tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Reference:
    """Leading components of standardised X, and the score of every usable feature."""

    usable: npt.NDArray[np.int64]
    constant: npt.NDArray[np.int64]
    mean: Array
    std: Array
    singular_values: Array
    components: Array

    samples: int

    @property
    def eigenvalues(self) -> Array:
        return self.singular_values**2 / self.samples

    def scores(self, k: int) -> Array:
        """a_i of the usable features."""
        return np.asarray((self.components[:, :k] ** 2 * self.eigenvalues[:k]).sum(axis=1))

    def every_score(self, k: int) -> Array:
        """a_i of all features, NaN where constant."""
        scores = np.full(len(self.mean), np.nan)
        scores[self.usable] = self.scores(k)
        return scores


def reference(X: npt.NDArray[Any]) -> Reference:
    """Standardise (ddof 0), leave constant features out, SVD."""
    X = X.astype(np.float64)
    mean = X.mean(axis=0)
    mean += (X - mean).mean(axis=0)
    std = np.sqrt(((X - mean) ** 2).mean(axis=0))
    constant = X.min(axis=0) == X.max(axis=0)
    usable = np.flatnonzero(~constant)
    Z = (X[:, usable] - mean[usable]) / std[usable]
    R = np.linalg.qr(Z, mode="r") if len(Z) > len(usable) else Z  # the same s and P, far sooner
    _, s, Pt = np.linalg.svd(R, full_matrices=False)
    return Reference(usable, np.flatnonzero(constant), mean, std, s, Pt.T, len(X))


def top(scores: Array, h: int) -> list[int]:
    """The h highest scores' indices, ascending; equal scores go to the lower index."""
    order = sorted(np.flatnonzero(~np.isnan(scores)), key=lambda i: (-scores[i], i))
    return sorted(int(i) for i in order[:h])


def assert_optimal(selected: Any, scores: Array, h: int, tolerance: float) -> None:
    """``selected`` is a best choice, when scores are known to ``tolerance``."""
    selected = [int(i) for i in selected]
    assert selected == sorted(set(selected))
    assert len(selected) == h
    assert not np.isnan(scores[selected]).any()
    cutoff = np.sort(scores[~np.isnan(scores)])[-h]
    clear = set(np.flatnonzero(scores > cutoff + 2 * tolerance).tolist())
    assert clear <= set(selected)
    assert (scores[selected] >= cutoff - 2 * tolerance).all()


def assert_same_scores(found: Array, expected: Array, tolerance: float) -> None:
    """Scores differ by so much at most, and are known at the same places."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)

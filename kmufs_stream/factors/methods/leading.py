"""The leading components of the standardised data, as every method finds them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kmufs_stream.factors.methods.screening import Standardised
from kmufs_stream.streaming.kernels.gram import Gaps
from kmufs_stream.streaming.kernels.scaling import Precision
from kmufs_stream.typing import Float


@dataclass(frozen=True, eq=False, kw_only=True)
class Leading:
    """The leading components of the standardised data, and how accurate they are; see Factor.

    By default they are exact up to rounding, after one read.
    """

    features: Standardised
    components: Float
    singular_values: Float
    residuals: Float
    score_error: float
    settled: bool = True
    last_change: float = np.inf
    passes: int = 1
    correlation: Float | None = None
    gaps: Gaps | None = None

    @property
    def eigenvalues(self) -> Float:
        """(r,) leading eigenvalues S^2 / n of the correlation matrix."""
        return self.singular_values**2 / self.features.samples


def components_for(k: int, usable: int) -> int:
    """Return the number of components that a factor for k clusters keeps."""
    return min(usable, 2 * k + 1)


def score_tolerance(precision: Precision) -> float:
    """Return the difference that rounding may cause in the scores of equal features."""
    return 1e-6 if precision == "float32" else 1e-12


def orient_columns(vectors: Float) -> Float:
    """Choose the signs of columns so that the largest entry of each is positive."""
    largest = np.abs(vectors).argmax(axis=0)
    signs: Float = np.sign(vectors[largest, np.arange(vectors.shape[1])])
    return vectors * signs

"""The leading components of the standardised data, as every method finds them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kmufs_stream.factors.methods.screening import Standardised
from kmufs_stream.streaming.kernels.gram import Gaps
from kmufs_stream.streaming.kernels.scaling import Precision
from kmufs_stream.typing import Float


@dataclass(frozen=True, eq=False)
class Leading:
    """The leading components of the standardised data, and how far to trust them; see Factor."""

    features: Standardised
    components: Float
    singular_values: Float
    residuals: Float
    score_error: float
    settled: bool
    last_change: float
    passes: int
    correlation: Float | None
    gaps: Gaps | None

    @classmethod
    def of_one_read(
        cls,
        features: Standardised,
        components: Float,
        singular_values: Float,
        residuals: Float,
        precision: Precision,
        correlation: Float | None = None,
        gaps: Gaps | None = None,
    ) -> Leading:
        """What a method that is exact after one read has found, right up to rounding."""
        return cls(
            features=features,
            components=components,
            singular_values=singular_values,
            residuals=residuals,
            score_error=score_tolerance(precision),
            settled=True,
            last_change=np.inf,
            passes=1,
            correlation=correlation,
            gaps=gaps,
        )

    @property
    def eigenvalues(self) -> Float:
        """(r,) the leading eigenvalues S^2 / n of the correlation matrix."""
        return self.singular_values**2 / self.features.samples


def components_for(k: int, usable: int) -> int:
    """How many components a factor for k clusters keeps: r = min(usable, 2k + 1)."""
    return min(usable, 2 * k + 1)


def score_tolerance(precision: Precision) -> float:
    """Scores closer than this are ties: what rounding alone may make of equal features."""
    return 1e-6 if precision == "float32" else 1e-12


def orient_columns(vectors: Float) -> Float:
    """Columns with their signs chosen so that the largest entry of each is positive."""
    largest = np.abs(vectors).argmax(axis=0)
    signs: Float = np.sign(vectors[largest, np.arange(vectors.shape[1])])
    return vectors * signs

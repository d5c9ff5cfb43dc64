"""The Gram matrix of shifted, scaled rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from kmufs_stream.streaming.kernels.kernel import Kernel, Sums
from kmufs_stream.streaming.kernels.moments import Moments
from kmufs_stream.streaming.kernels.scaling import Scaling
from kmufs_stream.typing import Array, Bool, Float, Floats, Int


@dataclass
class Gaps(Sums):
    """Where values are missing: V is 1 there and 0 elsewhere."""

    values: Float  # (p, p), sums of V^T b
    counts: Float  # (p, p), sums of V^T V


@dataclass
class GramState:
    """Moments and Gram matrix of b = (x - shift) / scale, which is 0 where x is missing."""

    moments: Moments
    scatter: Float  # (p, p), sums of b^T b
    gaps: Gaps | None = None  # allow to replace the 0 by another number afterwards

    def __add__(self, other: GramState) -> GramState:
        gaps = self.gaps + other.gaps if self.gaps and other.gaps else self.gaps or other.gaps
        return GramState(self.moments + other.moments, self.scatter + other.scatter, gaps)

    def note(self, features: Array, values: Array, counts: Array) -> None:
        """Add the V^T b and V^T V of a block, of the features that miss values in it."""
        if self.gaps is None:
            self.gaps = Gaps(np.zeros_like(self.scatter), np.zeros_like(self.scatter))
        self.gaps.values[features] += values
        self.gaps.counts[np.ix_(features, features)] += counts


@dataclass(frozen=True)
class Gram(Kernel[GramState]):
    """Moments and Gram matrix of the shifted, scaled rows: one BLAS product per block.

    Gaps take two more products for blocks with missing values, of the features that miss them.
    O(rows p^2) per block; the state takes 8 p^2 bytes, three times that with gaps. Once a value
    is infinite, values are only counted, so that an error can report all of them.
    """

    scaling: Scaling
    note_gaps: bool = False

    def init(self) -> GramState:
        p = len(self.scaling.shift)
        return GramState(Moments.empty(p), np.zeros((p, p)))

    def update(self, state: GramState, values: Any, start: int) -> GramState:
        gaps = self.note_gaps and values.dtype.kind == "f"
        product = partial(_gram_with_gaps, np.isnan(values)) if gaps else _gram
        made = state.moments.add(self.scaling, values, product)
        if made is None:
            return state
        scatter, noted = made
        state.scatter += scatter
        if noted is not None:
            state.note(*noted)
        return state


Noted = tuple[Int, Floats, Floats]
"""Features that miss values in a block, their V^T b, and V^T V."""


def _gram(block: Floats) -> tuple[tuple[Floats, Noted | None], Floats]:
    product = block.T @ block
    return (product, None), product.diagonal()


def _gram_with_gaps(missing: Bool, block: Floats) -> tuple[tuple[Floats, Noted | None], Floats]:
    (product, _), squares = _gram(block)
    features = np.flatnonzero(missing.any(axis=0))
    if not len(features) or not np.isfinite(squares).all():
        return (product, None), squares
    gaps = missing[:, features].astype(block.dtype)
    return (product, (features, gaps.T @ block, gaps.T @ gaps)), squares

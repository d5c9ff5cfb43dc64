"""The Gram matrix of shifted, scaled rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.streaming.kernels.moments import Moments
from kmufs_stream.streaming.kernels.scaling import Scaling
from kmufs_stream.typing import Array, Bool, Float, Floats, Int


@dataclass
class Gaps:
    """Where values are missing: V is 1 there and 0 elsewhere.

    Attributes
    ----------
    values : (p, p) float64, sums of V^T b.
    counts : (p, p) float64, sums of V^T V.
    """

    values: Float
    counts: Float

    def merged(self, other: Gaps | None) -> Gaps:
        if other is None:
            return self
        return Gaps(self.values + other.values, self.counts + other.counts)


@dataclass
class GramState:
    """Moments, and the (p, p) float64 sums of b^T b with b = (x - shift) / scale.

    b is 0 where a value is missing; with ``gaps``, if there are any, any other number can be
    put there afterwards.
    """

    moments: Moments
    scatter: Float
    gaps: Gaps | None = None

    def note(self, where: NDArray[np.integer[Any]], values: Array, counts: Array) -> None:
        """Add the V^T b and V^T V of a block, of the features ``where`` that have gaps in it."""
        if self.gaps is None:
            self.gaps = Gaps(np.zeros_like(self.scatter), np.zeros_like(self.scatter))
        self.gaps.values[where] += values
        self.gaps.counts[np.ix_(where, where)] += counts

    def merged(self, other: GramState) -> GramState:
        gaps = other.gaps if self.gaps is None else self.gaps.merged(other.gaps)
        return GramState(self.moments.merged(other.moments), self.scatter + other.scatter, gaps)


@dataclass(frozen=True)
class Gram:
    """Moments and Gram matrix of the shifted, scaled rows: one BLAS product per block.

    Parameters
    ----------
    note_gaps : keep the gaps too: two products more for blocks that have any, of the features
        that do.

    O(rows p^2) per block; the state takes 8 p^2 bytes, three times that with gaps. Once a value
    is infinite the products stop and only the counts go on, so that all of them can be named.
    """

    scaling: Scaling
    note_gaps: bool = False

    def init(self) -> GramState:
        p = len(self.scaling.shift)
        return GramState(Moments.empty(p), np.zeros((p, p)))

    def update(self, state: GramState, values: Array, start: int) -> GramState:
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

    def merge(self, a: GramState, b: GramState) -> GramState:
        return a.merged(b)


Noted = tuple[Int, Floats, Floats]
"""Features with gaps in a block, their V^T b, and V^T V."""


def _gram(block: Floats) -> tuple[tuple[Floats, Noted | None], Floats]:
    product = block.T @ block
    return (product, None), product.diagonal()


def _gram_with_gaps(missing: Bool, block: Floats) -> tuple[tuple[Floats, Noted | None], Floats]:
    (product, _), squares = _gram(block)
    where = np.flatnonzero(missing.any(axis=0))
    if not len(where) or not np.isfinite(squares).all():
        return (product, None), squares
    gaps = missing[:, where].astype(block.dtype)
    return (product, (where, gaps.T @ block, gaps.T @ gaps)), squares

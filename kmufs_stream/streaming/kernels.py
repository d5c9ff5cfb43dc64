"""Kernels: what a pass computes, block by block, as states that merge.

A kernel has ``init()``, ``update(state, values, start)`` and ``merge(a, b)``. States hold plain
arrays and can be pickled. ``update`` may change the state that it is given, ``merge`` changes
neither of its arguments (a scheduler may run it again).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.streaming.scaling import ScaledBlock, Scaling

State = TypeVar("State")


class Kernel(Protocol[State]):
    """One streaming statistic over the rows of a matrix."""

    def init(self) -> State:
        """The state before any row."""

    def update(self, state: State, values: NDArray[Any], start: int) -> State:
        """The state after the block ``values``, (rows, p), whose first row is row ``start``."""

    def merge(self, a: State, b: State) -> State:
        """The state of the rows of a followed by those of b."""


@dataclass
class Moments:
    """Counts, sums and ranges of p features.

    Attributes
    ----------
    count : rows seen.
    total : (p,) float64, sums of (x - shift) / scale.
    low, high : (p,) smallest and largest x, in its own dtype (float64 cannot tell all 64-bit
        integers apart); equal where a feature is constant; infinite before the first row.
    invalid : (p,) int64, values that are NaN or infinite.
    """

    count: int
    total: NDArray[np.float64]
    low: NDArray[Any]
    high: NDArray[Any]
    invalid: NDArray[np.int64]

    @classmethod
    def empty(cls, p: int) -> Moments:
        return cls(0, np.zeros(p), np.full(p, np.inf), np.full(p, -np.inf), np.zeros(p, np.int64))

    @property
    def valid(self) -> bool:
        """Whether every value so far was a finite number."""
        return not self.invalid.any()

    def add(self, block: ScaledBlock, rows: int) -> None:
        """Take in one block; its sums only as long as all values are finite."""
        first = self.count == 0
        self.count += rows
        self.low = block.low if first else np.minimum(self.low, block.low)
        self.high = block.high if first else np.maximum(self.high, block.high)
        if block.invalid is not None:
            self.invalid += block.invalid
        elif block.values is not None and self.valid:
            # A product with ones sums in BLAS's blocks: faster and rounds less than row by row.
            self.total += np.ones(rows, block.values.dtype) @ block.values

    def merged(self, other: Moments) -> Moments:
        if not (self.count and other.count):
            return copy.deepcopy(self if self.count else other)
        return Moments(
            self.count + other.count,
            self.total + other.total,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.invalid + other.invalid,
        )


@dataclass
class GramState:
    """Moments, and the (p, p) float64 sums of b^T b with b = (x - shift) / scale."""

    moments: Moments
    scatter: NDArray[np.float64]


@dataclass(frozen=True)
class Gram:
    """Moments and Gram matrix of the shifted, scaled rows: one BLAS product per block.

    O(rows p^2) per block; the state takes 8 p^2 bytes. Once a value is not finite the products
    stop and only the counts go on, so that all of them can be named.
    """

    scaling: Scaling

    def init(self) -> GramState:
        p = len(self.scaling.shift)
        return GramState(Moments.empty(p), np.zeros((p, p)))

    def update(self, state: GramState, values: NDArray[Any], start: int) -> GramState:
        block = self.scaling.block(values)
        state.moments.add(block, len(values))
        if block.values is not None and state.moments.valid:
            state.scatter += block.values.T @ block.values
        return state

    def merge(self, a: GramState, b: GramState) -> GramState:
        return GramState(a.moments.merged(b.moments), a.scatter + b.scatter)

"""Kernels: what a pass computes, block by block, as states that merge.

A kernel has ``init()``, ``update(state, values, start)`` and ``merge(a, b)``. States hold plain
arrays and can be pickled. ``update`` may change the state that it is given, ``merge`` changes
neither of its arguments (a scheduler may run it again).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.streaming.scaling import Floats, Precision, Scaling

State = TypeVar("State")
Made = TypeVar("Made")


class Kernel(Protocol[State]):
    """One streaming statistic over the rows of a matrix."""

    def init(self) -> State:
        """The state before any row."""

    def update(self, state: State, values: Any, start: int) -> State:
        """The state after the block ``values``, (rows, p), whose first row is row ``start``.

        A dense array, or for the kernels of ``sparse.py`` a CSR one.
        """

    def merge(self, a: State, b: State) -> State:
        """The state of the rows of a followed by those of b."""


@dataclass
class Moments:
    """Counts, sums and ranges of p features.

    Attributes
    ----------
    count : rows seen.
    total : (p,) float64, sums of (x - shift) / scale.
    low, high : smallest and largest x of the scaling's unsure features, in x's own dtype (float64
        cannot tell all 64-bit integers apart); equal where a feature is constant. Empty before
        the first row.
    invalid : (p,) int64, values that are NaN or infinite.
    held : whether the scaling's precision held every block so far.
    """

    count: int
    total: NDArray[np.float64]
    low: NDArray[Any]
    high: NDArray[Any]
    invalid: NDArray[np.int64]
    held: bool = True

    @classmethod
    def empty(cls, p: int) -> Moments:
        return cls(0, np.zeros(p), np.empty(0), np.empty(0), np.zeros(p, np.int64))

    @property
    def valid(self) -> bool:
        """Whether every value so far was a finite number."""
        return not self.invalid.any()

    def add(
        self,
        scaling: Scaling,
        x: NDArray[Any],
        product: Callable[[Floats], tuple[Made, NDArray[Any]]],
    ) -> Made | None:
        """Take in one block and make its product, in float64 where float32 would not do.

        Parameters
        ----------
        product : makes it from the shifted, scaled block b; also the (p,) sums of b^2, which tell
            whether it can be trusted.

        Returns None once a value was not finite: from then on there are only counts.
        """
        rows = len(x)
        low, high = scaling.range_of_unsure(x)
        self.low = np.minimum(self.low, low) if self.count else low
        self.high = np.maximum(self.high, high) if self.count else high
        self.count += rows
        if not self.valid:
            self.invalid += _invalid(x)
            return None
        made, total, squares = _attempt(scaling, x, scaling.precision, product)
        if not np.isfinite(squares).all():
            self.invalid += _invalid(x)
            if not self.valid:
                return None
        if scaling.precision == "float32" and not scaling.float32_holds(
            rows, total, squares, low, high
        ):
            del made  # before the larger one is made
            self.held = False
            made, total, _ = _attempt(scaling, x, "float64", product)
        self.total += total
        return made

    def merged(self, other: Moments) -> Moments:
        if not (self.count and other.count):
            return copy.deepcopy(self if self.count else other)
        return Moments(
            self.count + other.count,
            self.total + other.total,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.invalid + other.invalid,
            self.held and other.held,
        )


def _attempt(
    scaling: Scaling,
    x: NDArray[Any],
    precision: Precision,
    product: Callable[[Floats], tuple[Made, NDArray[Any]]],
) -> tuple[Made, NDArray[np.float64], NDArray[np.float64]]:
    """A block's product in one precision, and its sums of b and of b^2."""
    with np.errstate(over="ignore", invalid="ignore"):
        block = scaling.apply(x, precision)
        # A product with ones sums in BLAS's blocks: faster and rounds less than row by row.
        total = np.ones(len(block), block.dtype) @ block
        made, squares = product(block)
    return made, total.astype(np.float64), squares.astype(np.float64)


def _invalid(x: NDArray[Any]) -> NDArray[np.int64]:
    counts: NDArray[np.int64] = (~np.isfinite(x)).sum(axis=0)
    return counts


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
        product = state.moments.add(self.scaling, values, _gram)
        if product is not None:
            state.scatter += product
        return state

    def merge(self, a: GramState, b: GramState) -> GramState:
        return GramState(a.moments.merged(b.moments), a.scatter + b.scatter)


def _gram(block: Floats) -> tuple[Floats, Floats]:
    product = block.T @ block
    return product, product.diagonal()

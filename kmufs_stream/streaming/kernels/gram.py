"""Kernels: what a pass computes, block by block, as states that merge.

A kernel has ``init()``, ``update(state, values, start)`` and ``merge(a, b)``. States hold plain
arrays and can be pickled. ``update`` may change the state that it is given, ``merge`` changes
neither of its arguments (a scheduler may run it again).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.streaming.kernels.scaling import Floats, Precision, Scaling

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
        cannot tell all 64-bit integers apart); equal where a feature is constant, NaN before the
        first value that is not missing. Empty before the first row.
    missing, infinite : (p,) int64, values that are NaN, and infinite.
    held : whether the scaling's precision held every block so far.
    """

    count: int
    total: NDArray[np.float64]
    low: NDArray[Any]
    high: NDArray[Any]
    missing: NDArray[np.int64]
    infinite: NDArray[np.int64]
    held: bool = True

    @classmethod
    def empty(cls, p: int) -> Moments:
        missing, infinite = np.zeros((2, p), np.int64)
        return cls(0, np.zeros(p), np.empty(0), np.empty(0), missing, infinite)

    @property
    def valid(self) -> bool:
        """Whether no value so far was infinite."""
        return not self.infinite.any()

    @property
    def present(self) -> NDArray[np.int64]:
        """(p,) values that are not missing."""
        present: NDArray[np.int64] = self.count - self.missing
        return present

    def add(
        self,
        scaling: Scaling,
        x: NDArray[Any],
        product: Callable[[Floats], tuple[Made, NDArray[Any]]],
    ) -> Made | None:
        """Take in one block and make its product, in float64 where float32 would not do.

        Parameters
        ----------
        product : makes it from the shifted, scaled block b, which is 0 where x is missing; also
            the (p,) sums of b^2, which tell whether it can be trusted. Called again where not.

        Returns None once a value was infinite: from then on there are only counts.
        """
        rows = len(x)
        low, high = scaling.range_of_unsure(x)
        self.see(rows, low, high)
        if not self.valid:
            self._count(x)
            return None
        made, total, squares = _attempt(scaling, x, scaling.precision, product)
        gaps = False
        if not np.isfinite(squares).all():
            gaps = self._count(x)
            if not self.valid:
                return None
            if gaps:
                del made
                made, total, squares = _attempt(scaling, x, scaling.precision, product, gaps)
        if scaling.precision == "float32" and not scaling.float32_holds(
            rows, total, squares, low, high
        ):
            del made  # before the larger one is made
            self.held = False
            made, total, _ = _attempt(scaling, x, "float64", product, gaps)
        self.total += total
        return made

    def see(self, rows: int, low: NDArray[Any], high: NDArray[Any]) -> None:
        """Count some rows, within which the unsure features have these ranges."""
        self.low = np.fmin(self.low, low) if self.count else low
        self.high = np.fmax(self.high, high) if self.count else high
        self.count += rows

    def _count(self, x: NDArray[Any]) -> bool:
        """Count what is missing and infinite in a block; returns whether anything is missing."""
        missing = np.isnan(x).sum(axis=0)
        self.missing += missing
        self.infinite += np.isinf(x).sum(axis=0)
        return bool(missing.any())

    def merged(self, other: Moments) -> Moments:
        if not (self.count and other.count):
            return copy.deepcopy(self if self.count else other)
        return Moments(
            self.count + other.count,
            self.total + other.total,
            np.fmin(self.low, other.low),
            np.fmax(self.high, other.high),
            self.missing + other.missing,
            self.infinite + other.infinite,
            self.held and other.held,
        )


def _attempt(
    scaling: Scaling,
    x: NDArray[Any],
    precision: Precision,
    product: Callable[[Floats], tuple[Made, NDArray[Any]]],
    gaps: bool = False,
) -> tuple[Made, NDArray[np.float64], NDArray[np.float64]]:
    """A block's product in one precision, and its sums of b and of b^2."""
    with np.errstate(over="ignore", invalid="ignore"):
        block = scaling.apply(x, precision, gaps=gaps)
        # A product with ones sums in BLAS's blocks: faster and rounds less than row by row.
        total = np.ones(len(block), block.dtype) @ block
        made, squares = product(block)
    return made, total.astype(np.float64), squares.astype(np.float64)


@dataclass
class Gaps:
    """Where values are missing: V is 1 there and 0 elsewhere.

    Attributes
    ----------
    values : (p, p) float64, sums of V^T b.
    counts : (p, p) float64, sums of V^T V.
    """

    values: NDArray[np.float64]
    counts: NDArray[np.float64]

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
    scatter: NDArray[np.float64]
    gaps: Gaps | None = None

    def note(
        self, where: NDArray[np.integer[Any]], values: NDArray[Any], counts: NDArray[Any]
    ) -> None:
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

    def update(self, state: GramState, values: NDArray[Any], start: int) -> GramState:
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


Noted = tuple[NDArray[np.int64], Floats, Floats]
"""Features with gaps in a block, their V^T b, and V^T V."""


def _gram(block: Floats) -> tuple[tuple[Floats, Noted | None], Floats]:
    product = block.T @ block
    return (product, None), product.diagonal()


def _gram_with_gaps(
    missing: NDArray[np.bool_], block: Floats
) -> tuple[tuple[Floats, Noted | None], Floats]:
    (product, _), squares = _gram(block)
    where = np.flatnonzero(missing.any(axis=0))
    if not len(where) or not np.isfinite(squares).all():
        return (product, None), squares
    gaps = missing[:, where].astype(block.dtype)
    return (product, (where, gaps.T @ block, gaps.T @ gaps)), squares

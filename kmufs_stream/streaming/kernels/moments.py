"""Counts, sums and ranges of features, and block products in a precision that holds them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from kmufs_stream.streaming.kernels.scaling import Precision, Scaling
from kmufs_stream.typing import Array, Float, Floats, Int

Made = TypeVar("Made")


@dataclass
class Moments:
    """Counts, sums and ranges of p features.

    Ranges are those of the scaling's unsure features, in x's own dtype (float64 cannot tell all
    64-bit integers apart): equal for constant features, NaN before the first value that is not
    missing, empty before the first row.
    """

    count: int  # rows
    total: Float  # (p,), sums of (x - shift) / scale
    low: Array
    high: Array
    missing: Int  # (p,), numbers of NaN
    infinite: Int  # (p,)
    held: bool = True  # whether the scaling's precision was enough for every block so far

    @classmethod
    def empty(cls, p: int) -> Moments:
        missing, infinite = np.zeros((2, p), np.int64)
        return cls(0, np.zeros(p), np.empty(0), np.empty(0), missing, infinite)

    def __add__(self, other: Moments) -> Moments:
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

    @property
    def valid(self) -> bool:
        """Whether no value so far was infinite."""
        return not self.infinite.any()

    @property
    def present(self) -> Int:
        """(p,) numbers of values that are not missing."""
        present: Int = self.count - self.missing
        return present

    @property
    def mean(self) -> Float:
        """(p,) means of (x - shift) / scale where x is not missing; 0 where all are."""
        mean: Float = self.total / np.maximum(self.present, 1)
        return mean

    def add(
        self, scaling: Scaling, x: Array, product: Callable[[Floats], tuple[Made, Array]]
    ) -> Made | None:
        """Add one block and return its product, made in float64 where float32 would not do.

        Parameters
        ----------
        product : makes it from the shifted, scaled block b, 0 where x is missing; returns also
            the (p,) sums of b^2, which show whether it is accurate. Called again where not.

        Returns None once a value was infinite: from then on values are only counted.
        """
        rows = len(x)
        low, high = scaling.range_of_unsure(x)
        self.see(rows, low, high)
        if not self.valid:
            self._count(x)
            return None
        attempt = partial(_attempt, scaling, x, product)
        made, total, squares = attempt(scaling.precision)
        gaps = False
        if not np.isfinite(squares).all():
            gaps = self._count(x)
            if not self.valid:
                return None
            if gaps:
                del made
                made, total, squares = attempt(scaling.precision, gaps)
        if scaling.precision == "float32" and not scaling.float32_holds(
            rows, total, squares, low, high
        ):
            del made  # before the larger one is made
            self.held = False
            made, total, _ = attempt("float64", gaps)
        self.total += total
        return made

    def see(self, rows: int, low: Array, high: Array) -> None:
        """Count rows in which the unsure features have these ranges."""
        self.low = np.fmin(self.low, low) if self.count else low
        self.high = np.fmax(self.high, high) if self.count else high
        self.count += rows

    def _count(self, x: Array) -> bool:
        """Count missing and infinite values; return whether there are missing ones."""
        missing = np.isnan(x).sum(axis=0)
        self.missing += missing
        self.infinite += np.isinf(x).sum(axis=0)
        return bool(missing.any())


def _attempt(
    scaling: Scaling,
    x: Array,
    product: Callable[[Floats], tuple[Made, Array]],
    precision: Precision,
    gaps: bool = False,
) -> tuple[Made, Float, Float]:
    """Return a block's product in one precision, and its sums of b and of b^2."""
    with np.errstate(over="ignore", invalid="ignore"):
        block = scaling.apply(x, precision, gaps=gaps)
        # A product with ones sums in BLAS's blocks: faster, and rounds less than row by row.
        total = np.ones(len(block), block.dtype) @ block
        made, squares = product(block)
    return made, total.astype(np.float64), squares.astype(np.float64)

"""What a pass computes, block by block, as states that merge."""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields
from typing import Any, Generic, Protocol, Self, TypeVar

State = TypeVar("State")
A = TypeVar("A")
B = TypeVar("B")


class Kernel(Protocol[State]):
    """A statistic of the rows of a matrix, computed in one pass.

    States hold plain arrays and can be pickled.
    """

    def init(self) -> State:
        """Return the state before any row."""

    def update(self, state: State, values: Any, start: int) -> State:
        """Add one block of rows to a state, which may be changed in place.

        Parameters
        ----------
        values : (rows, p) array, dense, or CSR for the kernels of ``sparse.py``.
        start : number of the block's first row.
        """

    def merge(self, a: State, b: State) -> State:
        """Return the state of a's rows followed by b's; a and b stay as they are."""
        merged: State = operator.add(a, b)
        return merged


@dataclass
class Sums:
    """A state that merges by adding up field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class Together(Generic[A, B]):
    """Two kernels in one pass."""

    first: Kernel[A]
    second: Kernel[B]

    def init(self) -> tuple[A, B]:
        return self.first.init(), self.second.init()

    def update(self, state: tuple[A, B], values: Any, start: int) -> tuple[A, B]:
        return (
            self.first.update(state[0], values, start),
            self.second.update(state[1], values, start),
        )

    def merge(self, a: tuple[A, B], b: tuple[A, B]) -> tuple[A, B]:
        return self.first.merge(a[0], b[0]), self.second.merge(a[1], b[1])

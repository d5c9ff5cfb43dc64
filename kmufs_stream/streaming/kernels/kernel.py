"""What a pass computes, block by block, as states that merge."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Protocol, Self, TypeVar

State = TypeVar("State")


class Kernel(Protocol[State]):
    """A statistic of the rows of a matrix, computed in one pass.

    States hold plain arrays and can be pickled. The sum of two, which leaves both as they are, is
    that of the first one's rows followed by the other's.
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


@dataclass
class Sums:
    """A state that is added up field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

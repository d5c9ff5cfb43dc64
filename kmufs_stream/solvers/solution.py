"""What every solver returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kmufs_stream.typing import Array, Int


class Watcher(Protocol):
    """Told by a solver of each iteration, with what ``history`` will say of it."""

    def __call__(self, **figures: float) -> None:
        """One iteration more is done."""


def unwatched(**figures: float) -> None:
    """Nobody watches."""


@dataclass(frozen=True, eq=False)
class Solution:
    """The features a solver chose and how it got there.

    Attributes
    ----------
    selected : int64 array, shape (h,)
        Indices of the chosen features, ascending.
    solver_objective : float
        What the solver maximises, at ``selected``.
    iterations : int
        Iterations run; 0 for a closed form.
    converged : bool
        The chosen set was stable when the solver stopped. It says nothing about the
        constraints: see ``primal_residuals``.
    primal_residuals : (float, float) or None
        ``(||V - U||_F, ||V - W||_F)`` at the last iteration; None where there are none.
    history : mapping of str to array, shape (iterations,)
        ``objective`` (float64, Tr(S^T A S) of the rows chosen then), ``residual_u`` and
        ``residual_w`` (float64), ``rows_changed`` (int64, rows chosen now and not before; ``h``
        at the first iteration). Empty for a closed form.
    """

    selected: Int
    solver_objective: float
    iterations: int
    converged: bool
    primal_residuals: tuple[float, float] | None
    history: Mapping[str, Array] = field(default_factory=dict)

"""The result of a solver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kmufs_stream.typing import Array, Int

Watcher = Callable[..., None]
"""Called after each iteration with what ``Solution.history`` keeps of it, by name."""


class UnsolvableError(ValueError):
    """The penalties or the row sample leave a solver nothing that it can compute with."""


def unwatched(**figures: float) -> None:
    """Ignore the iterations."""


@dataclass(frozen=True, eq=False)
class Solution:
    """The features that a solver chose, and how.

    Attributes
    ----------
    selected : int64 array, shape (h,)
        Indices of the chosen features, ascending.
    solver_objective : float
        What the solver maximises, at ``selected``.
    iterations : int
        Iterations run; 0 for a closed form.
    converged : bool
        Whether the chosen set was stable at the end. It says nothing about the constraints: see
        ``primal_residuals``.
    primal_residuals : (float, float) or None
        ``(||V - U||_F, ||V - W||_F)`` at the last iteration of the ADMM.
    history : mapping of str to array, shape (iterations,)
        Figures of each iteration: ``solver_objective``; of the ADMM ``objective`` (Tr(S^T A S) of
        the rows chosen then), ``residual_u`` and ``residual_w``, all float64; ``rows_changed``
        (int64, rows chosen now and not before; ``h`` at first).
    """

    selected: Int
    solver_objective: float
    iterations: int = 0
    converged: bool = True
    primal_residuals: tuple[float, float] | None = None
    history: Mapping[str, Array] = field(default_factory=dict)

"""A kernel of some features, and of the samples that miss no value, counted on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.streaming.kernels import Kernel, State


@dataclass
class ScreenedState(Generic[State]):
    """A kernel's state with counts of its q features.

    Attributes
    ----------
    inner : of the kernel, after the rows kept.
    present : (q,) int64, values that are not missing, all rows.
    gaps : (q,) int64, values that are missing in the rows kept.
    nonzero : (q,) int64, values that are there and not 0, in the rows kept.
    dropped : row numbers left out, ascending, as pieces.
    """

    inner: State
    present: NDArray[np.int64]
    gaps: NDArray[np.int64]
    nonzero: NDArray[np.int64]
    dropped: list[NDArray[np.int64]]


@dataclass(frozen=True)
class Screened(Generic[State]):
    """A kernel that sees only some columns, and only rows without gaps in ``complete``.

    Parameters
    ----------
    columns : (q,) of the p features; None for all.
    features : q.
    complete : (q,) bool, features of which a row must not miss a value; None keeps all rows.
    count_nonzero : whether to count what is not 0.
    """

    kernel: Kernel[State]
    features: int
    columns: NDArray[np.int64] | None = None
    complete: NDArray[np.bool_] | None = None
    count_nonzero: bool = False

    def init(self) -> ScreenedState[State]:
        present, gaps, nonzero = np.zeros((3, self.features), np.int64)
        return ScreenedState(self.kernel.init(), present, gaps, nonzero, [])

    def update(
        self, state: ScreenedState[State], values: NDArray[Any], start: int
    ) -> ScreenedState[State]:
        if self.columns is not None:
            values = values[:, self.columns]
        if self.complete is not None:
            values = self._complete(state, self.complete, values, start)
        if self.count_nonzero:
            missing = np.isnan(values).sum(axis=0) if values.dtype.kind == "f" else 0
            state.nonzero += np.count_nonzero(values, axis=0) - missing
        if len(values):
            state.inner = self.kernel.update(state.inner, values, start)
        return state

    def merge(self, a: ScreenedState[State], b: ScreenedState[State]) -> ScreenedState[State]:
        return ScreenedState(
            self.kernel.merge(a.inner, b.inner),
            a.present + b.present,
            a.gaps + b.gaps,
            a.nonzero + b.nonzero,
            a.dropped + b.dropped,
        )

    @staticmethod
    def _complete(
        state: ScreenedState[State],
        complete: NDArray[np.bool_],
        values: NDArray[Any],
        start: int,
    ) -> NDArray[Any]:
        """The rows without gaps, the others noted."""
        if values.dtype.kind != "f":
            state.present += len(values)
            return values
        missing: NDArray[np.bool_] = np.isnan(values)
        state.present += len(values) - missing.sum(axis=0)
        keep = ~missing[:, complete].any(axis=1)
        state.gaps += missing[keep].sum(axis=0)
        if keep.all():
            return values
        state.dropped.append(np.flatnonzero(~keep) + start)
        kept: NDArray[Any] = values[keep]
        return kept

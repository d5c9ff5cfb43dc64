"""A kernel of some features and of the samples without missing values, beside a row sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
from scipy.sparse import csr_array

from kmufs_stream.streaming.kernels.kernel import Kernel, State, Sums
from kmufs_stream.streaming.kernels.sample import TakeRows
from kmufs_stream.typing import Array, Bool, Int


@dataclass
class ScreenedState(Sums, Generic[State]):
    """A kernel's state after the rows kept, and counts of its q features."""

    inner: State
    present: Int  # (q,), values of all rows that are not missing
    gaps: Int  # (q,), missing values of the rows kept
    nonzero: Int  # (q,), values of the rows kept that are neither 0 nor missing
    dropped: list[Int]  # ascending numbers of the rows dropped, in pieces
    sample: list[Array]  # rows of ``sampled``, in pieces


@dataclass(frozen=True)
class Screened(Generic[State]):
    """A kernel that is given only some columns, and only rows without gaps in ``complete``."""

    kernel: Kernel[State]
    features: int  # q
    columns: Int | None = None  # (q,) of the p features; None for all
    complete: Bool | None = None  # (q,), features that rows must not miss; None keeps all rows
    count_nonzero: bool = False
    sampled: Int | None = None  # rows to gather, whole

    def init(self) -> ScreenedState[State]:
        present, gaps, nonzero = np.zeros((3, self.features), np.int64)
        return ScreenedState(self.kernel.init(), present, gaps, nonzero, [], [])

    def update(self, state: ScreenedState[State], values: Any, start: int) -> ScreenedState[State]:
        if self.sampled is not None:
            state.sample = TakeRows(self.sampled).update(state.sample, values, start)
        if self.columns is not None:
            values = values[:, self.columns]
        if self.complete is not None:
            values = self._complete(state, self.complete, values, start)
        if self.count_nonzero:
            state.nonzero += _nonzero(values)
        if values.shape[0]:
            state.inner = self.kernel.update(state.inner, values, start)
        return state

    @staticmethod
    def _complete(state: ScreenedState[State], complete: Bool, values: Any, start: int) -> Any:
        """Return the rows without gaps; count the others."""
        if values.dtype.kind != "f":
            state.present += values.shape[0]
            return values
        missing = missing_in(values)
        state.present += values.shape[0] - missing.sum(axis=0)
        keep = missing[:, complete].sum(axis=1) == 0
        state.gaps += missing[keep].sum(axis=0)
        if keep.all():
            return values
        state.dropped.append(np.flatnonzero(~keep) + start)
        return values[keep]


def missing_in(block: Any) -> Any:
    """Return where values of a block, dense or CSR, are missing: booleans of the same kind."""
    if not isinstance(block, csr_array):
        return np.isnan(block)
    return csr_array((np.isnan(block.data), block.indices, block.indptr), shape=block.shape)


def _nonzero(block: Any) -> Int:
    """Count the values of each feature that are neither 0 nor missing."""
    values = block.data if isinstance(block, csr_array) else block
    there = values != 0
    if values.dtype.kind == "f":
        there &= ~np.isnan(values)
    if isinstance(block, csr_array):
        return np.bincount(block.indices[there], minlength=block.shape[1])
    counts: Int = there.sum(axis=0)
    return counts

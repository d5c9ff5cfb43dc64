"""Read all rows, once per kernel: gather the row sample, screen features and samples."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.events import Progress, Started
from kmufs_stream.factors.factor import RowSample
from kmufs_stream.factors.methods.screening import Standardised, standardise
from kmufs_stream.options import Screening
from kmufs_stream.sources import Matrix
from kmufs_stream.streaming.checkpoint import Checkpoint
from kmufs_stream.streaming.cluster import active_client
from kmufs_stream.streaming.kernels.kernel import Kernel, State
from kmufs_stream.streaming.kernels.moments import Moments
from kmufs_stream.streaming.kernels.scaling import Scaling
from kmufs_stream.streaming.kernels.screened import Screened, ScreenedState
from kmufs_stream.streaming.passes import CachedRows, run_planned
from kmufs_stream.streaming.planning.plan import Plan


def tell_plan(plan: Plan, progress: Progress) -> None:
    """Announce what a run may use, with the dashboard of its cluster."""
    client = active_client() if plan.cluster is not None else None
    dashboard = "" if client is None else str(client.dashboard_link)
    progress(replace(plan.resources, dashboard=dashboard))


class Reader:
    """Reads all rows once for each kernel that it is given; the first read gathers the sample.

    Kernels see the features asked for, and the samples that the policy for missing values keeps.

    Parameters
    ----------
    sampled : rows to gather, ascending.
    before : features of the rows before these, if there are any.
    complete : (q,) features asked for that have any value, as far as is known; the samples that
        miss one of them are left out. None keeps all samples.
    """

    def __init__(
        self,
        matrix: Matrix,
        plan: Plan,
        screening: Screening,
        progress: Progress,
        checkpoint: Checkpoint | None = None,
        *,
        sampled: NDArray[np.int64],
        before: Standardised | None = None,
        complete: NDArray[np.bool_] | None = None,
    ) -> None:
        self.matrix, self.plan, self.screening, self.progress = matrix, plan, screening, progress
        self.checkpoint = checkpoint
        self.client = active_client() if plan.cluster is not None else None
        self.rows = CachedRows(matrix.rows, plan.cached_rows) if plan.cached_rows else matrix.rows
        self.sampled, self.before = sampled, before
        self.pieces: list[NDArray[Any]] = []
        self.passes = 0
        self.seconds = 0.0
        self.complete = complete
        self.nonzero: NDArray[np.int64] | None = None
        self.dropped = np.empty(0, np.int64)

    def __call__(self, kernel: Kernel[State]) -> State:
        began = time.perf_counter()
        screens = self._screens or not self.passes
        state = self._screened(kernel) if screens else self._run(kernel)
        self.seconds += time.perf_counter() - began
        self.progress(Started("decomposing"))
        return state

    def standardise(
        self, moments: Moments, scaling: Scaling, variance: NDArray[np.float64], /
    ) -> Standardised:
        """Standardise the features that take part, by what the reads so far have found."""
        asked, name = self.matrix.asked, self.matrix.feature_name
        nonzero, dropped, before = self.nonzero, self.dropped, self.before
        if before is not None:
            dropped = np.concatenate([before.dropped, before.rows + dropped])
            if before.nonzero is not None and nonzero is not None:
                nonzero = before.nonzero + nonzero
        return standardise(
            moments,
            scaling,
            variance,
            feature_name=name if asked is None else lambda i: name(int(asked[i])),
            screening=self.screening,
            nonzero=nonzero,
            dropped=dropped,
        )

    def sample(self) -> RowSample:
        """The rows gathered, without those dropped for missing values."""
        sample = RowSample(self.sampled, self.pieces)
        if len(self.dropped):
            kept = ~np.isin(sample.index, self.dropped)
            sample = RowSample(sample.index[kept], [sample.values[kept]])
        return sample

    @property
    def _screens(self) -> bool:
        restricted = self.matrix.asked is not None or self.complete is not None
        return restricted or self.screening.min_nonzero > 0

    def _screened(self, kernel: Kernel[State]) -> State:
        counts = self.screening.min_nonzero > 0 and self.nonzero is None
        sampled = None if self.passes else self.sampled
        screened = partial(Screened, kernel, self.matrix.width, self.matrix.asked)
        state: ScreenedState[State] = self._run(screened(self.complete, counts, sampled))
        if sampled is not None:
            self.pieces = state.sample
        if self.complete is not None and (state.gaps > 0).any():
            # Features thought to be empty have values, so rows that miss them must go.
            self.complete = self.complete | (state.present > 0)
            if state.gaps[self.complete].any():
                state = self._run(screened(self.complete, counts))
        if counts:
            self.nonzero = state.nonzero
        if state.dropped:
            self.dropped = np.concatenate(state.dropped)
        return state.inner

    def _run(self, kernel: Kernel[State]) -> State:
        self.passes += 1
        kept = self.checkpoint
        return run_planned(
            kernel,
            rows=self.rows,
            plan=self.plan,
            stage="read",
            number=self.passes,
            of=self.plan.reads,
            client=self.client,
            saved=None if kept is None else kept.of_pass(self.passes, kernel),
            progress=self.progress,
        )

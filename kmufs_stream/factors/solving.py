"""The table of solvers, and how each is run on a factor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.errors import RequestError, Text, counted, unknown_value
from kmufs_stream.events import SILENT, Advanced, Progress, Started
from kmufs_stream.factors.factor import Factor
from kmufs_stream.factors.methods.leading import components_for
from kmufs_stream.options import (
    AdmmOptions,
)
from kmufs_stream.solvers import (
    Solution,
    admm,
    admm_bytes,
    consensus,
    consensus_bytes,
    css,
    css_bytes,
    exact,
    factor_rows,
    joint,
    joint_bytes,
    kept_rows,
    ranking,
)
from kmufs_stream.solvers.correlations import Rows
from kmufs_stream.solvers.solution import Watcher
from kmufs_stream.sources import Matrix
from kmufs_stream.system import blas

USUAL_STEPS = 300  # iterations of the ADMM: 295 to 348 measured on 5,000 x 800 counts
LONG = 6e11  # operations that take about a minute


@dataclass(frozen=True)
class SolverInput:
    """A factor of k components or more, and the question that a solver answers by it."""

    factor: Factor
    k: int
    h: int
    options: AdmmOptions
    watch: Watcher

    @property
    def components(self) -> NDArray[np.float64]:
        """P_k, shape (u, k)."""
        return np.ascontiguousarray(self.factor.components[:, : self.k])

    @property
    def eigenvalues(self) -> NDArray[np.float64]:
        """S_k^2 / n, shape (k,)."""
        return self.factor.eigenvalues[: self.k]

    @property
    def rows(self) -> Rows:
        """Rows of the correlation matrix, rebuilt from the components if it was not formed."""
        if self.factor.correlation is None:
            return factor_rows(self.factor.components, self.factor.eigenvalues)
        return kept_rows(self.factor.correlation)


def _admm(given: SolverInput) -> Solution:
    h, tie, options = given.h, given.factor.tie, vars(given.options)
    if h == len(given.components):  # nothing is left to choose
        return _exact(given)
    try:
        with blas.cores_for(len(given.components) * h**2):
            return admm(
                given.components,
                given.eigenvalues,
                h,
                tolerance=tie,
                watch=given.watch,
                **options,
            )
    except ValueError as error:  # a penalty out of proportion to these data
        raise RequestError(
            "bad_option",
            f"The ADMM cannot run: {error}.",
            Text("Change or leave out {mu0}, {mu_max}."),
        ) from error


def _exact(given: SolverInput) -> Solution:
    return exact(given.components, given.eigenvalues, given.h, tolerance=given.factor.tie)


def _by_correlations(solver: Callable[..., Solution], given: SolverInput) -> Solution:
    components, h = given.components, given.h
    with blas.cores_for(len(components) * h * given.k):
        return solver(
            components,
            given.eigenvalues,
            given.rows,
            h,
            tolerance=given.factor.tie,
            watch=given.watch,
        )


def _consensus(given: SolverInput) -> Solution:
    factor, k = given.factor, given.k
    m = len(factor.sample.index)
    if m < 2:
        raise RequestError(
            "no_sample",
            f"Solver consensus clusters the factor's row sample, which holds {m} rows.",
            Text("Decompose again, or choose {solver}.", solver="css"),
        )
    with blas.cores_for(m * len(factor.components) * k):
        return consensus(
            factor.components,
            factor.eigenvalues,
            given.rows,
            factor.sample_blocks,
            k,
            given.h,
            tolerance=factor.tie,
            watch=given.watch,
        )


def _rows_bytes(p: int, k: int, rows: int) -> int:
    """Bytes of rows of the correlation matrix if the factor does not hold it."""
    return 8 * p * (components_for(k, p) + 2 * rows)


@dataclass(frozen=True)
class Solver:
    """How a solver is run, and what it takes.

    Attributes
    ----------
    run : chooses; its indices count usable features.
    memory : working memory in bytes for p features, k, h and a sample of m rows.
    steps : unit of its progress: ``iterations``, ``features`` chosen one by one, or "" for a closed
        form.
    takes_options : whether AdmmOptions are its parameters.
    """

    run: Callable[[SolverInput], Solution]
    memory: Callable[[int, int, int, int], int]
    steps: str
    takes_options: bool = False


SOLVERS = {
    "admm": Solver(_admm, lambda p, k, h, m: admm_bytes(p, k, h), "iterations", True),
    "exact": Solver(_exact, lambda p, k, h, m: 8 * p * (k + 4), ""),
    "joint": Solver(
        partial(_by_correlations, joint),
        lambda p, k, h, m: joint_bytes(p, k, h) + _rows_bytes(p, k, h),
        "iterations",
    ),
    "css": Solver(
        partial(_by_correlations, css),
        lambda p, k, h, m: css_bytes(p, k, h) + _rows_bytes(p, k, 1),
        "features",
    ),
    "consensus": Solver(
        _consensus,
        lambda p, k, h, m: consensus_bytes(p, k, m) + _rows_bytes(p, k, 1),
        "features",
    ),
}
"""All solvers by name."""


def is_greedy(solver: str) -> bool:
    """Whether a solver chooses one feature after another."""
    return solver in SOLVERS and SOLVERS[solver].steps == "features"


def solving_stage(solver: str, h: int) -> Started:
    """The event that announces :func:`solve`."""
    total = h if is_greedy(solver) else 0
    return Started(f"solving ({solver})", total=total, unit=SOLVERS[solver].steps)


def solve(
    factor: Factor,
    k: int,
    h: int,
    solver: str,
    options: AdmmOptions,
    progress: Progress = SILENT,
) -> Solution:
    """Run a solver on a factor of k components or more; indices count usable features.

    Raises RequestError where the solver needs what the factor lacks, and for penalties with which
    the ADMM cannot run.
    """

    def watch(**figures: float) -> None:
        progress(Advanced(1, figures=figures))

    return SOLVERS[solver].run(SolverInput(factor, k, h, options, watch))


def check_solver(solver: str) -> None:
    """Raise RequestError for a solver that does not exist."""
    if solver not in SOLVERS:
        error = unknown_value("solver", solver, SOLVERS)
        if "," in solver:
            error.remedy += " kmufs-stream sweep takes several."
        raise error


def long_run_note(solvers: Iterable[str], p: int, hs: Sequence[int], max_iter: int) -> str | None:
    """Warn of an ADMM that may take minutes for these h among p features; None if it is quick.

    It depends on the sizes alone, so every machine says the same.
    """
    chosen = [h for h in hs if h < p]
    steps = min(USUAL_STEPS, max_iter)
    if "admm" not in solvers or steps * sum(4 * p * h**2 + 60 * h**3 for h in chosen) < LONG:
        return None
    many = f"{len(chosen):,} trials of " if len(chosen) > 1 else ""
    return (
        f"the solver admm may take minutes: {many}some {steps:,} steps, {max_iter:,} at most, "
        f"whose work grows with {p:,} features and with the cube of h, {max(chosen):,}; the solver "
        "exact has the model's optimum at once, and consensus usually finds clusters better"
    )


def size_note(k: int, h: int) -> str | None:
    """Note that k = 1 separates nothing, or that h features cannot separate k clusters."""
    if k == 1:
        return Text(
            "one cluster separates nothing: what is chosen follows the first "
            "component alone, as if to tell two apart; give {k} or more",
            k=2,
        )
    if h >= k - 1:
        return None
    return Text(
        "{:,} clusters differ along up to {:,} directions, of which {} can span "
        "{:,}; give {h} or more to span them all",
        k,
        k - 1,
        counted(h, "features"),
        h,
        h=k - 1,
    )


def usable_positions(
    factor: Factor, matrix: Matrix, wanted: NDArray[np.int64], h: int
) -> NDArray[np.int64]:
    """Find the features to keep among the usable ones."""
    features = factor.features
    for reason, index in features.excluded.items():
        lost = np.intersect1d(wanted, index)
        if len(lost):
            raise RequestError(
                "bad_keep",
                Text(
                    "{keep} asks for {}, which is left out: {}.",
                    matrix.feature_name(int(lost[0])),
                    reason.replace("_", " "),
                ),
                Text("Leave it out of {keep}."),
            )
    if len(wanted) > h:
        raise RequestError(
            "bad_keep",
            Text("{keep} asks for {} features, h is {}.", len(wanted), h),
            Text("Give {h} or more, or keep fewer.", h=len(wanted)),
        )
    return np.searchsorted(features.usable, wanted)


def with_kept(
    selected: NDArray[np.int64], kept: NDArray[np.int64], scores: NDArray[np.float64], h: int
) -> NDArray[np.int64]:
    """Fill up the kept features with the best of those selected, h in all, ascending.

    Applied to the model's optimum, this is the best choice that holds the kept ones.
    """
    others = np.setdiff1d(selected, kept)
    best = others[ranking(scores[others], 0.0)][: h - len(kept)]
    return np.sort(np.concatenate([kept, best]))

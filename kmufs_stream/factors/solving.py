"""The table of solvers, and how each is run on a factor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.errors import RequestError, Text, unknown_value
from kmufs_stream.events import SILENT, Advanced, Progress, Started
from kmufs_stream.factors.factor import Factor
from kmufs_stream.factors.methods.leading import components_for
from kmufs_stream.options import AdmmOptions
from kmufs_stream.solvers.admm import admm, admm_bytes
from kmufs_stream.solvers.consensus import Blocks, consensus, consensus_bytes
from kmufs_stream.solvers.correlations import Rows, factor_rows
from kmufs_stream.solvers.css import css, css_bytes
from kmufs_stream.solvers.exact import exact
from kmufs_stream.solvers.joint import joint, joint_bytes
from kmufs_stream.solvers.scores import ranking
from kmufs_stream.solvers.solution import Solution, UnsolvableError, Watcher
from kmufs_stream.sources import Matrix
from kmufs_stream.system import blas
from kmufs_stream.typing import Float

USUAL_STEPS = 300  # iterations of the ADMM: 295 to 348 measured on 5,000 x 800 counts
LONG = 6e11  # operations that take about a minute


@dataclass(frozen=True)
class SolverInput:
    """What a solver may ask for; see :mod:`kmufs_stream.solvers`."""

    components: Float
    eigenvalues: Float
    rows: Callable[[], Rows]  # which may take memory
    sample: Blocks
    h: int
    tolerance: float
    watch: Watcher
    options: AdmmOptions


def _rows(factor: Factor) -> Rows:
    if factor.correlation is None:
        return factor_rows(factor.components, factor.eigenvalues)
    return factor.correlation.__getitem__


def _rows_bytes(p: int, k: int, rows: int) -> int:
    """Bytes of rows of the correlation matrix if the factor does not hold it."""
    return 8 * p * (components_for(k, p) + 2 * rows)


@dataclass(frozen=True)
class Solver:
    """How a solver is run, and what it takes for p features, k, h and a sample of m rows.

    Attributes
    ----------
    run : chooses; its indices count usable features.
    work : multiplications of its largest product.
    memory : working memory in bytes.
    steps : unit of its progress: ``iterations``, ``features`` chosen one by one, or "" for a closed
        form.
    takes_options : whether AdmmOptions are its parameters.
    """

    run: Callable[[SolverInput], Solution]
    work: Callable[[int, int, int, int], int]
    memory: Callable[[int, int, int, int], int]
    steps: str
    takes_options: bool = False


SOLVERS = {
    "admm": Solver(
        lambda a: admm(
            a.components,
            a.eigenvalues,
            a.h,
            tolerance=a.tolerance,
            watch=a.watch,
            **vars(a.options),
        ),
        lambda p, k, h, m: p * h**2,
        lambda p, k, h, m: admm_bytes(p, k, h),
        "iterations",
        takes_options=True,
    ),
    "exact": Solver(
        lambda a: exact(a.components, a.eigenvalues, a.h, tolerance=a.tolerance),
        lambda p, k, h, m: p * k,
        lambda p, k, h, m: 8 * p * (k + 4),
        "",
    ),
    "joint": Solver(
        lambda a: joint(
            a.components, a.eigenvalues, a.rows(), a.h, tolerance=a.tolerance, watch=a.watch
        ),
        lambda p, k, h, m: p * h * k,
        lambda p, k, h, m: joint_bytes(p, k, h) + _rows_bytes(p, k, h),
        "iterations",
    ),
    "css": Solver(
        lambda a: css(
            a.components, a.eigenvalues, a.rows(), a.h, tolerance=a.tolerance, watch=a.watch
        ),
        lambda p, k, h, m: p * h * k,
        lambda p, k, h, m: css_bytes(p, k, h) + _rows_bytes(p, k, 1),
        "features",
    ),
    "consensus": Solver(
        lambda a: consensus(
            a.components,
            a.eigenvalues,
            a.rows(),
            a.sample,
            a.h,
            tolerance=a.tolerance,
            watch=a.watch,
        ),
        lambda p, k, h, m: p * k * m,
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
    p, m = len(factor.components), len(factor.sample.index)
    given = SolverInput(
        components=np.ascontiguousarray(factor.components[:, :k]),
        eigenvalues=factor.eigenvalues[:k],
        rows=partial(_rows, factor),
        sample=factor.sample_blocks,
        h=h,
        tolerance=factor.tie,
        watch=lambda **figures: progress(Advanced(1, figures=figures)),
        options=options,
    )
    nothing_left = solver == "admm" and h == p
    chosen = SOLVERS["exact" if nothing_left else solver]
    try:
        with blas.cores_for(chosen.work(p, k, h, m)):
            return chosen.run(given)
    except UnsolvableError as error:
        raise RequestError(
            "bad_option",
            f"The solver {solver} cannot run: {error}.",
            Text("Choose another {solver}, or leave out {mu0} and {mu_max}."),
        ) from error


def check_solver(solver: str) -> None:
    """Raise RequestError for a solver that does not exist."""
    if solver not in SOLVERS:
        raise unknown_value("solver", solver, SOLVERS)


def long_run_note(solvers: Iterable[str], p: int, hs: Sequence[int], max_iter: int) -> str | None:
    """Warn of an ADMM that may take minutes for these h among p features; None if it is quick.

    It depends on the sizes alone, so every machine says the same.
    """
    chosen = [h for h in hs if h < p]
    steps = min(USUAL_STEPS, max_iter)
    if "admm" not in solvers or steps * sum(4 * p * h**2 + 60 * h**3 for h in chosen) < LONG:
        return None
    return (
        f"the solver admm may take minutes, since its work grows with {p:,} features and with the "
        f"cube of h, {max(chosen):,}; the solver exact has the model's optimum at once, and "
        "consensus usually finds clusters better"
    )


def size_note(k: int, h: int) -> str | None:
    """Note that k = 1 separates nothing, or that h features cannot separate k clusters."""
    if k == 1:
        return Text("one cluster separates nothing; give {k} or more", k=2)
    if h < k - 1:
        differ = Text("{:,} clusters differ along up to {:,} directions; ", k, k - 1)
        return differ + Text("give {h} or more to span them", h=k - 1)
    return None


def usable_positions(
    factor: Factor, matrix: Matrix, wanted: NDArray[np.int64], h: int
) -> NDArray[np.int64]:
    """Find the features to keep among the usable ones."""
    features = factor.features
    lost = np.setdiff1d(wanted, features.usable)
    if len(lost):
        why = next(reason for reason, index in features.excluded.items() if lost[0] in index)
        name = matrix.feature_name(int(lost[0]))
        raise RequestError(
            "bad_keep",
            Text("{keep} asks for {}, which is left out: {}.", name, why.replace("_", " ")),
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

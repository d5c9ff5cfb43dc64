"""Which solvers there are, what they take, and a factor given to one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kmufs_stream import blas
from kmufs_stream.errors import RequestError, did_you_mean
from kmufs_stream.factor import Factor, components_for
from kmufs_stream.progress import SILENT, Advanced, Progress, Started
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
)


@dataclass(frozen=True)
class AdmmOptions:
    """Parameters of the ADMM; see :func:`kmufs_stream.solvers.admm`.

    Raises RequestError for those with which it is not defined.
    """

    mu0: float | None = None
    mu_max: float | None = None
    rho: float = 1.05
    max_iter: int = 3000
    patience: int = 30

    def __post_init__(self) -> None:
        mu0, mu_max = self.mu0, self.mu_max
        needs = [
            ("mu0", mu0, mu0 is None or 0 < mu0 < np.inf, "above 0"),
            ("mu_max", mu_max, mu_max is None or 0 < mu_max < np.inf, "above 0"),
            ("rho", self.rho, 1 <= self.rho < np.inf, "at least 1"),
            ("max_iter", self.max_iter, self.max_iter >= 1, "at least 1"),
            ("patience", self.patience, self.patience >= 1, "at least 1"),
        ]
        for parameter, value, met, needed in needs:
            if not met:
                raise RequestError(
                    "bad_option", f"`{parameter}` is {value}.", f"It must be {needed}."
                )
        if mu0 is not None and mu_max is not None and mu0 > mu_max:
            raise RequestError(
                "bad_option",
                f"`mu0={mu0}` is above `mu_max={mu_max}`.",
                "Give a smaller `mu0` or a larger `mu_max`: the penalty grows from it to that.",
            )


SOLVERS: dict[str, Callable[[int, int, int, int], int]] = {
    "admm": lambda p, k, h, m: admm_bytes(p, k, h),
    "exact": lambda p, k, h, m: 8 * p * (k + 4),
    "joint": lambda p, k, h, m: joint_bytes(p, k, h) + _rows_bytes(p, k, h),
    "css": lambda p, k, h, m: css_bytes(p, k, h) + _rows_bytes(p, k, 1),
    "consensus": lambda p, k, h, m: consensus_bytes(p, k, m) + _rows_bytes(p, k, 1),
}
"""The solvers, each with its working memory for p features, k, h and a sample of m rows."""


def _rows_bytes(p: int, k: int, rows: int) -> int:
    """What rows of the correlation matrix take where the factor does not hold it."""
    return 8 * p * (components_for(k, p) + 2 * rows)


def stage_of(solver: str, h: int) -> Started:
    """The stage that :func:`solve` is, as its beginning is told."""
    if solver in ("css", "consensus"):
        return Started(f"solving ({solver})", total=h, unit="features")
    return Started(f"solving ({solver})", unit="" if solver == "exact" else "iterations")


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
    components = np.ascontiguousarray(factor.components[:, :k])
    eigenvalues, tie = factor.eigenvalues[:k], factor.tie
    p = len(components)

    def watch(**figures: float) -> None:
        progress(Advanced(1, figures=figures))

    if solver == "exact":
        return exact(components, eigenvalues, h, tolerance=tie)
    if solver == "admm":
        try:
            with blas.cores_for(p * h**2):
                return admm(components, eigenvalues, h, tolerance=tie, watch=watch, **vars(options))
        except ValueError as error:  # a penalty out of proportion to these data
            raise RequestError(
                "bad_option",
                f"The ADMM cannot run: {error}.",
                "Change or leave out `mu0`, `mu_max`.",
            ) from error
    if factor.correlation is None:
        rows = factor_rows(factor.components, factor.eigenvalues)
    else:
        rows = kept_rows(factor.correlation)
    if solver == "joint":
        with blas.cores_for(p * h * k):
            return joint(components, eigenvalues, rows, h, tolerance=tie, watch=watch)
    if solver == "css":
        with blas.cores_for(p * h * k):
            return css(components, eigenvalues, rows, h, tolerance=tie, watch=watch)
    m = len(factor.sample.index)
    if m < 2:
        raise RequestError(
            "no_sample",
            f"Solver consensus clusters the factor's row sample, which holds {m} rows.",
            "Decompose again, or choose `solver='css'`.",
        )
    with blas.cores_for(m * p * k):
        return consensus(
            factor.components,
            factor.eigenvalues,
            rows,
            factor.sample_blocks,
            k,
            h,
            tolerance=tie,
            watch=watch,
        )


def check_solver(solver: str) -> None:
    """Refuse a solver that is not there."""
    if solver not in SOLVERS:
        raise RequestError(
            "bad_option",
            f"Solver {solver!r} is unknown.",
            f"{did_you_mean(solver, SOLVERS)}Choose one of {', '.join(SOLVERS)}.",
        )


def check_h(h: int, limit: int, what: str = "features") -> None:
    """Refuse h < 1 and h beyond the number of features."""
    if h < 1:
        raise RequestError(
            "bad_h", f"h is {h}; features are counted from 1.", "Give `h=1` or more."
        )
    if h > limit:
        raise RequestError(
            "bad_h", f"h is {h}, but the number of {what} is {limit}.", f"Give `h={limit}` or less."
        )

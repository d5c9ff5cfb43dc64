"""What is asked for by name: all names that there are, of solvers, methods and the rest."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from kmufs_stream.errors import Option, RequestError, Text, unknown_value
from kmufs_stream.events import SILENT, Progress

SolverName = Literal["admm", "consensus", "css", "exact", "joint"]
"""Solvers; see :func:`kmufs_stream.select`."""
MethodName = Literal["auto", "gram", "lanczos", "tsqr"]
"""Ways to compute a factor; see :func:`kmufs_stream.decompose`."""
PrecisionName = Literal["auto", "float32", "float64"]
"""Precisions of block products; see :func:`kmufs_stream.decompose`."""
MissingPolicy = Literal["raise", "drop-features", "drop-samples", "mean"]
"""What becomes of missing values; see :class:`kmufs_stream.Screening`."""


@dataclass(frozen=True)
class LanczosOptions:
    """When the block Lanczos iteration stops, and its random start.

    Parameters
    ----------
    tol : float, default 1e-4
        A score a_i has settled when neither its last change nor its estimated error is larger.
    max_passes : int, default 12
        Most reads of the data.
    seed : int, default 0
        Of the random start block.

    Raises
    ------
    RequestError
        Values with which the iteration is not defined.
    """

    tol: float = 1e-4
    max_passes: int = 12
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.tol < 1:
            raise RequestError(
                "bad_option", Text("{tol} is {}.", self.tol), "It must be between 0 and 1."
            )
        if self.max_passes < 1:
            raise RequestError(
                "bad_option", Text("{max_passes} is {}.", self.max_passes), "It must be at least 1."
            )
        if self.seed < 0:
            raise RequestError(
                "bad_option", Text("{seed} is {}.", self.seed), "It must be 0 or more."
            )


@dataclass(frozen=True)
class AdmmOptions:
    """Parameters of the ADMM, the solver ``admm``.

    Parameters
    ----------
    mu0, mu_max : float, optional
        First and last penalty, in the scale of A = P_k (S_k^2 / n) P_k^T; by default 1e-6 and 1e3
        times its largest eigenvalue.
    rho : float, default 1.05
        Growth of the penalty per iteration, 1 or more.
    max_iter : int, default 3000
        Most iterations.
    patience : int, default 30
        Stop when the chosen features have not changed for so many iterations.

    Raises
    ------
    RequestError
        Values with which the ADMM is not defined.
    """

    mu0: float | None = None
    mu_max: float | None = None
    rho: float = 1.05
    max_iter: int = 3000
    patience: int = 30

    def __post_init__(self) -> None:
        mu0, mu_max = self.mu0, self.mu_max
        needs = [
            ("mu0", mu0, mu0 is None or 0 < mu0 < math.inf, "above 0"),
            ("mu_max", mu_max, mu_max is None or 0 < mu_max < math.inf, "above 0"),
            ("rho", self.rho, 1 <= self.rho < math.inf, "at least 1"),
            ("max_iter", self.max_iter, self.max_iter >= 1, "at least 1"),
            ("patience", self.patience, self.patience >= 1, "at least 1"),
        ]
        for parameter, value, met, needed in needs:
            if not met:
                raise RequestError(
                    "bad_option",
                    Text("{} is {}.", Option(parameter), value),
                    f"It must be {needed}.",
                )
        if mu0 is not None and mu_max is not None and mu0 > mu_max:
            raise RequestError(
                "bad_option",
                Text("{mu0} is above {mu_max}.", mu0=mu0, mu_max=mu_max),
                Text(
                    "Give a smaller {mu0} or a larger {mu_max}: the penalty grows from it to that."
                ),
            )


POLICIES: tuple[MissingPolicy, ...] = get_args(MissingPolicy)


@dataclass(frozen=True)
class Screening:
    """What becomes of missing values and of features that hardly vary.

    Features without any value are always excluded first; infinite values always raise.

    Parameters
    ----------
    missing : {'raise', 'drop-features', 'drop-samples', 'mean'}, default 'raise'
        Raise; drop features that miss values; drop samples that do, counted over the features that
        have any value (a second read where only that read shows which); or have the mean of its
        feature stand in for what is missing.
    min_std : float, default 0
        Features of a smaller standard deviation, in units of the data, are excluded.
    min_nonzero : float, default 0
        Features of which a smaller fraction of the samples is not 0 are excluded.

    Raises
    ------
    RequestError
        Values that are not defined.
    """

    missing: MissingPolicy = "raise"
    min_std: float = 0.0
    min_nonzero: float = 0.0

    def __post_init__(self) -> None:
        if self.missing not in POLICIES:
            raise unknown_value("missing", self.missing, POLICIES)
        if not 0 <= self.min_std < math.inf:
            raise RequestError(
                "bad_option", Text("{min_std} is {}.", self.min_std), "It must be 0 or more."
            )
        if not 0 <= self.min_nonzero <= 1:
            raise RequestError(
                "bad_option",
                Text("{min_nonzero} is {}.", self.min_nonzero),
                "It is a fraction of the samples, between 0 and 1.",
            )


@dataclass(frozen=True)
class Spec:
    """What a run may use, where it keeps its state, and who is told of it.

    The functions of the package take these as keywords of their own; see
    :func:`kmufs_stream.decompose`.
    """

    memory: str | int | None = None
    threads: int | None = None
    precision: PrecisionName = "auto"
    checkpoint: str | os.PathLike[str] | None = None
    resume: bool = False
    storage_options: Mapping[str, Any] | None = None
    progress: Progress = SILENT

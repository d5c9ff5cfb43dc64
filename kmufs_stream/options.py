"""Options that functions share: names to choose from, and parameters that belong together."""

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
    """Parameters of the method ``lanczos``, the block Lanczos iteration.

    Parameters
    ----------
    tol : float, default 1e-4
        A score a_i has settled when neither its last change nor its estimated error is larger.
    max_passes : int, default 12
        Most reads of the data.
    seed : int, default 0
        Seed of the random start block.

    Raises
    ------
    RequestError
        A value out of range.
    """

    tol: float = 1e-4
    max_passes: int = 12
    seed: int = 0

    def __post_init__(self) -> None:
        _check("tol", self.tol, 0 < self.tol < 1, "between 0 and 1")
        _check("max_passes", self.max_passes, self.max_passes >= 1, "at least 1")
        _check("seed", self.seed, self.seed >= 0, "0 or more")


@dataclass(frozen=True)
class AdmmOptions:
    """Parameters of the solver ``admm``.

    Parameters
    ----------
    mu0, mu_max : float, optional
        First and last penalty, in the scale of A = P_k (S_k^2 / n) P_k^T; by default 1e-6 and 1e3
        times its largest eigenvalue.
    rho : float, default 1.05
        Factor by which the penalty grows in each iteration, 1 or more.
    max_iter : int, default 3000
        Most iterations.
    patience : int, default 30
        Stop after so many iterations without a change of the chosen features.

    Raises
    ------
    RequestError
        A value out of range.
    """

    mu0: float | None = None
    mu_max: float | None = None
    rho: float = 1.05
    max_iter: int = 3000
    patience: int = 30

    def __post_init__(self) -> None:
        mu0, mu_max = self.mu0, self.mu_max
        _check("mu0", mu0, mu0 is None or 0 < mu0 < math.inf, "above 0")
        _check("mu_max", mu_max, mu_max is None or 0 < mu_max < math.inf, "above 0")
        _check("rho", self.rho, 1 <= self.rho < math.inf, "at least 1")
        _check("max_iter", self.max_iter, self.max_iter >= 1, "at least 1")
        _check("patience", self.patience, self.patience >= 1, "at least 1")
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
    """How missing values and features that hardly vary are treated.

    Features without any value are always excluded first; infinite values always raise.

    Parameters
    ----------
    missing : {'raise', 'drop-features', 'drop-samples', 'mean'}, default 'raise'
        For missing values: raise an error; drop the features that have any; drop the samples that
        have any in a feature with values (which may take a second read); or use the feature's mean.
    min_std : float, default 0
        Exclude features with a smaller standard deviation, in units of the data.
    min_nonzero : float, default 0
        Exclude features that are nonzero in a smaller fraction of the samples.

    Raises
    ------
    RequestError
        An unknown name, or a value out of range.
    """

    missing: MissingPolicy = "raise"
    min_std: float = 0.0
    min_nonzero: float = 0.0

    def __post_init__(self) -> None:
        if self.missing not in POLICIES:
            raise unknown_value("missing", self.missing, POLICIES)
        _check("min_std", self.min_std, 0 <= self.min_std < math.inf, "0 or more")
        fraction = "a fraction of the samples, between 0 and 1"
        _check("min_nonzero", self.min_nonzero, 0 <= self.min_nonzero <= 1, fraction)


@dataclass(frozen=True)
class Spec:
    """What a run may use, where it keeps its state, and what follows its progress.

    Functions of the package take these as keywords; see :func:`kmufs_stream.decompose`.
    """

    memory: str | int | None = None
    threads: int | None = None
    precision: PrecisionName = "auto"
    checkpoint: str | os.PathLike[str] | None = None
    resume: bool = False
    storage_options: Mapping[str, Any] | None = None
    progress: Progress = SILENT


def _check(name: str, value: float | None, allowed: bool, needed: str) -> None:
    """Raise RequestError for a parameter whose value is not allowed."""
    if not allowed:
        message = Text("{} is {}.", Option(name), value)
        raise RequestError("bad_option", message, f"It must be {needed}.")

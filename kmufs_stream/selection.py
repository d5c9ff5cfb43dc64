"""Select features: from a table, or from its factor, to a result."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kmufs_stream import blas
from kmufs_stream.decomposition import (
    LanczosOptions,
    check_k,
    check_rank,
    compute_factor,
    fingerprint,
    plan_for,
)
from kmufs_stream.errors import RequestError
from kmufs_stream.factor import Factor
from kmufs_stream.factor_store import load_factor
from kmufs_stream.output import check_output
from kmufs_stream.progress import SILENT, Progress
from kmufs_stream.solvers import Solution, admm, admm_bytes, exact, feature_scores, ranking
from kmufs_stream.sources import Matrix, open_matrix
from kmufs_stream.sources.matrix import plain
from kmufs_stream.streaming.memory import peak_memory
from kmufs_stream.streaming.plan import Demand, Plan
from kmufs_stream.streaming.scaling import read_probe
from kmufs_stream.subset import column_name, free_dim, lazy_columns, subset_frame, write_result
from kmufs_stream.version import __version__
from kmufs_stream.zarr_io import opened_quietly

FORMAT_VERSION = 1
SOLVERS = ("admm", "exact")


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
            ("--mu0", mu0, mu0 is None or 0 < mu0 < np.inf, "above 0"),
            ("--mu-max", mu_max, mu_max is None or 0 < mu_max < np.inf, "above 0"),
            ("--rho", self.rho, 1 <= self.rho < np.inf, "at least 1"),
            ("--max-iter", self.max_iter, self.max_iter >= 1, "at least 1"),
            ("--patience", self.patience, self.patience >= 1, "at least 1"),
        ]
        for option, value, met, needed in needs:
            if not met:
                raise RequestError("bad_option", f"{option} is {value}.", f"It must be {needed}.")
        if mu0 is not None and mu_max is not None and mu0 > mu_max:
            raise RequestError(
                "bad_option",
                f"--mu0 {mu0} is above --mu-max {mu_max}.",
                "The penalty grows from the one to the other.",
            )


@dataclass(frozen=True)
class Seconds:
    """Wall-clock seconds by stage."""

    read: float
    factor: float
    solve: float
    write: float
    total: float


@dataclass(frozen=True, eq=False)
class Selection:
    """The chosen features, how they were chosen, and where the result is.

    Attributes
    ----------
    selected : (h,) int64 source indices, ascending.
    labels : their names, or None.
    scores : (h,) float64, a_i of the selected: the share of a feature's variance that the
        leading k components explain.
    ranks : (h,) int64, 1 = highest score among the selected.
    objective, optimum : Tr(S^T A S) of this choice, and the largest that any choice has.
    ambiguous : int64 source indices of the features whose score is as near to the h-th highest
        as ``factor.score_error``, where not all of them fit: which are chosen is arbitrary.
    output : where the result was written, or None.
    """

    k: int
    h: int
    solver: str
    parameters: dict[str, float | int]
    selected: NDArray[np.int64]
    labels: list[str | int | float | bool] | None
    scores: NDArray[np.float64]
    ranks: NDArray[np.int64]
    objective: float
    optimum: float
    ambiguous: NDArray[np.int64]
    solution: Solution
    factor: Factor
    matrix: Matrix
    plan: Plan
    passes: int
    output: Path | None
    seconds: Seconds

    @cached_property
    def dataset(self) -> xr.Dataset:
        """The result's root: selected columns, lazily read, with scores and provenance."""
        if self.output is not None:
            with opened_quietly():
                written: xr.Dataset = xr.open_zarr(self.output)
            return written
        frame = _frame(self, samples=True)
        name = column_name(self.matrix, frame)
        data = lazy_columns(self.matrix, self.selected, self.plan.output_chunk_rows)
        return xr.decode_cf(frame.assign({name: data}))

    def summary(self) -> dict[str, Any]:
        """The result in plain JSON types; the keys are listed in the README."""
        solution, features = self.solution, self.factor.features
        return {
            "selected": self.selected.tolist(),
            "labels": self.labels,
            "scores": self.scores.tolist(),
            "objective": self.objective,
            "optimum": self.optimum,
            "solver_objective": solution.solver_objective,
            "iterations": solution.iterations,
            "converged": solution.converged,
            "primal_residuals": (
                None if solution.primal_residuals is None else list(solution.primal_residuals)
            ),
            "ambiguous": self.ambiguous.tolist(),
            "k": self.k,
            "h": self.h,
            "solver": self.solver,
            "method": self.factor.method,
            "precision": self.factor.precision,
            "passes": self.passes,
            "settled": self.factor.settled,
            "score_error": self.factor.score_error,
            "last_change": self.factor.last_change if self.factor.passes > 1 else None,
            "residuals": self.factor.residuals.tolist(),
            "samples": features.samples,
            "features": self.matrix.shape[1],
            "usable": len(features.usable),
            "excluded": {reason: i.tolist() for reason, i in features.excluded.items()},
            "output": None if self.output is None else str(self.output),
            "seconds": vars(self.seconds).copy(),
            "concessions": list(self.plan.concessions),
            "peak_rss_bytes": peak_memory(),
            "predicted_peak_bytes": self.plan.peak,
            "version": __version__,
        }


def select(
    data: Any,
    k: int,
    h: int,
    *,
    solver: str = "admm",
    options: AdmmOptions | None = None,
    factor: Factor | str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    selection_only: bool = False,
    method: str = "auto",
    lanczos: LanczosOptions | None = None,
    memory: str | int | None = None,
    threads: int | None = None,
    precision: str = "auto",
    progress: Progress = SILENT,
) -> Selection:
    """Choose, without labels, the h features that best separate k clusters.

    Parameters
    ----------
    data : whatever :func:`kmufs_stream.open_matrix` opens, or a Matrix.
    k, h : clusters, and features to choose.
    solver : ``admm``, the paper's Algorithm 1 (Sun, Ding and Fan, arXiv 2411.15197), or
        ``exact``, the optimum of its model in closed form.
    options : parameters of the ADMM.
    factor : a factor of these data, or where it is stored: the data are then not read for it.
    out : where to write the result, a Zarr store; nothing is written by default.
    overwrite : replace an existing result at ``out`` once the new one is complete.
    selection_only : write indices, scores and diagnostics, copy no data.
    method, lanczos, memory, threads, precision : see :func:`kmufs_stream.decompose`.

    Raises
    ------
    RequestError : what is asked for cannot be met; nothing is written.
    BrokenError : a chunk is missing or cannot be read, or writing failed.
    """
    began = time.perf_counter()
    matrix = open_matrix(data)
    paths = [Path(matrix.source)] if Path(matrix.source).exists() else []
    lanczos = lanczos or LanczosOptions()
    if isinstance(factor, str | os.PathLike):
        paths.append(Path(factor))
        factor = load_factor(paths[-1])
    plan = plan_selection(
        matrix,
        k,
        h,
        solver=solver,
        factor=factor,
        selection_only=selection_only,
        method=method,
        lanczos=lanczos,
        memory=memory,
        threads=threads,
        precision=precision,
    )
    options = options or AdmmOptions()
    target = None if out is None else Path(out)
    if target is not None:
        check_output(target, paths, overwrite=overwrite)
    if factor is None:
        factor, spent = compute_factor(matrix, k, h, plan, lanczos, progress)
        read, decomposed, passes = spent.read, spent.factor, factor.passes
    else:
        check_belongs(factor, matrix)
        check_k(k, len(factor.singular_values), "components in this factor")
        check_rank(k, factor)
        read, decomposed, passes = time.perf_counter() - began, 0.0, 0
    check_h(h, len(factor.features.usable), "usable features")
    solving = time.perf_counter()
    progress.start("solving", 0)
    with blas.all_cores():
        solution = solve(factor, k, h, solver, options)
    scores = feature_scores(factor.components, factor.eigenvalues, k)
    chosen = scores[solution.selected]
    ranks = np.empty(h, np.int64)
    ranks[ranking(chosen, factor.tie)] = np.arange(1, h + 1)
    solved = time.perf_counter()
    selected = factor.features.usable[solution.selected]
    labels = None if matrix.labels is None else [plain(x) for x in matrix.labels[selected]]
    parameters: dict[str, float | int] = {}
    if solver == "admm":
        parameters = {name: v for name, v in vars(options).items() if v is not None}

    def result(wrote: float) -> Selection:
        return Selection(
            k=k,
            h=h,
            solver=solver,
            parameters=parameters,
            selected=selected,
            labels=labels,
            scores=chosen,
            ranks=ranks,
            objective=float(chosen.sum()),
            optimum=float(np.sort(scores)[-h:].sum()),
            ambiguous=factor.features.usable[ambiguous_at(scores, h, factor.score_error)],
            solution=solution,
            factor=factor,
            matrix=matrix,
            plan=plan,
            passes=passes,
            output=target,
            seconds=Seconds(read, decomposed, solved - solving, wrote, time.perf_counter() - began),
        )

    if target is not None:
        draft = result(0.0)
        write_result(
            target,
            matrix,
            _frame(draft, samples=not selection_only),
            {"all_features": _all_features(draft, scores), "diagnostics": _diagnostics(draft)},
            plan,
            samples=not selection_only,
            progress=progress,
        )
    return result(time.perf_counter() - solved)


def plan_selection(
    matrix: Matrix,
    k: int,
    h: int,
    *,
    solver: str = "admm",
    factor: Factor | None = None,
    selection_only: bool = False,
    method: str = "auto",
    lanczos: LanczosOptions | None = None,
    memory: str | int | None = None,
    threads: int | None = None,
    precision: str = "auto",
) -> Plan:
    """What :func:`select` would run, and its predicted peak memory; nothing is computed."""
    if solver not in SOLVERS:
        raise RequestError(
            "bad_option", f"Solver {solver!r} is unknown.", f"Choose {' or '.join(SOLVERS)}."
        )
    p = matrix.shape[1]
    check_h(h, p)
    demand = Demand(
        h=h,
        solver_bytes=admm_bytes(p, k, h) if solver == "admm" else 8 * p * (k + 4),
        copies=not selection_only,
        method=method,
        memory=memory,
        threads=threads,
        precision=precision,
    )
    return plan_for(matrix, k, demand, lanczos or LanczosOptions(), factor)


def solve(factor: Factor, k: int, h: int, solver: str, options: AdmmOptions) -> Solution:
    """Run a solver on the leading k components of a factor; indices count usable features."""
    components = np.ascontiguousarray(factor.components[:, :k])
    eigenvalues = factor.eigenvalues[:k]
    if solver == "exact":
        return exact(components, eigenvalues, h, tolerance=factor.tie)
    return admm(components, eigenvalues, h, tolerance=factor.tie, **vars(options))


def check_h(h: int, limit: int, what: str = "features") -> None:
    """Refuse h < 1 and h beyond the number of features."""
    if h < 1:
        raise RequestError(
            "bad_h", f"h is {h}; features are counted from 1.", "Give --h 1 or more."
        )
    if h > limit:
        raise RequestError(
            "bad_h", f"h is {h}, but there are only {limit} {what}.", f"Give --h {limit} or less."
        )


def check_belongs(factor: Factor, matrix: Matrix) -> None:
    """Refuse a factor of other data."""
    n, p = matrix.shape
    ours = {"shape": f"{n} x {p}"}
    if n and factor.fingerprint["shape"] == ours["shape"]:
        ours = fingerprint(matrix, read_probe(matrix))
    for what, found in ours.items():
        kept = factor.fingerprint.get(what)
        if kept == found:
            continue
        sizes = f" ({kept} against {found})" if what == "shape" else ""
        raise RequestError(
            "wrong_factor",
            f"The factor does not belong to {matrix.source}: its {what} differ{sizes}.",
            "Decompose these data again.",
        )


def ambiguous_at(scores: NDArray[np.float64], h: int, error: float) -> NDArray[np.int64]:
    """The features tied at the h-th highest score to within an error, if not all of them fit."""
    cutoff = np.partition(scores, len(scores) - h)[len(scores) - h]
    above = int((scores > cutoff + error).sum())
    tied = np.flatnonzero(np.abs(scores - cutoff) <= error)
    return tied if above + len(tied) > h else tied[:0]


def _attributes(result: Selection) -> dict[str, Any]:
    factor, solution = result.factor, result.solution
    features = factor.features
    return {
        "k": result.k,
        "h": result.h,
        "solver": result.solver,
        **{f"solver_{name}": value for name, value in result.parameters.items()},
        "objective": result.objective,
        "optimum": result.optimum,
        "solver_objective": solution.solver_objective,
        "iterations": solution.iterations,
        "converged": int(solution.converged),
        "ambiguous": len(result.ambiguous),
        "method": factor.method,
        "precision": factor.precision,
        "passes": factor.passes,
        "settled": int(factor.settled),
        "score_error": factor.score_error,
        "samples": features.samples,
        "features": result.matrix.shape[1],
        **{f"excluded_{reason}": len(i) for reason, i in features.excluded.items()},
        "source": result.matrix.source,
        "variable": result.matrix.name,
        "fingerprint": factor.fingerprint["data"],
        "format": "kmufs-selection",
        "format_version": FORMAT_VERSION,
        "version": __version__,
    }


def _frame(result: Selection, *, samples: bool) -> xr.Dataset:
    return subset_frame(
        result.matrix,
        result.selected,
        result.scores,
        result.ranks,
        _attributes(result),
        samples=samples,
    )


def _all_features(result: Selection, usable_scores: NDArray[np.float64]) -> xr.Dataset:
    features, p = result.factor.features, result.matrix.shape[1]
    scores = np.full(p, np.nan)
    scores[features.usable] = usable_scores
    chosen = np.zeros(p, bool)
    chosen[result.selected] = True
    reasons = np.full(p, "", dtype=object)
    for reason, index in features.excluded.items():
        reasons[index] = reason
    dim = free_dim("source_feature", result.matrix)
    every = xr.Dataset(
        {
            "score": (dim, scores),
            "selected": (dim, chosen),
            "excluded": (dim, reasons),
            "mean": (dim, features.mean),
            "std": (dim, features.std),
        }
    )
    labels = result.matrix.labels
    if labels is None:
        return every
    if labels.dtype.kind in "UTSO":
        labels = np.array([str(plain(label)) for label in labels], dtype=object)
    return every.assign_coords({dim: (dim, labels)})


def _diagnostics(result: Selection) -> xr.Dataset:
    factor = result.factor
    component = free_dim("component", result.matrix)
    iteration = free_dim("iteration", result.matrix)
    variables: dict[str, Any] = {
        "singular_values": (component, factor.singular_values),
        "residuals": (component, factor.residuals),
    }
    for name, values in result.solution.history.items():
        variables[name] = (iteration, values)
    return xr.Dataset(variables)

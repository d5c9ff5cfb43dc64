"""Many k, h and solvers from one factor, without reading the data again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import numpy as np
from upath import UPath
from zarr.abc.store import Store

from kmufs_stream.errors import RequestError
from kmufs_stream.events import SILENT, Noticed, Progress
from kmufs_stream.factors.computing import compute_factor
from kmufs_stream.factors.factor import Factor, as_whole, check_h, check_rank
from kmufs_stream.factors.identity import check_unchanged
from kmufs_stream.factors.noise import beyond_noise
from kmufs_stream.factors.planning import plan_for
from kmufs_stream.factors.solving import (
    SOLVERS,
    check_solver,
    long_run_note,
    solve,
    solving_stage,
)
from kmufs_stream.factors.store import load_factor
from kmufs_stream.factors.structure import (
    MOST_CLUSTERS,
    cluster_structure,
    knee,
    suggest_k,
)
from kmufs_stream.options import (
    AdmmOptions,
    LanczosOptions,
    MethodName,
    PrecisionName,
    Screening,
    SolverName,
)
from kmufs_stream.results.measures import mean_correlation
from kmufs_stream.results.trials import Sweep, Trial
from kmufs_stream.solvers.scores import feature_scores
from kmufs_stream.solvers.solution import Solution
from kmufs_stream.sources import Matrix, open_matrix
from kmufs_stream.sources.written import is_factor
from kmufs_stream.storage.output import check_output, new_output
from kmufs_stream.storage.places import place_of
from kmufs_stream.storage.provenance import origin
from kmufs_stream.streaming.kernels.sample import sample_size
from kmufs_stream.streaming.planning.sizing import PlanRequest
from kmufs_stream.system import blas
from kmufs_stream.system.memory import peak_memory

LADDER, LADDER_TOP = 12, 300  # values of h, and the largest, where h is to be suggested


def sweep(
    data: Any,
    k: int | Sequence[int] | None = None,
    h: int | Sequence[int] | None = None,
    *,
    solvers: SolverName | Sequence[SolverName] = "admm",
    options: AdmmOptions | None = None,
    method: MethodName = "auto",
    lanczos: LanczosOptions | None = None,
    screening: Screening | None = None,
    memory: str | int | None = None,
    threads: int | None = None,
    precision: PrecisionName = "auto",
    csv: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress = SILENT,
) -> Sweep:
    """Choose features for every k, h and solver from one factor.

    Parameters
    ----------
    data : Factor, or path, address, Zarr store or array, table in memory, or Matrix
        A factor, or where one is stored, which needs no read; or anything that
        :func:`kmufs_stream.open_matrix` opens, which is decomposed once.
    k : int or sequence of int, optional
        Numbers of clusters; by default the one that the spectrum suggests.
    h : int or sequence of int, optional
        Numbers of features; by default a dozen up to 300, evenly spaced on a logarithmic scale.
    solvers : str or sequence of str, default 'admm'
        Names of solvers; see :func:`kmufs_stream.select`.
    options : AdmmOptions, optional
        Parameters of the ADMM.
    method, lanczos, screening, memory, threads, precision, storage_options
        See :func:`kmufs_stream.decompose`; for a stored factor only the last matters.
    csv : path, optional
        File to write the table of all trials to.
    overwrite : bool, default False
        Replace that file if it exists.
    progress : callable, optional
        Called with each event; see :func:`kmufs_stream.select`.

    Returns
    -------
    Sweep
        All trials, and which k and h they suggest.

    Raises
    ------
    RequestError
        The request cannot be met.
    BrokenError
        A chunk is missing or cannot be read, or writing failed.
    """
    began = time.perf_counter()
    solvers = [solvers] if isinstance(solvers, str) else solvers
    ks, hs = _numbers("k", k), _numbers("h", h)
    for name, grid in (("k", ks), ("h", hs), ("solver", solvers)):
        if grid is not None and not len(grid):
            raise RequestError("bad_option", f"No {name} is given.", "Give one or more.")
    for solver in solvers:
        check_solver(solver)
    inputs = data.inputs if isinstance(data, Matrix) else []
    if isinstance(data, str | os.PathLike | UPath | Store):
        data = place_of(data, storage_options)
        inputs = [data]
        if is_factor(data):
            data = load_factor(data)
    if csv is not None:
        check_output(Path(csv), inputs, overwrite=overwrite, parameter="csv", file=True)
    passes = 0
    if isinstance(data, Factor):
        factor = data
    else:
        matrix = open_matrix(data)
        lanczos, screening = lanczos or LanczosOptions(), screening or Screening()
        p = matrix.width
        most = max(ks) if ks is not None else min(MOST_CLUSTERS, p)
        most_h = max(hs) if hs is not None else min(LADDER_TOP, p)
        check_h(most_h, p)
        sampled = sample_size(matrix.shape[0], matrix.shape[1] * matrix.dtype.itemsize)
        request = PlanRequest(
            h=most_h,
            solver_bytes=max(SOLVERS[name].memory(p, most, most_h, sampled) for name in solvers),
            method=method,
            memory=memory,
            threads=threads,
            precision=precision,
        )
        plan = plan_for(matrix, most, request, lanczos, screening)
        made = origin(matrix.source, None)
        found = compute_factor(matrix, most, None, plan, lanczos, screening, made, progress)
        check_unchanged(matrix, found.chunks)
        factor, passes = found.factor, found.passes
    suggestion = suggest_k(factor)
    if ks is None:
        ks = [min(suggestion.k or 1, factor.rank)]
    usable = len(factor.features.usable)
    if hs is None:
        hs = (
            np.unique(np.geomspace(1, min(LADDER_TOP, usable), LADDER).round()).astype(int).tolist()
        )
    ks, hs = sorted(set(ks)), sorted(set(hs))
    for wanted in ks:
        check_rank(wanted, factor)
    for number in hs:
        check_h(number, usable, "usable features")
    options = options or AdmmOptions()
    if (note := long_run_note(solvers, usable, hs * len(ks), options.max_iter)) is not None:
        progress(Noticed(note))
    turns, of = count(1), len(ks) * len(solvers) * len(hs)

    def solution(k: int, solver: SolverName, h: int) -> Solution:
        trial = f"{solver}, k = {k}, h = {h}, trial"
        progress(replace(solving_stage(solver, h), stage=trial, number=next(turns), of=of))
        return solve(factor, k, h, solver, options, progress)

    trials: list[Trial] = []
    with blas.all_cores():
        for k in ks:
            solutions = {(name, h): solution(k, name, h) for name in solvers for h in hs}
            trials += _trials(factor, k, solutions)
    curves = {which: [*curve] for which, curve in groupby(trials, attrgetter("k", "solver"))}
    swept = Sweep(
        trials=tuple(trials),
        suggested_k=suggestion,
        suggested_h={
            which: knee([t.h for t in curve], [t.explained for t in curve])
            for which, curve in curves.items()
        },
        usable=usable,
        passes=passes,
        seconds=time.perf_counter() - began,
        peak=peak_memory(),
    )
    if csv is not None:
        with new_output(Path(csv), overwrite=overwrite) as partial:
            swept.table().to_csv(partial, index=False)
    return swept


def _numbers(name: str, given: int | Sequence[int] | None) -> list[int] | None:
    """Convert one or several numbers to a list of int."""
    if given is None:
        return None
    several: list[Any] = [given] if np.ndim(given) == 0 else list(cast(Sequence[int], given))
    return [as_whole(name, number) for number in several]


def _trials(
    factor: Factor, k: int, solutions: Mapping[tuple[SolverName, int], Solution]
) -> Iterator[Trial]:
    """Measure what was chosen for k clusters, by solver and h."""
    chosen = np.unique(np.concatenate([solution.selected for solution in solutions.values()]))
    structure = cluster_structure(factor, chosen)
    scores = feature_scores(factor.components, factor.eigenvalues, k)
    falling = np.sort(scores)[::-1]
    telling = beyond_noise(
        factor.components[:, :k], factor.eigenvalues[:k], factor.features.samples
    )
    for (solver, h), solution in solutions.items():
        selected = solution.selected
        index = factor.features.usable[selected]
        yield Trial(
            k=k,
            h=h,
            solver=solver,
            objective=float(scores[selected].sum()),
            optimum=float(falling[:h].sum()),
            solver_objective=solution.solver_objective,
            iterations=solution.iterations,
            converged=solution.converged,
            at_noise=int((~telling[selected]).sum()),
            explained=structure.explained(selected, k),
            mean_correlation=mean_correlation(structure.of(selected)[0]),
            selected=index,
            labels=None if factor.labels is None else [str(x) for x in factor.labels[index]],
        )

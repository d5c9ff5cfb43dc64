"""Many k, h and solvers from one factor, without reading the data again."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from upath import UPath
from zarr.abc.store import Store

from kmufs_stream import blas
from kmufs_stream.choices import MethodName, PrecisionName, SolverName
from kmufs_stream.decomposition import compute_factor
from kmufs_stream.errors import BrokenError, RequestError, counted
from kmufs_stream.factor import Factor, as_whole, check_k, check_rank
from kmufs_stream.factor_store import is_factor, load_factor
from kmufs_stream.identity import check_unchanged
from kmufs_stream.measures import mean_correlation
from kmufs_stream.noise import beyond_noise
from kmufs_stream.output import check_file
from kmufs_stream.places import place_of
from kmufs_stream.progress import SILENT, Noticed, Progress
from kmufs_stream.proposal import Proposal, propose
from kmufs_stream.provenance import origin
from kmufs_stream.remedies import placing_options
from kmufs_stream.routes import LanczosOptions
from kmufs_stream.screening import Screening
from kmufs_stream.selection import plan_selection
from kmufs_stream.solvers import Solution, feature_scores
from kmufs_stream.solving import AdmmOptions, check_h, check_solver, foretold, solve, stage_of
from kmufs_stream.sources import open_matrix
from kmufs_stream.streaming.memory import peak_memory
from kmufs_stream.structure import MOST_CLUSTERS, KSuggestion, cluster_structure, knee, suggest_k
from kmufs_stream.version import __version__

LADDER, LADDER_TOP = 12, 300  # values of h, and the largest, where h is to be suggested


@dataclass(frozen=True, eq=False)
class Trial:
    """One choice of features.

    Attributes
    ----------
    explained : share of the relaxed cluster indicators Q_k in the span of the chosen features;
        k clusters make k - 1 components, and of the k-th, which is then noise, little is spanned.
    at_noise : how many of the chosen vary with the k components no more than noise would.
    mean_correlation : mean absolute correlation of two chosen features.
    selected : (h,) int64 source indices, ascending.
    labels : their names, or None.
    """

    k: int
    h: int
    solver: str
    objective: float
    optimum: float
    solver_objective: float
    iterations: int
    converged: bool
    at_noise: int
    explained: float
    mean_correlation: float
    selected: NDArray[np.int64]
    labels: list[str] | None


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """All trials, by k, then solver, then h, and what they suggest.

    Attributes
    ----------
    trials : tuple of Trial
        One for each k, solver and h, and a row of ``table()``.
    suggested_k : KSuggestion
        How many clusters the spectrum speaks for.
    suggested_h : dict of (int, str) to int or None
        By k and solver, the h at the knee of what is explained; None without a knee.
    usable : int
        Features that could be chosen.
    passes : int
        Reads of the data that it took: 0 from a factor.
    seconds : float
        Wall-clock seconds.
    """

    trials: tuple[Trial, ...]
    suggested_k: KSuggestion
    suggested_h: dict[tuple[int, str], int | None]
    usable: int
    passes: int
    seconds: float

    def __repr__(self) -> str:
        ks, hs = {t.k for t in self.trials}, {t.h for t in self.trials}
        return (
            f"<Sweep: {counted(len(self.trials), 'trials')}, k from {min(ks)} to {max(ks)}, h from "
            f"{min(hs)} to {max(hs)}, by {', '.join(dict.fromkeys(t.solver for t in self.trials))}>"
        )

    @property
    def proposal(self) -> Proposal | None:
        """The trial to begin with, and why; None where all choose all features."""
        return propose(self)

    def table(self) -> pd.DataFrame:
        """One row per trial; the chosen features as numbers between spaces, and a JSON list."""
        rows = [
            {
                **vars(trial),
                "selected": " ".join(map(str, trial.selected)),
                # Labels may hold whatever could part them.
                "labels": trial.labels and json.dumps(trial.labels, ensure_ascii=False),
            }
            for trial in self.trials
        ]
        return pd.DataFrame(rows)

    def summary(self) -> dict[str, Any]:
        """The sweep in plain JSON types; the keys are listed in docs/output.md."""
        return {
            "trials": [{**vars(t), "selected": t.selected.tolist()} for t in self.trials],
            "suggested_k": vars(self.suggested_k).copy(),
            "suggested_h": [
                {"k": k, "solver": solver, "h": h} for (k, solver), h in self.suggested_h.items()
            ],
            "passes": self.passes,
            "seconds": {"total": self.seconds},
            "peak_rss_bytes": peak_memory(),
            "version": __version__,
        }


@placing_options
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
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress = SILENT,
) -> Sweep:
    """Choose features for every k, h and solver from one factor.

    Parameters
    ----------
    data : Factor, or path, address, Zarr store or array, table in memory, or Matrix
        A factor, or where one is stored: nothing is read then; or whatever
        :func:`kmufs_stream.open_matrix` opens, which is decomposed once.
    k : int or sequence of int, optional
        Numbers of clusters; by default the one that the spectrum suggests.
    h : int or sequence of int, optional
        Numbers of features; by default a dozen, up to 300, each larger by the same factor.
    solvers : str or sequence of str, default 'admm'
        Names of solvers; see :func:`kmufs_stream.select`.
    options : AdmmOptions, optional
        Parameters of the ADMM.
    method, lanczos, screening, memory, threads, precision, storage_options
        See :func:`kmufs_stream.decompose`; of a factor only the last has a meaning.
    progress : callable, optional
        Told of what happens; see :func:`kmufs_stream.select`.

    Returns
    -------
    Sweep
        All trials, and which k and h they suggest.

    Raises
    ------
    RequestError
        What is asked for cannot be met.
    BrokenError
        A chunk is missing or cannot be read.
    """
    began = time.perf_counter()
    solvers = [solvers] if isinstance(solvers, str) else solvers
    ks, hs = _numbers("k", k), _numbers("h", h)
    for name, grid in (("k", ks), ("h", hs), ("solver", solvers)):
        if grid is not None and not len(grid):
            raise RequestError("bad_option", f"No {name} is given.", "Give one or more.")
    for solver in solvers:
        check_solver(solver)
    if isinstance(data, str | os.PathLike | UPath | Store):
        data = place_of(data, storage_options)
        if is_factor(data):
            data = load_factor(data)
    passes = 0
    if isinstance(data, Factor):
        factor = data
    else:
        matrix = open_matrix(data)
        lanczos, screening = lanczos or LanczosOptions(), screening or Screening()
        p = matrix.width
        most = max(ks) if ks is not None else min(MOST_CLUSTERS, p)
        plans = [
            plan_selection(
                matrix,
                most,
                max(hs) if hs is not None else min(LADDER_TOP, p),
                solver=solver,
                selection_only=True,
                method=method,
                lanczos=lanczos,
                screening=screening,
                memory=memory,
                threads=threads,
                precision=precision,
            )
            for solver in solvers
        ]
        plan = max(plans, key=lambda plan: plan.peak)
        made = origin(matrix.source, None)
        factor, _ = compute_factor(matrix, most, None, plan, lanczos, screening, made, progress)
        check_unchanged(matrix, factor.fingerprint["chunks"])
        passes = factor.passes
    suggestion = suggest_k(factor)
    if ks is None:
        ks = [min(suggestion.k or 1, factor.rank)]
    usable = len(factor.features.usable)
    if hs is None:
        hs = (
            np.unique(np.geomspace(1, min(LADDER_TOP, usable), LADDER).round()).astype(int).tolist()
        )
    ks, hs = sorted(set(ks)), sorted(set(hs))
    for clusters in ks:
        check_k(clusters, usable, "usable features")
        check_rank(clusters, factor)
    for number in hs:
        check_h(number, usable, "usable features")
    options = options or AdmmOptions()
    each = len(solvers) * len(hs)
    if (note := foretold(solvers, usable, hs * len(ks), options.max_iter)) is not None:
        progress(Noticed(note))
    with blas.all_cores():
        trials = tuple(
            trial
            for turn, clusters in enumerate(ks)
            for trial in _trials(
                factor, clusters, hs, solvers, options, progress, turn * each, len(ks) * each
            )
        )
    curves: dict[tuple[int, str], list[Trial]] = {}
    for trial in trials:
        curves.setdefault((trial.k, trial.solver), []).append(trial)
    return Sweep(
        trials=trials,
        suggested_k=suggestion,
        suggested_h={
            which: knee([t.h for t in curve], [t.explained for t in curve])
            for which, curve in curves.items()
        },
        usable=usable,
        passes=passes,
        seconds=time.perf_counter() - began,
    )


def _numbers(name: str, given: int | Sequence[int] | None) -> list[int] | None:
    """One or several whole numbers as a list."""
    if given is None:
        return None
    several: list[Any] = [given] if np.ndim(given) == 0 else list(cast(Sequence[int], given))
    return [as_whole(name, number) for number in several]


def _trials(
    factor: Factor,
    k: int,
    hs: Sequence[int],
    solvers: Sequence[str],
    options: AdmmOptions,
    progress: Progress,
    before: int,
    of: int,
) -> Iterator[Trial]:
    """The trials of one k, ``before`` others having been made of ``of`` in all."""
    solutions: dict[tuple[str, int], Solution] = {}
    for solver in solvers:
        for h in hs:
            stage = stage_of(solver, h)
            number = before + len(solutions) + 1
            progress(
                replace(stage, stage=f"{solver}, k = {k}, h = {h}, trial", number=number, of=of)
            )
            solutions[solver, h] = solve(factor, k, h, solver, options, progress)
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


def write_csv(found: Sweep, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write one line per trial.

    Raises RequestError if the file exists (without ``overwrite``), BrokenError if it cannot be
    written.
    """
    path = Path(path)
    check_file(path, "path", [], overwrite=overwrite)
    try:
        found.table().to_csv(path, index=False)
    except OSError as error:
        raise BrokenError(
            "write_failed",
            f"Writing {path} failed: {error.strerror or error}.",
            "Make room, or choose another `path`.",
        ) from error

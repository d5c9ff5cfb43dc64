"""Select features: open, plan, factor, choose, write."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.events import SILENT, Noticed, Progress
from kmufs_stream.factors.computing import FoundFactor, checkpoint_for, find_factor
from kmufs_stream.factors.factor import Factor, as_whole, check_h
from kmufs_stream.factors.identity import check_unchanged
from kmufs_stream.factors.noise import beyond_noise
from kmufs_stream.factors.planning import plan_for
from kmufs_stream.factors.reopening import Inputs, open_inputs
from kmufs_stream.factors.solving import (
    SOLVERS,
    check_solver,
    long_run_note,
    size_note,
    solve,
    solving_stage,
    usable_positions,
    with_kept,
)
from kmufs_stream.factors.structure import correlation_of
from kmufs_stream.options import (
    AdmmOptions,
    LanczosOptions,
    MethodName,
    PrecisionName,
    Screening,
    SolverName,
    Spec,
)
from kmufs_stream.results.anndata_columns import check_anndata_output, write_anndata
from kmufs_stream.results.result import (
    RELATED,
    Seconds,
    Selection,
    feature_columns,
    groups_of,
    root_of,
)
from kmufs_stream.results.writing import write_result
from kmufs_stream.solvers.scores import feature_scores, ranking
from kmufs_stream.sources import Matrix
from kmufs_stream.sources.matching import matching
from kmufs_stream.sources.samples import keep_samples
from kmufs_stream.storage.output import check_output, check_two_outputs
from kmufs_stream.storage.places import Place, PlaceLike, place_of
from kmufs_stream.storage.provenance import origin
from kmufs_stream.streaming.kernels.sample import sample_size
from kmufs_stream.streaming.planning.plan import Plan
from kmufs_stream.streaming.planning.sizing import PlanRequest
from kmufs_stream.system import blas
from kmufs_stream.system.memory import peak_memory


def select(
    data: Any,
    k: int,
    h: int,
    *,
    solver: SolverName = "admm",
    options: AdmmOptions | None = None,
    factor: Factor | PlaceLike | None = None,
    out: PlaceLike | None = None,
    anndata_out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    selection_only: bool = False,
    keep: str | Sequence[str] | None = None,
    method: MethodName = "auto",
    lanczos: LanczosOptions | None = None,
    screening: Screening | None = None,
    memory: str | int | None = None,
    threads: int | None = None,
    precision: PrecisionName = "auto",
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    command: str | None = None,
    progress: Progress = SILENT,
) -> Selection:
    """Choose, without labels, the h features that best separate k clusters.

    Parameters
    ----------
    data : path, address, Zarr store or array, table in memory, or Matrix
        Anything that :func:`kmufs_stream.open_matrix` opens.
    k : int
        Number of clusters.
    h : int
        Number of features to choose.
    solver : {'admm', 'consensus', 'css', 'exact', 'joint'}, default 'admm'
        ``admm``: the paper's Algorithm 1 (Sun, Ding and Fan, arXiv 2411.15197); ``exact``: the
        optimum of its model in closed form; ``joint``: its problem before relaxation (eq. 6);
        ``css``: column subset selection; ``consensus``: alignment with an ensemble of clusterings,
        the best at finding unlabelled groups on most data.
    options : AdmmOptions, optional
        Parameters of the ADMM.
    factor : Factor, path, address or Zarr store, optional
        A factor of these data, or where one is stored. The data are not read for it again, and
        the options with which they were opened need not be repeated.
    out : path, address or empty Zarr store, optional
        Where to write the result, such as ``s3://bucket/chosen.zarr``; by default nothing is
        written.
    anndata_out : path, optional
        Where to copy the AnnData store that ``data`` is, with the columns ``kmufs_selected``,
        ``kmufs_score`` and ``kmufs_rank`` added to its table of features.
    overwrite : bool, default False
        Replace an existing result once the new one is complete. In an object store this is not
        atomic: there is no result while the new one is copied.
    selection_only : bool, default False
        Write indices, scores and diagnostics without the data.
    keep : str or sequence of str, optional
        Features that are always chosen, in place of the lowest scores among what the solver chose:
        names, patterns or ``@FILE``, as in :func:`kmufs_stream.open_matrix`.
    method, lanczos, screening, memory, threads, precision, checkpoint, resume
        See :func:`kmufs_stream.decompose`, which also says how an active Dask client is used.
    storage_options : mapping, optional
        Options of fsspec for addresses.
    command : str, optional
        A command line to record in the result, with the date.
    progress : callable, optional
        Called with each event in the calling thread: a :class:`kmufs_stream.Planned`, ``Started``,
        ``Advanced`` or ``Noticed``; ``print`` will do. An exception that it raises ends the run.

    Returns
    -------
    Selection
        The chosen features, how they were chosen, and where the result was written.

    Raises
    ------
    RequestError
        The request cannot be met; nothing is written.
    BrokenError
        A chunk is missing or cannot be read, or writing failed.
    """
    began = time.perf_counter()
    k, h = as_whole("k", k), as_whole("h", h)
    spec = Spec(memory, threads, precision, checkpoint, resume, storage_options, progress)
    question = Question(
        k, h, solver, options or AdmmOptions(), method, lanczos or LanczosOptions(), screening
    )
    inputs = open_inputs(data, factor, storage_options)
    wanted = None if keep is None else np.flatnonzero(matching(inputs.matrix, keep, "keep"))
    plan = _plan(inputs, question, spec, copies=not selection_only)
    outputs = _outputs(inputs, out, anndata_out, spec, overwrite=overwrite)
    made = origin(inputs.matrix.source, command)
    with checkpoint_for(plan, outputs.result, spec, made) as states:
        found = find_factor(
            inputs,
            k,
            h if wanted is None else None,
            plan,
            question.lanczos,
            screening,
            made,
            progress,
            states,
        )
        if outputs.result is None:  # else it is checked once the columns are copied, too
            check_unchanged(inputs.matrix, found.chunks)
        solving = time.perf_counter()
        chosen = _choose(inputs.matrix, found, question, wanted, made, plan, progress)
        solved = time.perf_counter()
        _write(chosen, outputs, found.chunks, samples=not selection_only, progress=progress)
        ended = time.perf_counter()
    seconds = Seconds(found.read, found.solve, solved - solving, ended - solved, ended - began)
    return replace(
        chosen,
        output=outputs.result,
        anndata_output=outputs.annotated,
        seconds=seconds,
        peak=peak_memory(),
    )


@dataclass(frozen=True)
class Question:
    """What is asked of a table: k clusters, h features, and how to find them."""

    k: int
    h: int
    solver: SolverName
    options: AdmmOptions
    method: MethodName
    lanczos: LanczosOptions
    screening: Screening | None


@dataclass(frozen=True)
class Outputs:
    """Where a result goes, checked before anything is computed."""

    result: Place | None
    annotated: Path | None
    overwrite: bool


def _plan(inputs: Inputs, question: Question, spec: Spec, *, copies: bool) -> Plan:
    """What would run, and its predicted peak memory; ``copies``: the columns are written, too."""
    check_solver(question.solver)
    matrix, h = inputs.matrix, question.h
    check_h(h, matrix.width)
    sampled = sample_size(matrix.shape[0], matrix.shape[1] * matrix.dtype.itemsize)
    request = PlanRequest(
        h=h,
        solver_bytes=SOLVERS[question.solver].memory(matrix.width, question.k, h, sampled),
        copies=copies,
        method=question.method,
        memory=spec.memory,
        threads=spec.threads,
        precision=spec.precision,
    )
    screening = question.screening or Screening()
    plan = plan_for(matrix, question.k, request, question.lanczos, screening, inputs.factor)
    usable = matrix.width if inputs.factor is None else len(inputs.factor.components)
    takes_long = long_run_note([question.solver], usable, [h], question.options.max_iter)
    notes = size_note(question.k, h), takes_long
    return replace(plan, notes=tuple(note for note in notes if note is not None))


def _outputs(
    inputs: Inputs,
    out: PlaceLike | None,
    anndata_out: str | os.PathLike[str] | None,
    spec: Spec,
    *,
    overwrite: bool,
) -> Outputs:
    options = spec.storage_options
    result = None if out is None else place_of(out, options)
    if result is not None:
        check_output(result, inputs.places, overwrite=overwrite)
    if anndata_out is None:
        return Outputs(result, None, overwrite)
    copy = place_of(anndata_out, options)
    kept = None if spec.checkpoint is None else place_of(spec.checkpoint, options)
    for other in (result, kept):
        if other is not None:
            check_two_outputs(copy, other, "anndata_out")
    annotated = check_anndata_output(copy, inputs.matrix, inputs.places, overwrite=overwrite)
    return Outputs(result, annotated, overwrite)


def _choose(
    matrix: Matrix,
    found: FoundFactor,
    question: Question,
    wanted: NDArray[np.int64] | None,
    made: dict[str, str],
    plan: Plan,
    progress: Progress,
) -> Selection:
    """Choose by a factor, with the ``wanted`` features in the choice."""
    factor, k, h, solver = found.factor, question.k, question.h, question.solver
    check_h(h, len(factor.features.usable), "usable features")
    max_iter = question.options.max_iter
    if (note := long_run_note([solver], len(factor.components), [h], max_iter)) is not None:
        progress(Noticed(note))
    progress(solving_stage(solver, h))
    solution = solve(factor, k, h, solver, question.options, progress)
    scores = feature_scores(factor.components, factor.eigenvalues, k)
    kept = np.empty(0, np.int64)
    if wanted is not None:
        kept = usable_positions(factor, matrix, wanted, h)
        solution = replace(solution, selected=with_kept(solution.selected, kept, scores, h))
    best = ranking(scores[solution.selected], factor.tie)[:RELATED]
    related = solution.selected[np.sort(best)]
    with blas.cores_for(len(factor.sample.index) * len(related) ** 2):
        correlation = correlation_of(factor, related)
    if len(factor.features.dropped):
        rows = np.delete(np.arange(matrix.shape[0]), factor.features.dropped)
        matrix = keep_samples(matrix, rows)
    parameters: dict[str, float | int] = {}
    if SOLVERS[solver].takes_options:
        parameters = {name: v for name, v in vars(question.options).items() if v is not None}
    return Selection(
        k=k,
        solver=solver,
        parameters=parameters,
        kept=factor.features.usable[kept],
        solution=solution,
        every_score=scores,
        beyond_noise=beyond_noise(
            factor.components[:, :k], factor.eigenvalues[:k], factor.features.samples
        ),
        correlation=correlation,
        factor=factor,
        passes=found.passes,
        matrix=matrix,
        origin=made,
        plan=plan,
    )


def _write(
    chosen: Selection, outputs: Outputs, chunks: str, *, samples: bool, progress: Progress
) -> None:
    """Write the result, with the chosen columns of all ``samples``, where that was asked for."""
    if outputs.result is not None:
        write_result(
            outputs.result,
            chosen.matrix,
            root_of(chosen, samples=samples),
            groups_of(chosen),
            chosen.plan,
            samples=samples,
            overwrite=outputs.overwrite,
            verify=partial(check_unchanged, chosen.matrix, chunks),
            progress=progress,
        )
    if outputs.annotated is not None:
        columns = feature_columns(chosen)
        write_anndata(outputs.annotated, chosen.matrix, columns, overwrite=outputs.overwrite)


def plan_selection(
    data: Any,
    k: int,
    h: int,
    *,
    solver: SolverName = "admm",
    factor: Factor | PlaceLike | None = None,
    selection_only: bool = False,
    method: MethodName = "auto",
    lanczos: LanczosOptions | None = None,
    screening: Screening | None = None,
    memory: str | int | None = None,
    threads: int | None = None,
    precision: PrecisionName = "auto",
    storage_options: Mapping[str, Any] | None = None,
) -> Plan:
    """Plan what :func:`select` would run, with its predicted peak memory; nothing is computed.

    Parameters
    ----------
    data, k, h, solver, factor, selection_only
        See :func:`kmufs_stream.select`.
    method, lanczos, screening, memory, threads, precision, storage_options
        See :func:`kmufs_stream.decompose`.

    Returns
    -------
    Plan
        Method, precision, block rows, threads, reads, and bytes by stage.

    Raises
    ------
    RequestError
        The request cannot be met as far as metadata tell: k, h or an option out of range, a factor
        of a table of another shape, a budget too small.
    """
    question = Question(
        as_whole("k", k),
        as_whole("h", h),
        solver,
        AdmmOptions(),
        method,
        lanczos or LanczosOptions(),
        screening,
    )
    inputs = open_inputs(data, factor, storage_options)
    return _plan(inputs, question, Spec(memory, threads, precision), copies=not selection_only)

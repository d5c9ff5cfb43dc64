"""Select features: from a table, or from its factor, to a result."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.errors import RequestError, Text
from kmufs_stream.events import SILENT, Noticed, Progress
from kmufs_stream.factors.computing import FactorSeconds, checkpoint_for, compute_factor, inputs_of
from kmufs_stream.factors.factor import Factor, as_whole, check_k, check_rank
from kmufs_stream.factors.identity import check_belongs, check_screening, check_unchanged
from kmufs_stream.factors.noise import beyond_noise
from kmufs_stream.factors.planning import plan_for
from kmufs_stream.factors.reopening import as_decomposed, open_like
from kmufs_stream.factors.solving import SOLVERS, check_h, check_solver, foretold, solve, stage_of
from kmufs_stream.factors.store import load_factor
from kmufs_stream.factors.structure import correlation_of
from kmufs_stream.options import (
    AdmmOptions,
    LanczosOptions,
    MethodName,
    PrecisionName,
    Screening,
    SolverName,
)
from kmufs_stream.results.anndata_columns import check_anndata_output, write_anndata
from kmufs_stream.results.result import (
    RELATED,
    Resources,
    Seconds,
    Selection,
    feature_columns,
    groups_of,
    ranks_by,
    root_of,
)
from kmufs_stream.results.writing import write_result
from kmufs_stream.solvers import feature_scores, ranking
from kmufs_stream.sources import Matrix
from kmufs_stream.sources.restrict import keep_samples, matching
from kmufs_stream.storage.output import check_output, check_two_outputs
from kmufs_stream.storage.places import PlaceLike, place_of
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
        Whatever :func:`kmufs_stream.open_matrix` opens.
    k : int
        Number of clusters.
    h : int
        Number of features to choose.
    solver : {'admm', 'consensus', 'css', 'exact', 'joint'}, default 'admm'
        ``admm``: the paper's Algorithm 1 (Sun, Ding and Fan, arXiv 2411.15197); ``exact``: the
        optimum of its model in closed form; ``joint``: its problem before the relaxation; ``css``:
        column subset selection; ``consensus``: alignment with an ensemble of clusterings, which
        finds unlabelled groups best on most data.
    options : AdmmOptions, optional
        Parameters of the ADMM.
    factor : Factor, path, address or Zarr store, optional
        A factor of these data, or where it is stored: the data are then not read for it, and where
        in them the table is, transforms, and what takes part need not be said again.
    out : path, address or empty Zarr store, optional
        Where to write the result, such as ``s3://bucket/chosen.zarr``; nothing is written by
        default.
    anndata_out : path, optional
        Where to write a copy of the AnnData store that ``data`` is, with three columns more in the
        table of its features: ``kmufs_selected``, ``kmufs_score``, ``kmufs_rank``.
    overwrite : bool, default False
        Replace an existing result once the new one is complete; in an object store it is then
        copied there, and nothing is there meanwhile.
    selection_only : bool, default False
        Write indices, scores and diagnostics, copy no data.
    keep : str or sequence of str, optional
        Labels, patterns or ``@FILE``, as of :func:`kmufs_stream.open_matrix`, of features that are
        always chosen, in place of the lowest scores among what the solver chose.
    method, lanczos, screening, memory, threads, precision, checkpoint, resume
        See :func:`kmufs_stream.decompose`; an active Dask client is used as there.
    storage_options : mapping, optional
        For fsspec, where any of the places is an address.
    command : str, optional
        The command line that asks for this, to be kept in the result with the date.
    progress : callable, optional
        Called with each event as it happens, in the thread that called: a
        :class:`kmufs_stream.Planned`, ``Started``, ``Advanced`` or ``Noticed``; ``print`` will do.
        An exception that it raises ends the run.

    Returns
    -------
    Selection
        The chosen features, how they were chosen, and where the result is.

    Raises
    ------
    RequestError
        What is asked for cannot be met; nothing is written.
    BrokenError
        A chunk is missing or cannot be read, or writing failed.
    """
    began = time.perf_counter()
    k, h = as_whole("k", k), as_whole("h", h)
    matrix = open_like(factor, data, storage_options=storage_options)
    places = inputs_of(matrix)
    lanczos = lanczos or LanczosOptions()
    wanted = None if keep is None else np.flatnonzero(matching(matrix, keep, "keep"))
    if factor is not None and not isinstance(factor, Factor):
        places.append(place_of(factor, storage_options))
        factor = load_factor(places[-1])
    if factor is not None:
        matrix = as_decomposed(factor, matrix)
    plan = plan_selection(
        matrix,
        k,
        h,
        solver=solver,
        factor=factor,
        selection_only=selection_only,
        method=method,
        lanczos=lanczos,
        screening=screening,
        memory=memory,
        threads=threads,
        precision=precision,
    )
    options = options or AdmmOptions()
    target = None if out is None else place_of(out, storage_options)
    if target is not None:
        check_output(target, places, overwrite=overwrite)
    kept_in = None if checkpoint is None else place_of(checkpoint, storage_options)
    annotated = None
    if anndata_out is not None:
        copy = place_of(anndata_out, storage_options)
        for other in (target, kept_in):
            if other is not None:
                check_two_outputs(copy, other, "anndata_out")
        annotated = check_anndata_output(copy, matrix, places, overwrite=overwrite)
    made = origin(matrix.source, command)
    with checkpoint_for(
        plan, target, kept_in, resume=resume, about=made, progress=progress
    ) as states:
        if factor is None:
            settled = h if wanted is None else None
            screening = screening or Screening()
            factor, spent = compute_factor(
                matrix, k, settled, plan, lanczos, screening, made, progress, states
            )
            pieces, passes = factor.fingerprint["chunks"], factor.passes
            if target is None:  # else it is checked once the columns are copied, too
                check_unchanged(matrix, pieces)
        else:
            pieces, passes = check_belongs(factor, matrix), 0
            check_screening(factor, screening)
            check_k(k, len(factor.singular_values), "components in this factor")
            check_rank(k, factor)
            progress(plan.resources)
            spent = FactorSeconds(time.perf_counter() - began, 0.0)
        solving = time.perf_counter()
        result = _choose(
            factor, matrix, k, h, solver, options, wanted, passes, made, plan, progress
        )
        solved = time.perf_counter()
        if target is not None:
            write_result(
                target,
                result.matrix,
                root_of(result, samples=not selection_only),
                groups_of(result),
                plan,
                samples=not selection_only,
                overwrite=overwrite,
                verify=partial(check_unchanged, result.matrix, pieces),
                progress=progress,
            )
        if annotated is not None:
            write_anndata(annotated, result.matrix, feature_columns(result), overwrite=overwrite)
        wrote = time.perf_counter()
        seconds = Seconds(
            read=spent.read,
            factor=spent.factor,
            solve=solved - solving,
            write=wrote - solved,
            total=wrote - began,
        )
        resources = Resources(plan, seconds, peak_memory())
        return replace(result, output=target, anndata_output=annotated, resources=resources)


def _choose(
    factor: Factor,
    matrix: Matrix,
    k: int,
    h: int,
    solver: str,
    options: AdmmOptions,
    wanted: NDArray[np.int64] | None,
    passes: int,
    made: dict[str, str],
    plan: Plan,
    progress: Progress,
) -> Selection:
    """What a solver chooses by a factor, with the ``wanted`` features in it; not yet written."""
    check_h(h, len(factor.features.usable), "usable features")
    if (note := foretold([solver], len(factor.components), [h], options.max_iter)) is not None:
        progress(Noticed(note))
    progress(stage_of(solver, h))
    solution = solve(factor, k, h, solver, options, progress)
    scores = feature_scores(factor.components, factor.eigenvalues, k)
    kept = np.empty(0, np.int64)
    if wanted is not None:
        kept = usable_positions(factor, matrix, wanted, h)
        solution = replace(solution, selected=with_kept(solution.selected, kept, scores, h))
    related = solution.selected[ranks_by(scores[solution.selected], factor.tie) <= RELATED]
    with blas.cores_for(len(factor.sample.index) * len(related) ** 2):
        correlation = correlation_of(factor, related)
    if len(factor.features.dropped):
        rows = np.delete(np.arange(matrix.shape[0]), factor.features.dropped)
        matrix = keep_samples(matrix, rows)
    parameters: dict[str, float | int] = {}
    if SOLVERS[solver].takes_options:
        parameters = {name: v for name, v in vars(options).items() if v is not None}
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
        passes=passes,
        matrix=matrix,
        origin=made,
        resources=Resources(plan),
    )


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
    """What :func:`select` would run, and its predicted peak memory; nothing is computed.

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
        What is asked for cannot be met, as far as metadata tell: k, h or an option out of range, a
        factor of a table of another shape, a budget too small.
    """
    check_solver(solver)
    k, h = as_whole("k", k), as_whole("h", h)
    matrix = open_like(factor, data, storage_options=storage_options)
    if factor is not None and not isinstance(factor, Factor):
        factor = load_factor(factor, storage_options=storage_options)
    if factor is not None:
        matrix = as_decomposed(factor, matrix)
    n, p = matrix.shape[0], matrix.width
    check_h(h, p)
    sampled = sample_size(n, matrix.shape[1] * matrix.dtype.itemsize)
    request = PlanRequest(
        h=h,
        solver_bytes=SOLVERS[solver].memory(p, k, h, sampled),
        copies=not selection_only,
        method=method,
        memory=memory,
        threads=threads,
        precision=precision,
    )
    lanczos, screening = lanczos or LanczosOptions(), screening or Screening()
    return plan_for(matrix, k, request, lanczos, screening, factor)


def usable_positions(
    factor: Factor, matrix: Matrix, wanted: NDArray[np.int64], h: int
) -> NDArray[np.int64]:
    """Where the features to keep are among the usable ones."""
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
    """The kept features and the best of the others that were selected, h in all, ascending.

    Of the model's optimum this makes the best choice that holds the kept ones.
    """
    others = np.setdiff1d(selected, kept)
    best = others[ranking(scores[others], 0.0)][: h - len(kept)]
    return np.sort(np.concatenate([kept, best]))

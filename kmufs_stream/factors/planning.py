"""From a matrix and what is asked of it to a plan: the table's facts, the costs of each method."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from kmufs_stream.factors.factor import Factor, check_k
from kmufs_stream.factors.identity import check_shape
from kmufs_stream.factors.methods import METHODS, Problem
from kmufs_stream.options import LanczosOptions, Screening
from kmufs_stream.sources import Matrix
from kmufs_stream.streaming.cluster import active_client, cluster_size
from kmufs_stream.streaming.planning.plan import Plan, make_plan
from kmufs_stream.streaming.planning.sizing import Candidate, Candidates, Cost, PlanRequest
from kmufs_stream.streaming.planning.table import Table


def plan_for(
    matrix: Matrix,
    k: int,
    request: PlanRequest,
    lanczos: LanczosOptions,
    screening: Screening,
    factor: Factor | None = None,
) -> Plan:
    """Plan a run for k clusters: method, blocks and peak memory; nothing is computed.

    With a factor nothing is read for one, and the method is ``factor``. The workers of an active
    Dask client read, unless the data are in this process's memory.
    """
    check_k(k, matrix.width)
    table = table_of(matrix, screening)
    client = None if matrix.layout.in_memory else active_client()
    if client is not None:
        request = replace(request, cluster=cluster_size(client))
    if factor is not None:
        check_shape(factor, matrix)
        at_hand = Cost(0, 0, 0, 0, kept=factor.nbytes, reads=0)
        candidates = {"factor": Candidate(lambda rows, itemsize: at_hand)}
        return make_plan(table, candidates, replace(request, method="auto"))
    return make_plan(table, _candidates(problem_of(matrix, k, lanczos, screening)), request)


def table_of(matrix: Matrix, screening: Screening | None = None) -> Table:
    """Collect the facts about a matrix that a plan follows from."""
    layout = matrix.layout
    copies = int(layout.copied) + int(matrix.asked is not None) + int(bool(matrix.transforms))
    if screening and screening.missing == "drop-samples" and matrix.dtype.kind == "f":
        copies += 2
    return Table(matrix.shape, matrix.dtype, layout, matrix.width, copies)


def problem_of(
    matrix: Matrix, k: int, lanczos: LanczosOptions, screening: Screening, h: int | None = None
) -> Problem:
    """State what a method has to find in a matrix."""
    return Problem(
        p=matrix.width,
        k=k,
        h=h,
        sparse=matrix.layout.sparsity is not None,
        fills=matrix.dtype.kind == "f" and screening.missing == "mean",
        lanczos=lanczos,
    )


def _candidates(problem: Problem) -> Candidates:
    """The methods, as plans see them."""
    return {
        name: Candidate(
            partial(method.cost, problem),
            passed_over=method.passed_over(problem.p),
            float64=method.float64,
            thin=method.thin,
        )
        for name, method in METHODS.items()
    }

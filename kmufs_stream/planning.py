"""From a matrix and what is asked of it to a plan: the table's facts, the costs of each route."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kmufs_stream.errors import RequestError
from kmufs_stream.factor import Factor, check_k, components_for
from kmufs_stream.identity import check_shape
from kmufs_stream.routes.lanczos import lanczos_bytes, product_block_columns
from kmufs_stream.screening import Screening
from kmufs_stream.sources import Matrix
from kmufs_stream.streaming.cluster import active_client, cluster_size
from kmufs_stream.streaming.plan import Plan, make_plan
from kmufs_stream.streaming.sizing import Cost, Costs, Demand
from kmufs_stream.streaming.sparse import gram_update_bytes, slab_rows
from kmufs_stream.streaming.table import Table


@dataclass(frozen=True)
class LanczosOptions:
    """When the block Lanczos iteration stops, and its random start.

    Attributes
    ----------
    tol : a score a_i has settled when neither its last change nor its estimated error is larger.
    max_passes : reads of the data at most.
    seed : of the random start block.

    Raises RequestError for those with which it is not defined.
    """

    tol: float = 1e-4
    max_passes: int = 12
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.tol < 1:
            raise RequestError("bad_option", f"`tol` is {self.tol}.", "It must be between 0 and 1.")
        if self.max_passes < 1:
            raise RequestError(
                "bad_option", f"`max_passes` is {self.max_passes}.", "It must be at least 1."
            )
        if self.seed < 0:
            raise RequestError("bad_option", f"`seed` is {self.seed}.", "It must be 0 or more.")


def plan_for(
    matrix: Matrix,
    k: int,
    demand: Demand,
    lanczos: LanczosOptions,
    screening: Screening,
    factor: Factor | None = None,
) -> Plan:
    """What would run for k clusters, and its predicted peak memory; nothing is computed.

    With a factor at hand nothing is read for it, and the plan's method is ``factor``. Where a
    Dask client is active its workers read, unless the data are in this process's memory.
    """
    p = matrix.width
    check_k(k, p)
    table = table_of(matrix, screening)
    client = None if matrix.in_memory else active_client()
    if client is not None:
        demand = replace(demand, cluster=cluster_size(client))
    if factor is not None:
        check_shape(factor, matrix)
        at_hand = Cost(0, 0, 0, 0, kept=factor.nbytes, reads=0)
        return make_plan(table, {"factor": lambda rows, itemsize: at_hand}, demand)
    fills = matrix.dtype.kind == "f" and screening.missing == "mean"
    sparse = matrix.sparsity is not None
    return make_plan(table, _costs(p, k, lanczos.max_passes, fills, sparse), demand)


def table_of(matrix: Matrix, screening: Screening | None = None) -> Table:
    """The facts about a matrix that a plan follows from."""
    copies = int(matrix.stacked) + int(matrix.asked is not None) + int(bool(matrix.transforms))
    if screening and screening.missing == "drop-samples" and matrix.dtype.kind == "f":
        copies += 2
    return Table(
        shape=matrix.shape,
        dtype=matrix.dtype,
        stored_itemsize=matrix.stored_dtype.itemsize,
        chunk_rows=matrix.chunk_rows,
        chunk_columns=matrix.chunk_columns,
        shard_rows=matrix.shard_rows,
        in_memory=matrix.in_memory,
        chunk_cells=matrix.chunk_cells,
        width=matrix.width,
        copies=copies,
        sparsity=matrix.sparsity,
        held_bytes=matrix.held_bytes,
    )


def _costs(p: int, k: int, max_passes: int, fills: bool, sparse: bool) -> Costs:
    """Memory and reads of the three routes; ``fills``: means may stand in for missing values."""
    components = 3 * 8 * p * components_for(k, p)
    square = 8 * (p + 1) ** 2

    def gram(rows: int, itemsize: int) -> Cost:
        # Finish: the scatter, the correlation matrix, and the copy that LAPACK destroys.
        product = gram_update_bytes(rows, p) if sparse else p * p * itemsize
        noted, of_gaps = 0, 0
        if fills:
            noted = 2 * square
            of_gaps = 3 * square if sparse else product + rows * p * itemsize
        return Cost(
            square + noted,
            product + of_gaps,
            0,
            3 * square + 2 * noted + components,
            square + noted + components,
            reads=1,
        )

    def tsqr(rows: int, itemsize: int) -> Cost:
        rows = min(rows, slab_rows(p)) if sparse else rows
        stacked = 2 * 8 * (rows + p + 1) * (p + 1)
        stacked += 8 * rows * p if sparse else 0
        update, finish = stacked + 4 * square, 8 * square + components
        return Cost(square, update, 0, finish, components, reads=2 if fills else 1)

    def lanczos(rows: int, itemsize: int) -> Cost:
        size = lanczos_bytes(p, product_block_columns(k), max_passes, rows, itemsize)
        # Sparse products make the vectors scaled, transposed, and a product to add.
        update = size.update + (size.state * 3 if sparse else 0)
        finish = size.driver + components
        return Cost(size.state, update, size.driver, finish, components, reads=max_passes)

    return {"gram": gram, "tsqr": tsqr, "lanczos": lanczos}

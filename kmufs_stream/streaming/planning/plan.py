"""What will run, and what it will take: decided before any value is read.

Method, precision, block rows and partitions follow from the store, k, h and the options alone;
only threads and what stays cached follow from the memory that there is. So results do not depend
on the machine's state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast, get_args

import numpy as np
from dask.utils import parse_bytes

from kmufs_stream.errors import RequestError, counted, did_you_mean
from kmufs_stream.events import Planned
from kmufs_stream.options import PrecisionName
from kmufs_stream.streaming.kernels.scaling import Precision
from kmufs_stream.streaming.planning.sizing import (
    BASELINE,
    MB,
    WORKER_SHARE,
    ClusterSize,
    Demand,
    Sizing,
    Ways,
    block_sizes,
)
from kmufs_stream.streaming.planning.table import Table
from kmufs_stream.system.blas import usable_cores
from kmufs_stream.system.memory import available_memory, size

KB = 1000
SOME_GB = 100  # a number without a unit, below which it is rather of GB than of MB


@dataclass(frozen=True, repr=False)
class Plan:
    """How a factor is computed and a subset written, with its predicted peak memory.

    :func:`kmufs_stream.plan_selection` makes it.

    Attributes
    ----------
    table : Table
        The facts about the data that it follows from.
    method : str
        ``gram``, ``lanczos`` or ``tsqr``; ``factor`` where one is at hand.
    precision : {'float32', 'float64'}
        Of the products of blocks.
    block_rows : int
        Rows that a task reads at a time.
    blocks_per_partition : int
        Blocks that are folded where they are read, one after another.
    threads : int
        Tasks side by side, in each worker where there are any.
    budget : int
        Bytes of memory that may be used.
    peak : int
        Upper bound of the process's resident bytes: the largest of ``stages``.
    stages : dict of str to int
        Bytes by stage, the interpreter's own included.
    reads : int
        Passes over the data for the factor, at most.
    cached_rows : int
        Rows that stay in memory between reads.
    output_bytes : int
        Bytes of the selected columns, decoded; 0 where none are copied.
    output_chunk_rows : int
        Rows of a chunk of these.
    rejected : dict of str to str
        Per method that does not run, why.
    concessions : tuple of str
        What was given up to fit the budget.
    cluster : ClusterSize or None
        The workers that read; None for this process.
    worker_peak : int
        Upper bound of a worker's resident bytes; 0 without a cluster.
    """

    table: Table
    method: str
    precision: Precision
    block_rows: int
    blocks_per_partition: int
    threads: int
    budget: int
    peak: int
    stages: dict[str, int]
    reads: int
    cached_rows: int
    output_bytes: int
    output_chunk_rows: int
    rejected: dict[str, str]
    concessions: tuple[str, ...]
    cluster: ClusterSize | None = None
    worker_peak: int = 0

    def __repr__(self) -> str:
        n, p = self.table.shape
        return (
            f"<Plan: {self.method} of {n:,} x {p:,} in {self.precision}, "
            f"{counted(self.reads, 'reads')} at most, {counted(self.threads, 'threads')}, peak "
            f"{size(self.peak)} of {size(self.budget)}>"
        )

    @property
    def read_bytes(self) -> int:
        """Bytes that the reads for the factor decode, at most."""
        return self.reads * self.table.shape[0] * self.table.row_bytes

    @property
    def resources(self) -> Planned:
        """What the run may take, for whoever watches."""
        workers = 0 if self.cluster is None else self.cluster.workers
        return Planned(self.budget, self.threads, workers, plan=self)

    @property
    def partitions(self) -> list[range]:
        """Per partition, the first rows of its blocks."""
        n = self.table.shape[0]
        rows = self.block_rows * self.blocks_per_partition
        return [range(a, min(a + rows, n), self.block_rows) for a in range(0, n, rows)]


def make_plan(table: Table, ways: Ways, demand: Demand) -> Plan:
    """Choose how to run.

    Under a tight budget it gives up, in this order: the cache, threads, then, for an explicit
    ``memory`` only, block rows, then the preferred way.

    Raises RequestError for options out of range, and where nothing fits, with the sizes.
    """
    explicit = parse_memory(demand.memory)
    budget = explicit if explicit is not None else available_memory() // 2
    if demand.threads is not None and demand.threads < 1:
        raise RequestError(
            "bad_option", f"`threads` is {demand.threads}.", "Give `threads=1` or more."
        )
    wanted = demand.threads or usable_cores() + 1  # one reads while the others compute
    methods, rejected = _methods(ways, demand.method)
    smallest: Sizing | None = None
    for method in methods if explicit is not None else methods[:1]:
        way = ways[method]
        precision = resolve_precision(
            "float64" if way.float64 or table.layout.sparsity else demand.precision, table.dtype
        )
        sizes = list(block_sizes(table, precision, thin=way.thin))
        for block_rows in sizes if explicit is not None else sizes[:1]:
            sizing = Sizing(table, way, demand, precision, block_rows)
            if smallest is None or sizing.peak(1) < smallest.peak(1):
                smallest = sizing
            if sizing.peak(1) > budget or not sizing.fits_workers:
                continue
            most = min(wanted, sizing.partitions)
            if demand.cluster is not None:
                most = demand.cluster.threads
            threads = next(t for t in range(most, 0, -1) if sizing.peak(t) <= budget)
            given_up = []
            if threads < most:
                given_up.append(f"{threads} of {most} threads")
            if block_rows < sizes[0]:
                given_up.append(f"blocks of {block_rows} rows, not {sizes[0]}")
            if method != methods[0]:
                given_up.append(f"{method}, not {methods[0]}")
                rejected = {**rejected, methods[0]: "does not fit the budget"}
                del rejected[method]
            return _planned(sizing, method, threads, budget, rejected, tuple(given_up))
    assert smallest is not None
    raise _does_not_fit(smallest, budget, explicit is not None)


def _planned(
    sizing: Sizing,
    method: str,
    threads: int,
    budget: int,
    rejected: dict[str, str],
    concessions: tuple[str, ...],
) -> Plan:
    table, stages = sizing.table, sizing.stages(threads)
    cached = 0
    if sizing.demand.cluster is not None and sizing.cost.reads > 1:
        concessions = ("no rows cached between reads, on a cluster", *concessions)
    elif sizing.cost.reads > 1 and not table.layout.in_memory:
        spare = table.first_rows(max(budget - stages["pass"], 0))
        cached = min(spare // sizing.block_rows * sizing.block_rows, table.shape[0])
        stages["pass"] += table.block_bytes(cached) if cached else 0
        if cached < table.shape[0]:
            part = f"{cached} of {table.shape[0]} rows" if cached else "no rows"
            concessions = (f"{part} cached between reads", *concessions)
    return Plan(
        table=table,
        method=method,
        precision=sizing.precision,
        block_rows=sizing.block_rows,
        blocks_per_partition=sizing.blocks_per_partition,
        threads=threads,
        budget=budget,
        peak=max(stages.values()),
        stages=stages,
        reads=sizing.cost.reads,
        cached_rows=cached,
        output_bytes=(
            table.shape[0] * sizing.demand.h * table.layout.dtype.itemsize
            if sizing.demand.copies
            else 0
        ),
        output_chunk_rows=sizing.chunk_rows,
        rejected=rejected,
        concessions=concessions,
        cluster=sizing.demand.cluster,
        worker_peak=sizing.worker_peak,
    )


PRECISIONS: tuple[PrecisionName, ...] = get_args(PrecisionName)


def resolve_precision(precision: str, dtype: np.dtype[Any]) -> Precision:
    """``auto`` is float32 wherever it holds every value of the dtype exactly."""
    if precision == "auto":
        return "float32" if np.can_cast(dtype, np.float32, "safe") else "float64"
    if precision not in PRECISIONS:
        raise RequestError(
            "bad_option",
            f"Precision {precision!r} is unknown.",
            f"{did_you_mean(precision, PRECISIONS)}Choose one of {', '.join(PRECISIONS)}.",
        )
    return cast(Precision, precision)


def parse_memory(memory: str | int | None) -> int | None:
    """Bytes from a size such as 2GB (decimal) or 2GiB; None for the default."""
    if memory is None:
        return None
    try:
        budget = int(parse_bytes(memory)) if memory else 0  # Dask takes "" for a byte
    except (ValueError, OverflowError):
        budget = 0
    if budget <= 0:
        raise RequestError(
            "bad_option",
            f"Memory {memory!r} is not a size.",
            "Write it like 500MB, 2GB or 2GiB.",
        )
    if budget < KB and isinstance(memory, str):
        meant = f"{budget}{'GB' if budget < SOME_GB else 'MB'}"
        raise RequestError(
            "bad_option",
            f"Memory {memory!r} is {counted(budget, 'bytes')}, which nothing fits in.",
            f"Did you mean {meant}?",
        )
    return budget


def _methods(ways: Ways, method: str) -> tuple[list[str], dict[str, str]]:
    """Methods to try in turn, and why the others are not."""
    if method != "auto":
        if method not in ways:
            raise RequestError(
                "bad_option",
                f"Method {method!r} is unknown.",
                f"{did_you_mean(method, ['auto', *ways])}Choose one of auto, {', '.join(ways)}.",
            )
        return [method], {other: f"{method} was asked for" for other in ways if other != method}
    rejected = {name: way.passed_over for name, way in ways.items() if way.passed_over}
    tried = [name for name in ways if name not in rejected]
    return tried, rejected | dict.fromkeys(tried[1:], f"{tried[0]} will do")


def _does_not_fit(sizing: Sizing, budget: int, explicit: bool) -> RequestError:
    cluster = sizing.demand.cluster
    if cluster is not None and cluster.memory is not None and not sizing.fits_workers:
        needed = int(sizing.worker_peak / WORKER_SHARE)
        least = -(-needed // MB)
        remedy = f"Start workers with {least}MB or more, or with fewer threads each."
        if cluster.started_here:
            remedy += (
                " Those of `workers` share `memory` with this process: give "
                f"{least * (cluster.workers + 1)}MB or more."
            )
        return RequestError(
            "does_not_fit",
            f"A worker with {counted(cluster.threads, 'threads')} needs "
            f"{size(needed)} of memory, the smallest of {cluster.workers} has "
            f"{size(cluster.memory)} (blocks {size(sizing.block)} a thread, states "
            f"{size(sizing.cost.state)} each).",
            remedy,
        )
    peak, stages = sizing.peak(1), sizing.stages(1)
    given = "`memory`" if explicit else "half of the memory available"
    sizes = ", ".join(f"{stage} {size(number)}" for stage, number in stages.items())
    remedy = f"Give `memory='{-(-peak // MB)}MB'` or more"
    turn = "" if sizing.table.layout.sparsity is None else sizing.table.layout.sparsity.turn
    if turn:
        remedy += (
            f"; the source itself takes {size(sizing.table.layout.held_bytes)}: sparse data stored "
            f"by columns (CSC) are read whole. Stored by rows they are streamed: {turn}"
        )
    elif budget < BASELINE:
        remedy += f": Python and its libraries take {size(BASELINE)} of it, however small the table"
    elif (
        sizing.table.layout.chunk_rows >= sizing.table.shape[0] > 1
        and stages["pass"] == peak
        and max(stages["factor"], stages["solver"]) <= budget
    ):
        remedy += (
            "; or, as one chunk spans all rows, write them in chunks of fewer: kmufs-stream "
            "rechunk does"
        )
    return RequestError(
        "does_not_fit",
        f"At least {size(peak)} of memory are needed, {given} is {size(budget)} "
        f"(by stage: {sizes}).",
        remedy if turn else remedy + ".",
    )

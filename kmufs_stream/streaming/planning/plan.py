"""Decide what will run, and what it will take, before any value is read.

Method, precision, block rows and partitions follow from the store, k, h and the options alone; only
threads and cached rows follow from the available memory. So results do not depend on the state of
the machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast, get_args

import numpy as np

from kmufs_stream.errors import RequestError, Text, counted, unknown_value
from kmufs_stream.events import Planned
from kmufs_stream.options import PrecisionName
from kmufs_stream.streaming.kernels.scaling import Precision
from kmufs_stream.streaming.planning.sizing import (
    MB,
    WORKER_SHARE,
    Candidates,
    ClusterSize,
    PlanRequest,
    Sizing,
    block_sizes,
)
from kmufs_stream.streaming.planning.table import Table
from kmufs_stream.system.blas import usable_cores
from kmufs_stream.system.memory import available_memory, size
from kmufs_stream.version import __version__


@dataclass(frozen=True, repr=False)
class Plan:
    """How a factor is computed and a subset written, with its predicted peak memory.

    Made by :func:`kmufs_stream.plan_selection`.

    Attributes
    ----------
    table : Table
        Facts about the data that the plan follows from.
    method : str
        ``gram``, ``lanczos`` or ``tsqr``; ``factor`` where one is given.
    precision : {'float32', 'float64'}
        Of the products of blocks.
    block_rows : int
        Rows that a task reads at a time.
    blocks_per_partition : int
        Blocks that one task reads and folds, one after another.
    threads : int
        Concurrent tasks, of each worker on a cluster.
    budget : int
        Bytes of memory that may be used.
    peak : int
        Upper bound of the process's resident bytes: the largest of ``stages``.
    stages : dict of str to int
        Bytes by stage, including those of the interpreter.
    reads : int
        Passes over the data for the factor, at most.
    cached_rows : int
        Rows that stay in memory between reads.
    output_bytes : int
        Bytes of the selected columns, decoded; 0 where none are copied.
    output_chunk_rows : int
        Rows of an output chunk.
    rejected : dict of str to str
        Why each other method does not run.
    concessions : tuple of str
        What was given up to fit the budget.
    cluster : ClusterSize or None
        The workers that read; None for this process.
    worker_peak : int
        Upper bound of a worker's resident bytes; 0 without a cluster.
    notes : tuple of str
        What may not be meant: a k or h that do not fit, a solver that takes long.
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
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        n, p = self.table.shape
        return (
            f"<Plan: {self.method} of {n:,} x {p:,} in {self.precision}, "
            f"{counted(self.reads, 'reads')} at most, {counted(self.threads, 'threads')}, peak "
            f"{size(self.peak)} of {size(self.budget)}>"
        )

    @property
    def read_bytes(self) -> int:
        """Bytes that are decoded for the factor, at most."""
        return self.reads * self.table.shape[0] * self.table.row_bytes

    @property
    def resources(self) -> Planned:
        """The event that announces the plan."""
        workers = 0 if self.cluster is None else self.cluster.workers
        return Planned(self.budget, self.threads, workers, plan=self)

    @property
    def partitions(self) -> list[range]:
        """First rows of the blocks of each partition."""
        n = self.table.shape[0]
        rows = self.block_rows * self.blocks_per_partition
        return [range(a, min(a + rows, n), self.block_rows) for a in range(0, n, rows)]

    def summary(self) -> dict[str, Any]:
        """The plan in plain JSON types; the keys are listed in docs/output.md."""
        layout, cluster = self.table.layout, self.cluster
        sparsity = layout.sparsity
        return {
            "samples": self.table.shape[0],
            "features": self.table.shape[1],
            "taking_part": self.table.columns,
            "dtype": str(self.table.dtype),
            "stored_dtype": str(layout.dtype),
            "chunk_rows": layout.chunk_rows,
            "chunk_columns": layout.chunk_columns,
            "shard_rows": layout.shard_rows,
            "entries": None if sparsity is None else int(sparsity.indptr[-1]),
            "zarr_format": layout.zarr_format,
            "method": self.method,
            "precision": self.precision,
            "block_rows": self.block_rows,
            "blocks_per_partition": self.blocks_per_partition,
            "partitions": len(self.partitions),
            "threads": self.threads,
            "workers": None if cluster is None else cluster.workers,
            "worker_memory_bytes": None if cluster is None else cluster.memory,
            "predicted_worker_peak_bytes": self.worker_peak or None,
            "reads": self.reads,
            "cached_rows": self.cached_rows,
            "rejected": dict(self.rejected),
            "concessions": list(self.concessions),
            "budget_bytes": self.budget,
            "predicted_peak_bytes": self.peak,
            "stages_bytes": dict(self.stages),
            "output_bytes": self.output_bytes,
            "output_chunk_rows": self.output_chunk_rows,
            "version": __version__,
        }


def make_plan(table: Table, candidates: Candidates, request: PlanRequest) -> Plan:
    """Choose how to run.

    Under a tight budget the plan gives up, in this order: the cache, threads, then, for an explicit
    ``memory`` only, block rows, then the preferred method.

    Raises RequestError for options out of range, and where nothing fits, with the sizes.
    """
    explicit, budget = request.memory is not None, memory_budget(request.memory)
    if request.threads is not None and request.threads < 1:
        raise RequestError(
            "bad_option",
            Text("{threads} is {}.", request.threads),
            Text("Give {threads} or more.", threads=1),
        )
    wanted = request.threads or usable_cores() + 1  # one reads while the others compute
    methods, rejected = _methods(candidates, request.method)
    smallest: Sizing | None = None
    for method in methods if explicit else methods[:1]:
        candidate = candidates[method]
        precision = resolve_precision(
            "float64" if candidate.float64 or table.layout.sparsity else request.precision,
            table.dtype,
        )
        sizes = list(block_sizes(table, precision, thin=candidate.thin))
        for block_rows in sizes if explicit else sizes[:1]:
            sizing = Sizing(table, candidate, request, precision, block_rows)
            if smallest is None or sizing.peak(1) < smallest.peak(1):
                smallest = sizing
            if sizing.peak(1) > budget or not sizing.fits_workers:
                continue
            most = min(wanted, sizing.partitions)
            if request.cluster is not None:
                most = request.cluster.threads
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
            return _planned(sizing, method, threads, budget, rejected, given_up)
    assert smallest is not None
    if not smallest.fits_workers:
        raise _worker_too_small(smallest)
    raise _does_not_fit(smallest, budget, explicit=explicit)


def _planned(
    sizing: Sizing,
    method: str,
    threads: int,
    budget: int,
    rejected: dict[str, str],
    concessions: list[str],
) -> Plan:
    table, request, stages = sizing.table, sizing.request, sizing.stages(threads)
    cached, n = 0, table.shape[0]
    if request.cluster is not None and sizing.cost.reads > 1:
        concessions = ["no rows cached between reads, on a cluster", *concessions]
    elif sizing.cost.reads > 1 and not table.layout.in_memory:
        spare = table.first_rows(max(budget - stages["pass"], 0))
        cached = min(spare // sizing.block_rows * sizing.block_rows, n)
        stages["pass"] += table.block_bytes(cached) if cached else 0
        if cached < n:
            part = f"{cached} of {n} rows" if cached else "no rows"
            concessions = [f"{part} cached between reads", *concessions]
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
        output_bytes=n * request.h * table.layout.dtype.itemsize if request.copies else 0,
        output_chunk_rows=sizing.chunk_rows,
        rejected=rejected,
        concessions=tuple(concessions),
        cluster=request.cluster,
        worker_peak=sizing.worker_peak,
    )


PRECISIONS: tuple[PrecisionName, ...] = get_args(PrecisionName)


def resolve_precision(precision: str, dtype: np.dtype[Any]) -> Precision:
    """Resolve ``auto``: float32 if it holds every value of the dtype exactly, else float64."""
    if precision == "auto":
        return "float32" if np.can_cast(dtype, np.float32, "safe") else "float64"
    if precision not in PRECISIONS:
        raise unknown_value("precision", precision, PRECISIONS)
    return cast(Precision, precision)


def memory_budget(memory: str | int | None) -> int:
    """Return the bytes in a size such as 2GB or 2GiB; without one, half of what is available."""
    if memory is None:
        return available_memory() // 2
    from dask.utils import parse_bytes

    try:
        budget = int(parse_bytes(memory)) if memory else 0  # parse_bytes("") is 1
    except (ValueError, OverflowError):
        budget = 0
    if budget <= 0:
        raise RequestError(
            "bad_option",
            f"Memory {memory!r} is not a size.",
            "Write it like 500MB, 2GB or 2GiB.",
        )
    return budget


def _methods(candidates: Candidates, method: str) -> tuple[list[str], dict[str, str]]:
    """Return the methods to try in turn, and why each other one is rejected."""
    if method != "auto":
        if method not in candidates:
            raise unknown_value("method", method, ["auto", *candidates])
        return [method], {m: f"{method} was asked for" for m in candidates if m != method}
    rejected = {name: c.passed_over for name, c in candidates.items() if c.passed_over}
    tried = [name for name in candidates if name not in rejected]
    return tried, rejected | dict.fromkeys(tried[1:], f"{tried[0]} will do")


def _worker_too_small(sizing: Sizing) -> RequestError:
    cluster = sizing.request.cluster
    assert cluster is not None
    assert cluster.memory is not None
    needed = int(sizing.worker_peak / WORKER_SHARE)
    return RequestError(
        "does_not_fit",
        f"A worker with {counted(cluster.threads, 'threads')} needs {size(needed)} of memory, the "
        f"smallest of {cluster.workers} has {size(cluster.memory)}.",
        Text(
            "Give each worker {}MB or more, or fewer threads; {workers} share {memory} equally "
            "with this process.",
            -(-needed // MB),
        ),
    )


def _does_not_fit(sizing: Sizing, budget: int, *, explicit: bool) -> RequestError:
    peak, stages = sizing.peak(1), sizing.stages(1)
    given = Text("{memory}") if explicit else "half of the memory available"
    sizes = ", ".join(f"{stage} {size(number)}" for stage, number in stages.items())
    return RequestError(
        "does_not_fit",
        f"At least {size(peak)} of memory are needed, "
        + given
        + f" is {size(budget)} (by stage: {sizes}).",
        Text(
            "Give {memory} or more. Data in chunks of fewer rows (kmufs-stream rechunk does) or, "
            "if sparse, stored by rows (with anndata: a.X = a.X.tocsr()) may need less.",
            memory=f"{-(-peak // MB)}MB",
        ),
    )

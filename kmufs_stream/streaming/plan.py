"""What will run, and what it will take: decided before any value is read.

Method, precision, block rows and partitions follow from the store, k, h and the options alone;
only threads and what stays cached follow from the memory that there is. So results do not depend
on the machine's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from dask.utils import parse_bytes

from kmufs_stream.blas import usable_cores
from kmufs_stream.errors import RequestError, did_you_mean
from kmufs_stream.progress import Planned
from kmufs_stream.sources.matrix import Sparsity
from kmufs_stream.streaming.memory import available_memory, size
from kmufs_stream.streaming.sample import sample_size
from kmufs_stream.streaming.scaling import PROBE_PLACES, PROBE_ROWS, Precision
from kmufs_stream.streaming.sparse import slab_rows
from kmufs_stream.streaming.table import Table
from kmufs_stream.streaming.tree import RUN

MB = 10**6
BASELINE = 330 * MB  # interpreter, libraries, BLAS buffers
WORKER_BASELINE = 380 * MB  # of a cluster's worker, which has more libraries
WORKER_SHARE = 0.8  # of its limit: above this, Dask pauses a worker
SLACK = 1.5  # what the allocator keeps of blocks that come and go in several threads
GRAM_FEATURES = 6000  # up to here the Gram matrix is formed
BLOCK_BYTES = 32 * MB  # larger ones the C library maps and clears anew each time
LARGE_BLOCK_BYTES = 64 * MB
PARTITION_BYTES = 256 * MB
PARTITIONS = 32  # at least, where there are that many blocks: keeps many threads busy
MAX_PARTITIONS = 4096  # keeps the graph small
OUTPUT_CHUNK_BYTES = 20 * MB
PROJECTED_BYTES = 256  # of a row in a Lanczos step: it counts beside a very sparse row


@dataclass(frozen=True)
class Cost:
    """Bytes that a route to the factor takes beside the blocks, and how often it reads.

    Attributes
    ----------
    state : one partition's state.
    update : made and dropped while a block is taken in.
    driver : held between and during the reads.
    finish : peak of the in-memory stage after the last read.
    kept : what the factor holds on to.
    reads : passes over the data, at most.
    """

    state: int
    update: int
    driver: int
    finish: int
    kept: int
    reads: int


Costs = Mapping[str, Callable[[int, int], Cost]]
"""Per method, the preferred first, its cost from block rows and bytes of a number in products."""


@dataclass(frozen=True)
class ClusterSize:
    """What a cluster offers.

    Attributes
    ----------
    workers : their number.
    threads : tasks side by side in a worker, the most of any.
    memory : limit of a worker in bytes, the smallest of any; None without limits.
    """

    workers: int
    threads: int
    memory: int | None


@dataclass(frozen=True)
class Demand:
    """What a plan is asked for.

    Attributes
    ----------
    h : features to select, 0 for a factor alone.
    solver_bytes : working memory of the solver.
    copies : whether the selected columns are written.
    method : ``auto``, or a key of the costs.
    memory : budget; None for half of what is available.
    threads : block tasks side by side; None for one more than there are cores.
    precision : ``auto``, ``float32`` or ``float64``.
    cluster : the workers that read; None for threads of this process.
    """

    h: int = 0
    solver_bytes: int = 0
    copies: bool = False
    method: str = "auto"
    memory: str | int | None = None
    threads: int | None = None
    precision: str = "auto"
    cluster: ClusterSize | None = None


@dataclass(frozen=True)
class Plan:
    """How a factor is computed and a subset written, with its predicted peak memory.

    Attributes
    ----------
    reads : passes over the data for the factor, at most.
    cached_rows : rows that stay in memory between reads.
    peak : upper bound of the process's resident bytes: the largest of ``stages``.
    stages : bytes by stage, baseline included.
    rejected : per method that does not run, why.
    concessions : what was given up to fit the budget.
    cluster : the workers that read, ``threads`` at a time in each; None for this process.
    worker_peak : upper bound of a worker's resident bytes; 0 without a cluster.
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

    @property
    def read_bytes(self) -> int:
        """Bytes that the reads for the factor decode, at most."""
        return self.reads * self.table.shape[0] * self.table.row_bytes

    @property
    def resources(self) -> Planned:
        """What the run may take, for whoever watches."""
        workers = 0 if self.cluster is None else self.cluster.workers
        return Planned(self.budget, self.threads, workers)

    @property
    def partitions(self) -> list[range]:
        """Per partition, the first rows of its blocks."""
        n = self.table.shape[0]
        rows = self.block_rows * self.blocks_per_partition
        return [range(a, min(a + rows, n), self.block_rows) for a in range(0, n, rows)]


def make_plan(table: Table, costs: Costs, demand: Demand) -> Plan:
    """Choose how to run.

    Under a tight budget it gives up, in this order: the cache, threads, then, for an explicit
    ``memory`` only, block rows, then ``gram``.

    Raises RequestError for options out of range, and where nothing fits, with the sizes.
    """
    explicit = parse_memory(demand.memory)
    budget = explicit if explicit is not None else available_memory() // 2
    if demand.threads is not None and demand.threads < 1:
        raise RequestError(
            "bad_option", f"--threads is {demand.threads}.", "Give --threads 1 or more."
        )
    wanted = demand.threads or usable_cores() + 1  # one reads while the others compute
    methods, rejected = _methods(table, costs, demand.method)
    smallest: _Sizing | None = None
    for method in methods if explicit is not None else methods[:1]:
        precision = resolve_precision(
            "float64" if method == "tsqr" or table.sparsity else demand.precision, table.dtype
        )
        sizes = list(_block_sizes(table, method, precision))
        for block_rows in sizes if explicit is not None else sizes[:1]:
            sizing = _Sizing(table, costs[method], demand, precision, block_rows)
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
            return sizing.plan(method, threads, budget, rejected, tuple(given_up))
    assert smallest is not None
    raise _does_not_fit(smallest, budget, explicit is not None)


PRECISIONS = ("auto", "float32", "float64")


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
        budget = int(parse_bytes(memory))
    except (ValueError, OverflowError):
        budget = 0
    if budget <= 0:
        raise RequestError(
            "bad_option",
            f"Memory {memory!r} is not a size.",
            "Write it like 500MB, 2GB or 2GiB.",
        )
    return budget


def _methods(table: Table, costs: Costs, method: str) -> tuple[list[str], dict[str, str]]:
    """Methods to try in turn, and why the others are not."""
    if "gram" not in costs:
        return list(costs), {}
    if method != "auto":
        if method not in costs:
            raise RequestError(
                "bad_option",
                f"Method {method!r} is unknown.",
                f"{did_you_mean(method, ['auto', *costs])}Choose one of auto, {', '.join(costs)}.",
            )
        return [method], {other: f"{method} was asked for" for other in costs if other != method}
    p = table.columns
    rejected = {"tsqr": "runs only when asked for"}
    if p <= GRAM_FEATURES:
        return ["gram", "lanczos"], {**rejected, "lanczos": "one read is enough: gram"}
    return ["lanczos"], {**rejected, "gram": f"{p} features are more than {GRAM_FEATURES}"}


def _block_sizes(table: Table, method: str, precision: Precision) -> Iterator[int]:
    """Block rows, falling: whole chunks, or shards where these are small."""
    if table.sparsity is not None:
        yield from _sparse_block_sizes(table, table.sparsity, method)
        return
    small = table.shard_rows * table.row_bytes <= LARGE_BLOCK_BYTES
    unit = table.shard_rows if small else table.chunk_rows
    row = table.shape[1] * np.dtype(precision).itemsize
    if method == "lanczos":
        target = BLOCK_BYTES
    else:
        # Adding a block's p x p product to the state must cost little beside making it.
        target = min(max(2 * table.shape[1] * row, BLOCK_BYTES), LARGE_BLOCK_BYTES)
    units = max(min(target // row, table.shape[0] + unit - 1) // unit, 1)
    while units > 1:
        yield units * unit
        units //= 2
    yield unit
    if unit > table.chunk_rows:
        yield table.chunk_rows


def _sparse_block_sizes(table: Table, sparsity: Sparsity, method: str) -> Iterator[int]:
    """Block rows, falling: tens of MB of entries, or what the products densify at a time.

    At least a chunk of entries, so that few chunks are decoded twice.
    """
    n = max(table.shape[0], 1)
    mean = max(int(sparsity.indptr[-1]) // n, 1)
    rows = BLOCK_BYTES // (table.mean_row_bytes + PROJECTED_BYTES)
    if method != "lanczos":
        rows = min(rows, slab_rows(table.shape[1]))
    rows = min(max(rows, sparsity.chunk_entries // mean, 1), n)
    while rows > 1:
        yield rows
        rows //= 2
    yield 1


class _Sizing:
    """The sizes of one way to run, as they follow from the number of threads."""

    def __init__(
        self,
        table: Table,
        cost: Callable[[int, int], Cost],
        demand: Demand,
        precision: Precision,
        block_rows: int,
    ) -> None:
        n, p = table.shape
        itemsize = np.dtype(precision).itemsize
        blocks = max(-(-n // block_rows), 1)
        size = max(block_rows * table.mean_row_bytes, 1)
        several = min(blocks // PARTITIONS, -(-PARTITION_BYTES // size))
        self.table, self.demand, self.precision = table, demand, precision
        self.block_rows = block_rows
        self.blocks_per_partition = max(several, -(-blocks // MAX_PARTITIONS), 1)
        self.partitions = -(-blocks // self.blocks_per_partition)
        self.cost = cost(min(block_rows, n), itemsize)
        self.sample = sample_size(n, table.row_bytes) * table.row_bytes
        self.chunk_rows = _output_chunk_rows(table, demand.h)
        rows = min(block_rows, n)
        # A block is worked on in float64 at worst: what float32 cannot hold falls back to it.
        held = 0 if table.in_memory and not table.copies else table.block_bytes(rows)
        working = held + table.work_bytes(rows) + self.cost.update
        self.block = int(SLACK * max(table.read_bytes(rows), working))
        probed = min(n, PROBE_PLACES * PROBE_ROWS)
        probe = probed * p * (table.dtype.itemsize + 4 * 8)
        if table.sparsity is not None:
            kept = PROBE_PLACES * table.block_bytes(PROBE_ROWS)
            probe = 4 * kept + table.read_bytes(PROBE_ROWS) + 8 * 8 * p
        copied = max(self.chunk_rows, min(table.chunk_rows, n)) * demand.h * table.stored_itemsize
        # The columns, a block's share of them, and what encoding makes of them.
        self.copy = 3 * copied + table.read_bytes(rows) if demand.copies else 0
        # The sample is stacked from a block's rows at a time.
        self.sample += min(rows * table.row_bytes, self.sample)
        self.base = BASELINE + table.held_bytes
        self.fixed = {"probe": self.base + probe}

    def live_states(self, threads: int) -> int:
        """Partition states that are alive at once: being folded, merged, or waiting to be."""
        return min(2 * self.partitions, 4 * threads + self.partitions.bit_length())

    def stages(self, threads: int) -> dict[str, int]:
        cost = self.cost
        kept = self.base + self.sample + cost.kept
        states = self.live_states(threads) * cost.state
        if self.demand.cluster is not None:
            # The workers hold blocks and states; the last state comes here, pickled.
            return self.fixed | {
                "pass": kept + cost.driver + 3 * cost.state,
                "factor": self.base + self.sample + cost.finish,
                "solver": kept + self.demand.solver_bytes,
            }
        return self.fixed | {
            "pass": self.base + self.sample + cost.driver + threads * self.block + states,
            "factor": self.base + self.sample + cost.finish,
            "solver": kept + self.demand.solver_bytes,
            "write": kept + threads * self.copy,
        }

    @property
    def worker_peak(self) -> int:
        """Bytes of a worker, with its share of the states that wait; 0 without a cluster."""
        cluster, cost = self.demand.cluster, self.cost
        if cluster is None:
            return 0
        # Beside the states that tasks make and wait for: those of a run that is being folded, the
        # kernel's constants, and what a state is pickled into.
        live = self.live_states(cluster.threads) + cluster.threads * RUN.bit_length()
        reading = cluster.threads * self.block + (live + 2) * cost.state
        held = self.table.held_bytes  # the source's own, sent to each
        return WORKER_BASELINE + held + max(reading, cluster.threads * self.copy)

    @property
    def fits_workers(self) -> bool:
        cluster = self.demand.cluster
        if cluster is None or cluster.memory is None:
            return True
        return self.worker_peak <= WORKER_SHARE * cluster.memory

    def peak(self, threads: int) -> int:
        return max(self.stages(threads).values())

    def plan(
        self,
        method: str,
        threads: int,
        budget: int,
        rejected: dict[str, str],
        concessions: tuple[str, ...],
    ) -> Plan:
        table, stages = self.table, self.stages(threads)
        cached = 0
        if self.demand.cluster is not None and self.cost.reads > 1:
            concessions = ("no rows cached between reads, on a cluster", *concessions)
        elif self.cost.reads > 1 and not table.in_memory:
            spare = table.first_rows(max(budget - stages["pass"], 0))
            cached = min(spare // self.block_rows * self.block_rows, table.shape[0])
            stages["pass"] += table.block_bytes(cached) if cached else 0
            if cached < table.shape[0]:
                part = f"{cached} of {table.shape[0]} rows" if cached else "no rows"
                concessions = (f"{part} cached between reads", *concessions)
        return Plan(
            table=table,
            method=method,
            precision=self.precision,
            block_rows=self.block_rows,
            blocks_per_partition=self.blocks_per_partition,
            threads=threads,
            budget=budget,
            peak=max(stages.values()),
            stages=stages,
            reads=self.cost.reads,
            cached_rows=cached,
            output_bytes=(
                table.shape[0] * self.demand.h * table.stored_itemsize if self.demand.copies else 0
            ),
            output_chunk_rows=self.chunk_rows,
            rejected=rejected,
            concessions=concessions,
            cluster=self.demand.cluster,
            worker_peak=self.worker_peak,
        )


def _output_chunk_rows(table: Table, h: int) -> int:
    """Rows of a subset's chunk: tens of MB; whole source chunks, or a whole part of one."""
    n = max(table.shape[0], 1)
    source = min(table.chunk_rows, n)
    rows = max(OUTPUT_CHUNK_BYTES // (max(h, 1) * table.stored_itemsize), 1)
    if rows >= source:
        return min(rows // source * source, n)
    parts = -(-source // rows)
    return source // next((m for m in range(parts, 4 * parts) if source % m == 0), 1)


def _does_not_fit(sizing: _Sizing, budget: int, explicit: bool) -> RequestError:
    cluster = sizing.demand.cluster
    if cluster is not None and cluster.memory is not None and not sizing.fits_workers:
        needed = int(sizing.worker_peak / WORKER_SHARE)
        return RequestError(
            "does_not_fit",
            f"A worker with {cluster.threads} threads needs {size(needed)} of memory, the smallest "
            f"of {cluster.workers} has {size(cluster.memory)} (blocks {size(sizing.block)} a "
            f"thread, states {size(sizing.cost.state)} each).",
            f"Start workers with {-(-needed // MB)}MB or more, or with fewer threads each.",
        )
    peak, stages = sizing.peak(1), sizing.stages(1)
    given = "--memory" if explicit else "half of the memory available"
    sizes = ", ".join(f"{stage} {size(number)}" for stage, number in stages.items())
    remedy = f"Give --memory {-(-peak // MB)}MB or more"
    held = sizing.table.held_bytes
    if sizing.table.sparsity is not None and held > peak // 5:
        remedy += (
            f"; the source itself takes {size(held)}: sparse data stored by columns (CSC) are read "
            "whole; stored by rows (adata.X = adata.X.tocsr()) they are streamed"
        )
    elif sizing.table.chunk_rows >= sizing.table.shape[0] > 1 and stages["pass"] == peak:
        remedy += (
            "; or, as one chunk spans all rows, write them in chunks of fewer with "
            "kmufs-stream rechunk IN OUT"
        )
    return RequestError(
        "does_not_fit",
        f"At least {size(peak)} of memory are needed, {given} is {size(budget)} "
        f"(by stage: {sizes}).",
        remedy + ".",
    )

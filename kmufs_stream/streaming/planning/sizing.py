"""How many bytes a way to run takes: blocks, states, and what stands beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from kmufs_stream.sources.layout import Sparsity
from kmufs_stream.streaming.kernels.sample import sample_size
from kmufs_stream.streaming.kernels.scaling import PROBE_PLACES, PROBE_ROWS, Precision
from kmufs_stream.streaming.kernels.sparse import slab_rows
from kmufs_stream.streaming.planning.table import Table

MB = 10**6
BASELINE = 330 * MB  # interpreter, libraries, BLAS buffers
WORKER_BASELINE = 380 * MB  # of a cluster's worker, which has more libraries
WORKER_SHARE = 0.8  # of its limit: above this, Dask pauses a worker
SLACK = 1.5  # what the allocator keeps of blocks that come and go in several threads
BLOCK_BYTES = 32 * MB  # larger ones the C library maps and clears anew each time
LARGE_BLOCK_BYTES = 64 * MB
PARTITION_BYTES = 256 * MB
PARTITIONS = 32  # at least, where there are that many blocks: keeps many threads busy
MAX_PARTITIONS = 4096  # keeps the graph small
OUTPUT_CHUNK_BYTES = 20 * MB
PROJECTED_BYTES = 256  # of a row in a Lanczos step: it counts beside a very sparse row


@dataclass(frozen=True)
class Cost:
    """Bytes that a method takes beside the blocks, and how often it reads.

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


@dataclass(frozen=True)
class Way:
    """A way to run, of which a plan takes one.

    Attributes
    ----------
    cost : from the rows of a block and the bytes of a number in products.
    passed_over : why it runs only when asked for; "" where it need not be.
    float64 : works in float64, whatever precision is asked for.
    thin : multiplies blocks with few vectors, not with themselves: small blocks will do.
    """

    cost: Callable[[int, int], Cost]
    passed_over: str = ""
    float64: bool = False
    thin: bool = False


Ways = Mapping[str, Way]
"""By the names of their methods, the preferred first."""


@dataclass(frozen=True)
class ClusterSize:
    """What a cluster offers.

    Attributes
    ----------
    workers : their number.
    threads : tasks side by side in a worker, the most of any.
    memory : limit of a worker in bytes, the smallest of any; None without limits.
    started_here : for this run, whose ``memory`` they share with this process.
    """

    workers: int
    threads: int
    memory: int | None
    started_here: bool = False


@dataclass(frozen=True)
class Demand:
    """What a plan is asked for.

    Attributes
    ----------
    h : features to select, 0 for a factor alone.
    held : bytes in this process beside what the plan knows of, all the time.
    solver_bytes : working memory of the solver.
    copies : whether the selected columns are written.
    method : ``auto``, or one of the ways.
    memory : budget; None for half of what is available.
    threads : block tasks side by side; None for one more than there are cores.
    precision : ``auto``, ``float32`` or ``float64``.
    cluster : the workers that read; None for threads of this process.
    """

    h: int = 0
    held: int = 0
    solver_bytes: int = 0
    copies: bool = False
    method: str = "auto"
    memory: str | int | None = None
    threads: int | None = None
    precision: str = "auto"
    cluster: ClusterSize | None = None


def block_sizes(table: Table, precision: Precision, *, thin: bool) -> Iterator[int]:
    """Block rows, falling: whole chunks, or shards where these are small."""
    if table.layout.sparsity is not None:
        yield from _sparse_block_sizes(table, table.layout.sparsity, thin)
        return
    small = table.layout.shard_rows * table.row_bytes <= LARGE_BLOCK_BYTES
    unit = table.layout.shard_rows if small else table.layout.chunk_rows
    row = table.shape[1] * np.dtype(precision).itemsize
    if thin:
        target = BLOCK_BYTES
    else:
        # Adding a block's p x p product to the state must cost little beside making it.
        target = min(max(2 * table.shape[1] * row, BLOCK_BYTES), LARGE_BLOCK_BYTES)
    units = max(min(target // row, table.shape[0] + unit - 1) // unit, 1)
    while units > 1:
        yield units * unit
        units //= 2
    yield unit
    if unit > table.layout.chunk_rows:
        yield table.layout.chunk_rows


def _sparse_block_sizes(table: Table, sparsity: Sparsity, thin: bool) -> Iterator[int]:
    """Block rows, falling: tens of MB of entries, or what the products densify at a time.

    At least a chunk of entries, so that few chunks are decoded twice.
    """
    n = max(table.shape[0], 1)
    mean = max(int(sparsity.indptr[-1]) // n, 1)
    rows = BLOCK_BYTES // (table.mean_row_bytes + PROJECTED_BYTES)
    if not thin:
        rows = min(rows, slab_rows(table.shape[1]))
    rows = min(max(rows, sparsity.chunk_entries // mean, 1), n)
    while rows > 1:
        yield rows
        rows //= 2
    yield 1


class Sizing:
    """The sizes of one way to run, as they follow from the number of threads."""

    def __init__(
        self,
        table: Table,
        way: Way,
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
        self.cost = way.cost(min(block_rows, n), itemsize)
        self.sample = sample_size(n, table.row_bytes) * table.row_bytes
        self.chunk_rows = output_chunk_rows(table, demand.h)
        rows = min(block_rows, n)
        # A block is worked on in float64 at worst: what float32 cannot hold falls back to it.
        held = 0 if table.layout.in_memory and not table.copies else table.block_bytes(rows)
        working = held + table.work_bytes(rows) + self.cost.update
        # It is read or worked on; of what the other took, the allocator may keep a block's size.
        self.block = int(SLACK * (max(table.read_bytes(rows), working) + held))
        probed = min(n, PROBE_PLACES * PROBE_ROWS)
        # In pieces, joined, the features that take part, and as the bytes of a digest.
        probe = 4 * probed * p * table.dtype.itemsize + table.read_bytes(PROBE_ROWS)
        if table.layout.sparsity is not None:
            kept = PROBE_PLACES * table.block_bytes(PROBE_ROWS)
            probe = 4 * kept + table.read_bytes(PROBE_ROWS) + 8 * 8 * p
        copied = (
            max(self.chunk_rows, min(table.layout.chunk_rows, n))
            * demand.h
            * table.layout.dtype.itemsize
        )
        # The columns, a block's share of them, and what encoding makes of them.
        self.copy = 3 * copied + table.read_bytes(rows) if demand.copies else 0
        # The sample is stacked from a block's rows at a time.
        self.sample += min(rows * table.row_bytes, self.sample)
        self.base = BASELINE + table.layout.held_bytes + demand.held
        self.fixed = {"probe": self.base + probe}

    def stages(self, threads: int) -> dict[str, int]:
        cost = self.cost
        kept = self.base + self.sample + cost.kept
        states = live_states(self.partitions, threads) * cost.state
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
        live = live_states(self.partitions, cluster.threads) + cluster.threads * RUN.bit_length()
        reading = cluster.threads * self.block + (live + 2) * cost.state
        held = self.table.layout.held_bytes  # the source's own, sent to each
        return WORKER_BASELINE + held + max(reading, cluster.threads * self.copy)

    @property
    def fits_workers(self) -> bool:
        cluster = self.demand.cluster
        if cluster is None or cluster.memory is None:
            return True
        return self.worker_peak <= WORKER_SHARE * cluster.memory

    def peak(self, threads: int) -> int:
        return max(self.stages(threads).values())


def live_states(partitions: int, threads: int) -> int:
    """Partition states that are alive at once: being folded, merged, or waiting to be."""
    return min(2 * partitions, 4 * threads + partitions.bit_length())


def output_chunk_rows(table: Table, h: int) -> int:
    """Rows of a subset's chunk: tens of MB; whole source chunks, or a whole part of one."""
    n = max(table.shape[0], 1)
    source = min(table.layout.chunk_rows, n)
    rows = max(OUTPUT_CHUNK_BYTES // (max(h, 1) * table.layout.dtype.itemsize), 1)
    if rows >= source:
        return min(rows // source * source, n)
    parts = -(-source // rows)
    return source // next((m for m in range(parts, 4 * parts) if source % m == 0), 1)


RUN = 4  # partitions that one task of a cluster folds, at most: a power of two

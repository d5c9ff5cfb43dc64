"""Predict the memory of a run: blocks, states, and what is held beside them."""

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
WORKER_BASELINE = 380 * MB  # of a cluster's worker, which loads more libraries
WORKER_SHARE = 0.8  # of a worker's limit: above this, Dask pauses it
SLACK = 1.5  # for memory that the allocator keeps as several threads allocate and free blocks
BLOCK_BYTES = 32 * MB  # larger ones the C library maps and clears anew each time
LARGE_BLOCK_BYTES = 64 * MB
PARTITION_BYTES = 256 * MB
PARTITIONS = 32  # at least, given enough blocks: keeps many threads busy
MAX_PARTITIONS = 4096  # keeps the tree of merges small
PARTITIONS_PER_TASK = 4  # that a cluster folds in one task, at most: a power of two
OUTPUT_CHUNK_BYTES = 20 * MB
PROJECTED_BYTES = 256  # of a row in a Lanczos step: matters beside a very sparse row


@dataclass(frozen=True)
class Cost:
    """Bytes that a method takes beside the blocks, and how often it reads."""

    state: int  # of one partition
    update: int  # temporary, while a block is added
    driver: int  # held between and during the reads
    finish: int  # peak of the in-memory stage after the last read
    kept: int  # held by the factor
    reads: int  # passes over the data, at most


@dataclass(frozen=True)
class Candidate:
    """A method that a plan may choose."""

    cost: Callable[[int, int], Cost]  # from the rows of a block and the bytes of a number
    passed_over: str = ""  # why it runs only on request; "" where it may be chosen
    float64: bool = False  # works in float64, whatever precision is asked for
    thin: bool = False  # multiplies blocks by few vectors, not by themselves: small ones will do


Candidates = Mapping[str, Candidate]
"""By method, the preferred first."""


@dataclass(frozen=True)
class ClusterSize:
    """The workers of a cluster."""

    workers: int  # their number
    threads: int  # of a worker, the most
    memory: int | None  # limit of a worker in bytes, the smallest; None without limits


@dataclass(frozen=True)
class PlanRequest:
    """What a plan is made for."""

    h: int = 0  # features to select; 0 for a factor alone
    held: int = 0  # further bytes that this process holds all the time
    solver_bytes: int = 0  # working memory of the solver
    copies: bool = False  # the selected columns are written
    method: str = "auto"  # or one of the candidates
    memory: str | int | None = None  # budget; None for half of what is available
    threads: int | None = None  # concurrent block tasks; None for one more than cores
    precision: str = "auto"  # or float32, float64
    cluster: ClusterSize | None = None  # whose workers read; None for threads of this process


def block_sizes(table: Table, precision: Precision, *, thin: bool) -> Iterator[int]:
    """Yield block rows, falling: whole chunks, or shards where these are small.

    Sparse blocks are cut anywhere.
    """
    layout, n = table.layout, table.shape[0]
    if layout.sparsity is not None:
        unit, units = 1, _sparse_rows(table, layout.sparsity, thin)
    else:
        unit = layout.shard_rows
        if unit * table.row_bytes > LARGE_BLOCK_BYTES:
            unit = layout.chunk_rows
        row = table.shape[1] * np.dtype(precision).itemsize
        target = BLOCK_BYTES
        if not thin:
            # Adding a block's p x p product to the state must cost little beside computing it.
            target = min(max(2 * table.shape[1] * row, BLOCK_BYTES), LARGE_BLOCK_BYTES)
        units = max(min(target // row, n + unit - 1) // unit, 1)
    while units > 1:
        yield units * unit
        units //= 2
    yield unit
    if unit > layout.chunk_rows:
        yield layout.chunk_rows


def _sparse_rows(table: Table, sparsity: Sparsity, thin: bool) -> int:
    """Choose rows with tens of MB of entries, or as many as the products densify at a time.

    At least a chunk of entries, so that few chunks are decoded twice.
    """
    n = max(table.shape[0], 1)
    mean = max(int(sparsity.indptr[-1]) // n, 1)
    rows = BLOCK_BYTES // (table.mean_row_bytes + PROJECTED_BYTES)
    if not thin:
        rows = min(rows, slab_rows(table.shape[1]))
    return min(max(rows, sparsity.chunk_entries // mean, 1), n)


class Sizing:
    """The sizes of one method with one block size, for any number of threads."""

    def __init__(
        self,
        table: Table,
        candidate: Candidate,
        request: PlanRequest,
        precision: Precision,
        block_rows: int,
    ) -> None:
        n, p = table.shape
        itemsize = np.dtype(precision).itemsize
        blocks = max(-(-n // block_rows), 1)
        size = max(block_rows * table.mean_row_bytes, 1)
        several = min(blocks // PARTITIONS, -(-PARTITION_BYTES // size))
        self.table, self.request, self.precision = table, request, precision
        self.block_rows = block_rows
        self.blocks_per_partition = max(several, -(-blocks // MAX_PARTITIONS), 1)
        self.partitions = -(-blocks // self.blocks_per_partition)
        self.cost = candidate.cost(min(block_rows, n), itemsize)
        self.sample = sample_size(n, table.row_bytes) * table.row_bytes
        self.chunk_rows = output_chunk_rows(table, request.h)
        rows = min(block_rows, n)
        # Blocks that float32 cannot hold are processed in float64.
        held = 0 if table.layout.in_memory and not table.copies else table.block_bytes(rows)
        working = held + table.work_bytes(rows) + self.cost.update
        # A block is read, then processed; of the memory of one, the allocator may keep a block's.
        self.block = int(SLACK * (max(table.read_bytes(rows), working) + held))
        probed = min(n, PROBE_PLACES * PROBE_ROWS)
        # Its pieces, joined, its selected features, and the bytes of its digest.
        probe = 4 * probed * p * table.dtype.itemsize + table.read_bytes(PROBE_ROWS)
        if table.layout.sparsity is not None:
            kept = PROBE_PLACES * table.block_bytes(PROBE_ROWS)
            probe = 4 * kept + table.read_bytes(PROBE_ROWS) + 8 * 8 * p
        copied = (
            max(self.chunk_rows, min(table.layout.chunk_rows, n))
            * request.h
            * table.layout.dtype.itemsize
        )
        # The columns, a block's part of them, and their encoded chunks.
        self.copy = 3 * copied + table.read_bytes(rows) if request.copies else 0
        # The sample is collected from the rows of one block at a time.
        self.sample += min(rows * table.row_bytes, self.sample)
        self.base = BASELINE + table.layout.held_bytes + request.held
        self.fixed = {"probe": self.base + probe}

    def stages(self, threads: int) -> dict[str, int]:
        cost = self.cost
        kept = self.base + self.sample + cost.kept
        states = live_states(self.partitions, threads) * cost.state
        if self.request.cluster is not None:
            # The workers hold blocks and states; the last state comes here, pickled.
            return self.fixed | {
                "pass": kept + cost.driver + 3 * cost.state,
                "factor": self.base + self.sample + cost.finish,
                "solver": kept + self.request.solver_bytes,
            }
        return self.fixed | {
            "pass": self.base + self.sample + cost.driver + threads * self.block + states,
            "factor": self.base + self.sample + cost.finish,
            "solver": kept + self.request.solver_bytes,
            "write": kept + threads * self.copy,
        }

    @property
    def worker_peak(self) -> int:
        """Peak bytes of a worker, with its share of the waiting states; 0 without a cluster."""
        cluster, cost = self.request.cluster, self.cost
        if cluster is None:
            return 0
        # Further states: of several partitions in one task; the kernel's constants; one pickled.
        folding = cluster.threads * PARTITIONS_PER_TASK.bit_length()
        states = live_states(self.partitions, cluster.threads) + folding + 2
        reading = cluster.threads * self.block + states * cost.state
        held = self.table.layout.held_bytes  # of the source, sent to each
        return WORKER_BASELINE + held + max(reading, cluster.threads * self.copy)

    @property
    def fits_workers(self) -> bool:
        cluster = self.request.cluster
        if cluster is None or cluster.memory is None:
            return True
        return self.worker_peak <= WORKER_SHARE * cluster.memory

    def peak(self, threads: int) -> int:
        return max(self.stages(threads).values())


def live_states(partitions: int, threads: int) -> int:
    """Count the partition states alive at once: being folded or merged, or waiting."""
    return min(2 * partitions, 4 * threads + partitions.bit_length())


def output_chunk_rows(table: Table, h: int) -> int:
    """Choose the rows of an output chunk: tens of MB; whole source chunks, or a fraction of one."""
    n = max(table.shape[0], 1)
    source = min(table.layout.chunk_rows, n)
    rows = max(OUTPUT_CHUNK_BYTES // (max(h, 1) * table.layout.dtype.itemsize), 1)
    if rows >= source:
        return min(rows // source * source, n)
    parts = -(-source // rows)
    return source // next((m for m in range(parts, 4 * parts) if source % m == 0), 1)

"""Run a kernel over all rows: fold them where they are read, merge along a fixed tree."""

from __future__ import annotations

import operator
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic

from kmufs_stream.events import SILENT, Advanced, Progress, Started
from kmufs_stream.sources.layout import Block
from kmufs_stream.sources.matrix import Rows
from kmufs_stream.streaming.checkpoint import SavedPass, load_state, save_state
from kmufs_stream.streaming.kernels.kernel import Kernel, State
from kmufs_stream.streaming.planning.plan import Plan
from kmufs_stream.streaming.tree import Node, Tree
from kmufs_stream.streaming.workers import Workers, open_workers
from kmufs_stream.typing import Array, Int

if TYPE_CHECKING:
    import distributed


# Kinds of tasks: what each is doing with its rows.
FOLD, MERGE = "reading", "merging the states of"
SAVE, LOAD = "saving the state of", "loading the state of"


class StoppedError(Exception):
    """A task ended early because its result is no longer wanted."""


class CachedRows:
    """Rows of which the blocks before row ``limit`` are read once and then kept as read."""

    def __init__(self, rows: Rows, limit: int) -> None:
        self._rows = rows
        self._limit = limit
        self._blocks: dict[tuple[int, int], Block] = {}

    def read(self, start: int, stop: int) -> Block:
        if stop > self._limit:
            return self._rows.read(start, stop)
        block = self._blocks.get((start, stop))
        if block is None:
            block = self._blocks[start, stop] = self._rows.read(start, stop)
        return block

    def take(self, start: int, stop: int, columns: Int) -> Array:
        return self._rows.take(start, stop, columns)


def run_planned(
    kernel: Kernel[State],
    *,
    rows: Rows,
    plan: Plan,
    stage: str,
    progress: Progress,
    number: int = 0,
    of: int = 0,
    client: distributed.Client | None = None,
    saved: SavedPass | None = None,
) -> State:
    """Run a pass with the partitions and the threads of a plan, shown as ``stage``.

    ``number`` and ``of`` say which read of how many it is. See :func:`run_pass`.
    """
    table = plan.table
    progress(
        Started(
            stage,
            total=table.shape[0],
            unit="rows",
            unit_bytes=table.mean_row_bytes,
            number=number,
            of=of if number <= of else 0,
            at_most=of > 1,
        )
    )
    return run_pass(
        kernel,
        rows,
        plan.partitions,
        threads=plan.threads,
        client=client,
        worker_bytes=plan.worker_peak,
        saved=saved,
        progress=progress,
    )


def run_pass(
    kernel: Kernel[State],
    rows: Rows,
    partitions: Sequence[range],
    *,
    threads: int,
    client: distributed.Client | None = None,
    worker_bytes: int = 0,
    saved: SavedPass | None = None,
    progress: Progress = SILENT,
) -> State:
    """Compute the kernel's state after all rows.

    Parameters
    ----------
    partitions : first rows of the blocks of each, as ``range(start, stop, block_rows)``.
    threads : block tasks that run concurrently, without a client.
    client : of the cluster whose workers read the rows; None for this process.
    worker_bytes : memory planned for each of these workers.
    saved : states that an earlier run has saved; new ones are saved there.
    progress : told of the rows of each partition.

    The tree of merges, and so every bit of the result, depends on the number of partitions alone:
    not on threads, workers, lost workers or saved states. Only as many partitions as keep all
    workers busy are in flight.
    """
    with open_workers(threads, client, worker_bytes=worker_bytes) as workers:
        return _Pass(kernel, rows, partitions, workers, saved, progress).run()


class _Pass(Generic[State]):
    """Running tasks, and states that wait for their siblings."""

    def __init__(
        self,
        kernel: Kernel[State],
        rows: Rows,
        partitions: Sequence[range],
        workers: Workers,
        saved: SavedPass | None,
        progress: Progress,
    ) -> None:
        self._tree = Tree(len(partitions))
        self._kernel, self._rows = workers.share(kernel), workers.share(rows)
        self._partitions, self._workers = partitions, workers
        self._saved, self._progress = saved, progress
        self._running: dict[Any, tuple[str, Node]] = {}
        self._waiting: dict[Node, Any] = {}
        self._folding: dict[Node, int] = {}  # with the number of folds started before
        self._folds = 0
        self._leaves = deque(range(len(partitions)))
        self._spent: deque[tuple[float, float]] = deque()

    def run(self) -> State:
        if self._saved is not None:
            self._restore(self._saved)
        while self._tree.root not in self._waiting:
            self._fold_more()
            self._finish(self._workers.wait())
            if self._saved is not None and self._saved.due:
                self._save(self._saved)
        if self._saved is not None:
            self._save(self._saved)
            while self._running:
                self._finish(self._workers.wait())
        state: State = self._workers.result(self._waiting[self._tree.root])
        return state

    def _restore(self, saved: SavedPass) -> None:
        for node in saved.find(self._tree):
            self._start(LOAD, node, load_state, saved.path(node))
            covered = node.partitions(self._tree.count)
            self._leaves = deque(i for i in self._leaves if i not in covered)
            self._progress(Advanced(len(self._span(node)), restored=True))

    def _fold_more(self) -> None:
        """Start partitions while a worker is idle, none far ahead of the slowest."""
        slots = self._workers.slots
        while self._leaves and len(self._running) < slots:
            if self._folding and self._folds >= min(self._folding.values()) + 2 * slots:
                return
            node = self._next_run(slots)
            covered = node.partitions(self._tree.count)
            for _ in covered:
                self._leaves.popleft()
            self._folding[node] = self._folds
            self._folds += 1
            self._start(
                FOLD,
                node,
                fold_run,
                self._kernel,
                self._rows,
                self._partitions[covered.start : covered.stop],
                self._workers.stopped,
                None if self._workers.lossy else self._spent.append,
            )

    def _next_run(self, slots: int) -> Node:
        """Choose the next partitions for one task; fewer at the end, so that all end together."""
        node = Node(0, self._leaves[0])
        most = min(self._workers.partitions_per_task, 2 * len(self._leaves) // slots)
        while node != self._tree.root:
            covered = node.parent.partitions(self._tree.count)
            if covered.start != self._leaves[0] or len(covered) > most:
                break
            if self._leaves[len(covered) - 1] != covered[-1]:
                break  # some of them were saved
            node = node.parent
        return node

    def _start(self, kind: str, node: Node, task: Callable[..., Any], *arguments: Any) -> None:
        future = self._workers.submit(task, *arguments, urgent=kind != FOLD)
        self._running[future] = kind, node

    def _finish(self, future: Any) -> None:
        """Take the state that a task has made, and merge it if its sibling is there."""
        kind, node = self._running.pop(future)
        rows = self._span(node)
        self._workers.check(future, f"{kind} rows {rows.start}..{rows.stop - 1}")
        if kind == SAVE:
            assert self._saved is not None
            if node not in self._waiting:
                self._saved.drop(node)  # merged meanwhile, from states that stay saved
                return
            self._saved.keep(node)
            if self._workers.lossy and node != self._tree.root:
                # If its worker is lost, the state is loaded again, and its rows are not read.
                del self._waiting[node]
                self._start(LOAD, node, load_state, self._saved.path(node))
            return
        if kind == FOLD:
            del self._folding[node]
            spent = [self._spent.popleft() for _ in range(len(self._spent))]
            reading, working = map(sum, zip((0.0, 0.0), *spent, strict=True))
            self._progress(Advanced(len(rows), reading=reading, working=working))
        node = self._tree.risen(node)
        other = self._waiting.pop(node.sibling, None) if node != self._tree.root else None
        if other is None:
            self._waiting[node] = future
        else:
            pair = (future, other) if node < node.sibling else (other, future)
            self._start(MERGE, node.parent, operator.add, *pair)

    def _save(self, saved: SavedPass) -> None:
        """Save the waiting states, unless they are saved or being saved."""
        under_way = {node for kind, node in self._running.values() if kind == SAVE}
        for node in saved.missing(self._waiting.keys() - under_way):
            place = saved.path(node)
            self._start(SAVE, node, save_state, self._waiting[node], place, saved.kernel)

    def _span(self, node: Node) -> range:
        """Return the rows of a node's partitions."""
        covered = node.partitions(self._tree.count)
        return range(self._partitions[covered[0]].start, self._partitions[covered[-1]].stop)


def fold_run(
    kernel: Kernel[State],
    rows: Rows,
    partitions: Sequence[range],
    stopped: Callable[[], bool],
    report: Callable[[tuple[float, float]], None] | None,
) -> State:
    """Compute the state of neighbouring partitions, merged as in the tree."""
    if len(partitions) == 1:
        return fold_partition(kernel, rows, partitions[0], stopped, report)
    left = 2 ** ((len(partitions) - 1).bit_length() - 1)
    merged: State = operator.add(
        fold_run(kernel, rows, partitions[:left], stopped, report),
        fold_run(kernel, rows, partitions[left:], stopped, report),
    )
    return merged


def fold_partition(
    kernel: Kernel[State],
    rows: Rows,
    partition: range,
    stopped: Callable[[], bool],
    report: Callable[[tuple[float, float]], None] | None,
) -> State:
    """Compute the kernel's state after one partition, block by block.

    ``report`` takes the seconds spent reading, and in all; for display only.
    """
    began, reading = time.perf_counter(), 0.0
    state = kernel.init()
    for start in partition:
        if stopped():
            raise StoppedError
        asked = time.perf_counter()
        values = rows.read(start, min(start + partition.step, partition.stop))
        reading += time.perf_counter() - asked
        state = kernel.update(state, values, start)
        del values  # before the next is read
    if report is not None:
        report((reading, time.perf_counter() - began))
    return state


def run_each(
    task: Callable[..., Any],
    constant: Any,
    pieces: Iterable[range],
    *,
    threads: int,
    client: distributed.Client | None = None,
    progress: Progress = SILENT,
) -> dict[range, Any]:
    """Run ``task(constant, piece, stopped)`` for every piece of rows, a few in flight.

    Parameters as for :func:`run_pass`; ``progress`` is told of the rows of each piece.
    """
    made: dict[range, Any] = {}
    with open_workers(threads, client) as workers:
        shared, left = workers.share(constant), deque(pieces)
        running: dict[Any, range] = {}
        while left or running:
            while left and len(running) < workers.slots:
                piece = left.popleft()
                running[workers.submit(task, shared, piece, workers.stopped)] = piece
            future = workers.wait()
            piece = running.pop(future)
            workers.check(future, f"copying rows {piece.start}..{piece.stop - 1}")
            made[piece] = workers.result(future)
            progress(Advanced(len(piece)))
    return made

"""One pass of a kernel over all rows: folded where they are read, merged along a fixed tree."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from kmufs_stream.events import SILENT, Advanced, Progress, Started
from kmufs_stream.sources.matrix import Rows
from kmufs_stream.streaming.checkpoint import SavedPass, load_state, save_state
from kmufs_stream.streaming.kernels.kernel import Kernel, State
from kmufs_stream.streaming.planning.plan import Plan
from kmufs_stream.streaming.tree import Node, Tree
from kmufs_stream.streaming.workers import Spent, Workers, open_workers, sum_of

if TYPE_CHECKING:
    import distributed


class StoppedError(Exception):
    """A task that another's failure, or an interrupt, has made useless ended early."""


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
    """The kernel's state after all rows.

    Parameters
    ----------
    partitions : per partition the first rows of its blocks, as ``range(start, stop, block_rows)``.
    threads : block tasks that run side by side, where there is no client.
    client : of the cluster whose workers read the rows, in place of this process.
    worker_bytes : what one of these was planned to take at most.
    saved : where states are kept on the way, and what is there of this pass.
    progress : told of the rows of each partition.

    The tree of merges depends on the number of partitions alone, and so does every bit of the
    result: not on threads, workers, their losses, or what was saved. As many partitions are in
    flight as keep everybody busy, whatever their number.
    """
    with open_workers(threads, client, worker_bytes=worker_bytes) as workers:
        return _Pass(kernel, rows, partitions, workers, saved, progress).run()


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
    """:func:`run_pass` in the partitions and on the threads of a plan, shown as ``stage``."""
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


class _Task(NamedTuple):
    """What a running future will make: the state of ``node``, or a saved copy of it."""

    kind: str
    node: Node


class _Pass(Generic[State]):
    """The tasks under way, and the states that wait for their siblings."""

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
        self._running: dict[Any, _Task] = {}
        self._waiting: dict[Node, Any] = {}
        self._folding: dict[Node, int] = {}  # with how many were begun before
        self._begun = 0
        self._leaves = deque(range(len(partitions)))

    def run(self) -> State:
        self._restore()
        while self._tree.root not in self._waiting:
            self._fold_more()
            self._finish(self._workers.wait())
            if self._saved is not None and self._saved.due:
                self._save()
        if self._saved is not None:
            self._save()
            while self._running:
                self._finish(self._workers.wait())
        state: State = self._workers.result(self._waiting[self._tree.root])
        return state

    def _restore(self) -> None:
        """Start from the states that an earlier run has saved."""
        if self._saved is None:
            return
        for node in self._saved.find(self._tree):
            self._start("load", node, load_state, self._saved.path(node))
            covered = node.partitions(self._tree.count)
            self._leaves = deque(i for i in self._leaves if i not in covered)
            self._progress(Advanced(self._row_count(node), restored=True))

    def _fold_more(self) -> None:
        """Begin partitions while somebody is idle, none far ahead of the slowest."""
        slots = self._workers.slots
        while self._leaves and len(self._running) < slots:
            if self._folding and self._begun >= min(self._folding.values()) + 2 * slots:
                return
            node = self._next_run(slots)
            covered = node.partitions(self._tree.count)
            for _ in covered:
                self._leaves.popleft()
            self._folding[node] = self._begun
            self._begun += 1
            self._start(
                "fold",
                node,
                fold_run,
                self._kernel,
                self._rows,
                self._partitions[covered.start : covered.stop],
                self._workers.stopped,
                self._workers.tell,
            )

    def _next_run(self, slots: int) -> Node:
        """The next partitions for one task: fewer towards the end, so that all end together."""
        node = Node(0, self._leaves[0])
        most = min(self._workers.run, 2 * len(self._leaves) // slots)
        while node != self._tree.root:
            covered = node.parent.partitions(self._tree.count)
            if covered.start != self._leaves[0] or len(covered) > most:
                break
            if self._leaves[len(covered) - 1] != covered[-1]:
                break  # some of them were saved
            node = node.parent
        return node

    def _start(self, kind: str, node: Node, task: Callable[..., Any], *arguments: Any) -> None:
        future = self._workers.submit(task, *arguments, urgent=kind != "fold")
        self._running[future] = _Task(kind, node)

    def _finish(self, future: Any) -> None:
        """Take in what a task has made, and merge it if its sibling is there."""
        kind, node = self._running.pop(future)
        self._workers.check(future, self._doing(kind, node))
        if kind == "save":
            assert self._saved is not None
            if node not in self._waiting:
                self._saved.drop(node)  # merged meanwhile, from states that stay saved
                return
            self._saved.keep(node)
            if self._workers.lossy and node != self._tree.root:
                # Should its worker be lost, its rows need not be read again.
                del self._waiting[node]
                self._start("load", node, load_state, self._saved.path(node))
            return
        if kind == "fold":
            del self._folding[node]
            reading, working = self._workers.told()
            self._progress(Advanced(self._row_count(node), reading=reading, working=working))
        node = self._tree.risen(node)
        other = self._waiting.pop(node.sibling, None) if node != self._tree.root else None
        if other is None:
            self._waiting[node] = future
        else:
            pair = (future, other) if node < node.sibling else (other, future)
            self._start("merge", node.parent, merge_states, self._kernel, *pair)

    def _save(self) -> None:
        """Save the states that wait, unless they are saved or being saved."""
        assert self._saved is not None
        under_way = {task.node for task in self._running.values() if task.kind == "save"}
        for node in self._saved.missing(self._waiting.keys() - under_way):
            place = self._saved.path(node)
            self._start("save", node, save_state, self._waiting[node], place, self._saved.kernel)

    def _row_count(self, node: Node) -> int:
        return sum(
            self._partitions[i].stop - self._partitions[i].start
            for i in node.partitions(self._tree.count)
        )

    def _doing(self, kind: str, node: Node) -> str:
        covered = node.partitions(self._tree.count)
        first, last = self._partitions[covered[0]], self._partitions[covered[-1]]
        what = {"fold": "reading", "merge": "merging the states of"}
        return f"{what.get(kind, kind + 'ing the state of')} rows {first.start}..{last.stop - 1}"


def fold_partition(
    kernel: Kernel[State],
    rows: Rows,
    partition: range,
    stopped: Callable[[], bool],
    tell: Callable[[Spent], None],
) -> State:
    """The kernel's state after one partition; what it took is told."""
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
    tell(Spent(reading, time.perf_counter() - began))
    return state


def fold_run(
    kernel: Kernel[State],
    rows: Rows,
    partitions: Sequence[range],
    stopped: Callable[[], bool],
    tell: Callable[[Spent], None],
) -> State:
    """The state of neighbouring partitions, the first 2^i of them, merged as the tree does."""
    states: list[State] = []  # of 2^i partitions each, i falling
    spent: list[Spent] = []
    for number, partition in enumerate(partitions, 1):
        states.append(fold_partition(kernel, rows, partition, stopped, spent.append))
        while number % 2 == 0:
            _merge_last(kernel, states)
            number //= 2
    while len(states) > 1:
        _merge_last(kernel, states)
    tell(sum_of(spent))
    return states[0]


def _merge_last(kernel: Kernel[State], states: list[State]) -> None:
    last = states.pop()
    states.append(kernel.merge(states.pop(), last))


def merge_states(kernel: Kernel[State], a: State, b: State) -> State:
    """The state of the rows of a followed by those of b."""
    return kernel.merge(a, b)


def run_each(
    task: Callable[..., Any],
    constant: Any,
    pieces: Iterable[range],
    *,
    threads: int,
    client: distributed.Client | None = None,
    progress: Progress = SILENT,
) -> dict[range, Any]:
    """``task(constant, piece, stopped)`` for every piece of rows, a bounded number in flight.

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
            progress(Advanced(piece.stop - piece.start))
    return made

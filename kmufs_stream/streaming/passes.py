"""One pass of a kernel over all rows: folded where they are read, merged along a fixed tree."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dask.base import compute
from dask.delayed import delayed

from kmufs_stream import blas
from kmufs_stream.sources.matrix import Rows
from kmufs_stream.streaming.kernels import Kernel, State


class StoppedError(Exception):
    """A task that another's failure, or an interrupt, has made useless ended early."""


def run_tasks(build: Callable[[threading.Event], Any], *, threads: int) -> Any:
    """Compute the Dask collection that ``build`` makes, with one BLAS thread per task.

    The event given to ``build`` is set when a task fails or the user interrupts: tasks under way
    look at it between blocks, so that they end soon and not at their last block.
    """
    stop = threading.Event()
    with blas.one_thread(), ThreadPoolExecutor(threads) as pool:
        try:
            return compute(  # type: ignore[no-untyped-call]
                build(stop), scheduler="threads", pool=pool, optimize_graph=False
            )[0]
        except BaseException:
            stop.set()  # leaving the pool then waits for the tasks under way
            raise


def run_pass(
    kernel: Kernel[State],
    rows: Rows,
    partitions: Sequence[range],
    *,
    threads: int,
    progress: Callable[[int], None] = lambda rows: None,
) -> State:
    """The kernel's state after all rows.

    Parameters
    ----------
    partitions : per partition the first rows of its blocks, as ``range(start, stop, block_rows)``.
    threads : block tasks that run side by side.
    progress : called with the number of rows after each block, from any thread.

    Each partition is one Dask task, so the graph is as small as the number of partitions; the
    tree of merges depends on that number alone, and so does every bit of the result.
    """

    window = _Window(2 * threads)

    def tree(stop: threading.Event) -> Any:
        def fold(index: int) -> State:
            with window.of(index):
                return fold_partition(kernel, rows, stop, progress, partitions[index])

        folded, merge = delayed(fold, pure=False), delayed(kernel.merge, pure=False)
        states = [folded(index) for index in range(len(partitions))]
        while len(states) > 1:
            pairs = [merge(a, b) for a, b in zip(states[::2], states[1::2], strict=False)]
            states = pairs + states[len(pairs) * 2 :]
        return states[0]

    state: State = run_tasks(tree, threads=threads)
    return state


class _Window:
    """Keeps partitions from running far ahead of a slow one: their states would pile up."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._running: set[int] = set()
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def of(self, index: int) -> Iterator[None]:
        """Wait until the partition is near enough to the first that is running, then run it."""
        with self._changed:
            self._running.add(index)
            self._changed.wait_for(lambda: index < min(self._running) + self._width)
        try:
            yield
        finally:
            with self._changed:
                self._running.remove(index)
                self._changed.notify_all()


def fold_partition(
    kernel: Kernel[State],
    rows: Rows,
    stop: threading.Event,
    progress: Callable[[int], None],
    partition: range,
) -> State:
    """The kernel's state after the rows of one partition, read block by block."""
    state = kernel.init()
    for start in partition:
        if stop.is_set():
            raise StoppedError
        end = min(start + partition.step, partition.stop)
        state = kernel.update(state, rows.read(start, end), start)
        progress(end - start)
    return state

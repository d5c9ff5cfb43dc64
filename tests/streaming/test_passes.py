"""A pass: every row once, one tree of merges, few states alive, an early end on failure."""

from __future__ import annotations

import random
import threading
import time
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
import pytest
from helpers import planted, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

from kmufs_stream import decompose, open_matrix, plan_selection
from kmufs_stream.events import Advanced, Event
from kmufs_stream.streaming.kernels.gram import Gram
from kmufs_stream.streaming.kernels.scaling import Scaling
from kmufs_stream.streaming.passes import StoppedError, fold_partition, fold_run, run_pass
from kmufs_stream.streaming.planning.sizing import live_states


class Numbers:
    """Rows whose one feature is their number."""

    def read(self, start: int, stop: int) -> Any:
        return np.arange(start, stop)[:, None]

    def take(self, start: int, stop: int, columns: Any) -> Any:
        raise NotImplementedError


class Seen(NamedTuple):
    """The row numbers seen, and the tree of merges as text."""

    rows: list[int]
    tree: str

    def __add__(self, other: Any) -> Any:  # the sum of states, not of tuples
        return Seen(self.rows + other.rows, f"({self.tree}{other.tree})")


class Shape:
    """A kernel that notes what is read and merged."""

    def init(self) -> Seen:
        return Seen([], "")

    def update(self, state: Seen, values: Any, start: int) -> Seen:
        assert values[0, 0] == start
        time.sleep(random.random() / 2000)
        return Seen([*state.rows, *values[:, 0].tolist()], ".")


def cut(n: int, block: int, per_partition: int = 1) -> list[range]:
    step = block * per_partition
    return [range(a, min(a + step, n), block) for a in range(0, n, step)]


@settings(deadline=None, max_examples=25)
@given(
    n=st.integers(1, 60),
    block=st.integers(1, 9),
    per=st.integers(1, 3),
    threads=st.sampled_from([1, 2, 4]),
)
def test_every_row_once_in_order(n: int, block: int, per: int, threads: int) -> None:
    told: list[Event] = []
    rows, _ = run_pass(
        Shape(), Numbers(), cut(n, block, per), threads=threads, progress=told.append
    )
    assert rows == list(range(n))
    steps = [e for e in told if isinstance(e, Advanced)]
    assert sum(e.count for e in steps) == n
    assert 0 < sum(e.reading for e in steps) < sum(e.working for e in steps)


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 16, 33])
def test_tree_depends_on_the_number_of_partitions_alone(partitions: int) -> None:
    trees = {
        run_pass(Shape(), Numbers(), cut(partitions * rows, rows), threads=threads)[1]
        for rows in (1, 4)
        for threads in (1, 2, 4)
        for _ in range(2)
    }
    assert len(trees) == 1
    tree = trees.pop()
    assert tree.count(".") == partitions
    depth = max(tree[:i].count("(") - tree[:i].count(")") for i in range(len(tree)))
    assert depth <= partitions.bit_length()


@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 5, 6, 7, 8])
def test_a_run_of_partitions_is_merged_as_by_the_tree(partitions: int) -> None:
    pieces = cut(2 * partitions, 2)
    expected = run_pass(Shape(), Numbers(), pieces, threads=1)
    assert fold_run(Shape(), Numbers(), pieces, bool, id) == expected


def test_gram_is_bit_equal_for_any_number_of_threads() -> None:
    x = planted(3000, 40, dtype=np.float32)
    kernel = Gram(Scaling.from_probe(x[:64], "float32"))
    rows = open_matrix(x).rows
    found = {
        run_pass(kernel, rows, cut(3000, 50, 2), threads=threads).scatter.tobytes()
        for threads in (1, 2, 4)
        for _ in range(2)
    }
    assert len(found) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.usefixtures("small_blocks")
def test_factor_is_bit_equal_for_any_number_of_threads(dtype: Any) -> None:
    x = da.from_array(planted(2000, 30, dtype=dtype), chunks=(7, 30))
    assert len(plan_selection(open_matrix(x), 3, 5).partitions) > 8
    first = decompose(x, 3, threads=1)
    for threads in (1, 2, 4):
        assert same_bits(first, decompose(x, 3, threads=threads))


def test_tasks_use_one_blas_thread() -> None:
    seen: list[int] = []

    class Look(Shape):
        def update(self, state: Any, values: Any, start: int) -> Any:
            seen.extend(p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas")
            return super().update(state, values, start)

    before = [p["num_threads"] for p in threadpool_info()]
    run_pass(Look(), Numbers(), cut(8, 1), threads=2)
    assert seen
    assert set(seen) == {1}
    assert [p["num_threads"] for p in threadpool_info()] == before


class Live:
    """A kernel that counts its living states."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.lock = threading.Lock()

    def _new(self) -> Any:
        kernel = self

        class State:
            def __init__(self) -> None:
                with kernel.lock:
                    kernel.now += 1
                    kernel.most = max(kernel.most, kernel.now)

            def __del__(self) -> None:
                with kernel.lock:
                    kernel.now -= 1

            def __add__(self, other: Any) -> Any:
                return State()

        return State()

    def init(self) -> Any:
        return self._new()

    def update(self, state: Any, values: Any, start: int) -> Any:
        self.pause(start)
        return state

    def pause(self, start: int) -> None:
        time.sleep(random.random() / 300)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("partitions", [1, 5, 64, 200])
def test_no_more_states_live_than_the_plan_counts(partitions: int, threads: int) -> None:
    kernel = Live()
    run_pass(kernel, Numbers(), cut(partitions, 1), threads=threads)
    assert kernel.most >= 1
    assert kernel.most <= live_states(partitions, threads)
    assert kernel.now <= 1


def test_no_more_states_live_than_the_plan_counts_behind_stragglers() -> None:
    partitions, threads = 512, 4
    slow = {50, 200, 350}

    class Stragglers(Live):
        def pause(self, start: int) -> None:
            time.sleep(0.2 if start in slow else 0)

    kernel = Stragglers()
    run_pass(kernel, Numbers(), cut(partitions, 1), threads=threads)
    assert kernel.most <= live_states(partitions, threads)


class Failing(Numbers):
    """Row 0 cannot be read once another task is under way, which goes on slowly."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.other_began = threading.Event()
        self.failed = threading.Event()
        self.reads: list[int] = []

    def read(self, start: int, stop: int) -> Any:
        self.reads.append(start)
        if start == 0:
            assert self.other_began.wait(60)
            self.failed.set()
            raise self.error
        self.other_began.set()
        assert self.failed.wait(60)
        time.sleep(0.01)
        return super().read(start, stop)


@pytest.mark.parametrize("error", [OSError("gone"), KeyboardInterrupt()])
def test_a_failed_task_stops_the_others(error: BaseException) -> None:
    rows = Failing(error)
    with pytest.raises(type(error)):
        run_pass(Shape(), rows, [range(0, 50), range(50, 5050)], threads=2)
    seen = len(rows.reads)
    assert seen < 2500  # of 5001: the other task ended early
    time.sleep(0.05)
    assert len(rows.reads) == seen  # and nothing goes on behind the caller's back


def test_a_stopped_partition_reads_nothing_more() -> None:
    asked: list[bool] = []

    def stopped() -> bool:
        asked.append(len(asked) == 3)
        return asked[-1]

    with pytest.raises(StoppedError):
        fold_partition(Shape(), Numbers(), range(0, 100, 5), stopped, id)
    assert len(asked) == 4

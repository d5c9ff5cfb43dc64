"""A pass: every row once, one tree of merges, few states alive, an early end on failure."""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

import distributed
import pytest
from cluster_rows import Alive, Counting, Numbers, cut
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

from kmufs_stream.events import Advanced, Event
from kmufs_stream.streaming.passes import (
    fold_run,
    run_each,
    run_pass,
)
from kmufs_stream.streaming.planning.sizing import live_states
from kmufs_stream.streaming.tree import Node, Tree
from kmufs_stream.streaming.workers import Threads
from kmufs_stream.system import blas


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
        time.sleep(start % 7 / 5000)
        return Seen([*state.rows, *values[:, 0].tolist()], ".")


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


@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 5, 6, 7, 8, 16, 33])
def test_tree_depends_on_the_number_of_partitions_alone(partitions: int, six_threads: Any) -> None:
    pieces = cut(2 * partitions, 2)
    expected = run_pass(Shape(), Numbers(), pieces, threads=1)
    assert fold_run(Shape(), Numbers(), pieces, bool, id) == expected
    with distributed.Client(six_threads, set_as_default=False) as client:
        assert run_pass(Shape(), Numbers(), pieces, threads=1, client=client) == expected
    tree = expected.tree
    for rows, threads in ((1, 1), (4, 2), (1, 4)):
        other = run_pass(Shape(), Numbers(), cut(partitions * rows, rows), threads=threads)
        assert other.tree == tree
    assert tree.count(".") == partitions
    depth = max(tree[:i].count("(") - tree[:i].count(")") for i in range(len(tree)))
    assert depth <= partitions.bit_length()


@given(count=st.integers(1, 200), data=st.data())
def test_the_highest_nodes_cover_each_partition_at_most_once(
    count: int, data: st.DataObject
) -> None:
    nodes = [Node(level, i) for level in range(8) for i in range(200 >> level)]
    nodes = [node for node in nodes if node.partitions(count)]
    drawn = data.draw(st.lists(st.sampled_from(nodes), max_size=20))
    seen = [i for node in Tree(count).highest(drawn) for i in node.partitions(count)]
    assert len(seen) == len(set(seen))
    assert set(seen) == {i for node in drawn for i in node.partitions(count)}


class Look:
    """A kernel that notes the numbers of BLAS threads."""

    def init(self) -> list[int]:
        return []

    def update(self, state: list[int], values: Any, start: int) -> list[int]:
        return state + [p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"]


@pytest.mark.parametrize("where", ["threads", "six_threads", "two_processes"])
def test_tasks_use_one_blas_thread(where: str, request: pytest.FixtureRequest) -> None:
    before = [p["num_threads"] for p in threadpool_info()]
    if where == "threads":
        seen = run_pass(Look(), Numbers(), cut(8), threads=2)
    else:
        cluster = request.getfixturevalue(where)
        with blas.all_cores(), distributed.Client(cluster, set_as_default=False) as client:
            seen = run_pass(Look(), Numbers(), cut(8), threads=1, client=client)
    assert set(seen) == {1}
    assert [p["num_threads"] for p in threadpool_info()] == before


class Stragglers(Counting):
    def update(self, state: Alive, values: Any, start: int) -> Alive:
        time.sleep(0.2 if start in (50, 200, 350) else 0)
        return state


@pytest.mark.parametrize(
    ("kernel", "partitions", "threads"),
    [(Counting, 1, 2), (Counting, 5, 2), (Counting, 200, 1), (Stragglers, 512, 4)],
)
def test_no_more_states_live_than_the_plan_counts(
    kernel: type[Counting], partitions: int, threads: int
) -> None:
    Alive.now = Alive.most = 0
    run_pass(kernel(), Numbers(), cut(partitions), threads=threads)
    assert 1 <= Alive.most <= live_states(partitions, threads)
    assert Alive.now <= 1


class Failing(Numbers):
    """Row 0 cannot be read once another task is under way, which goes on slowly."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
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


def test_few_pieces_are_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [range(i, i + 1) for i in range(50)]
    in_flight, seen = 0, []
    submit, wait = Threads.submit, Threads.wait

    def counted(workers: Threads, *given: Any) -> Any:
        nonlocal in_flight
        in_flight += 1
        seen.append(in_flight)
        return submit(workers, *given)

    def awaited(workers: Threads) -> Any:
        nonlocal in_flight
        in_flight -= 1
        return wait(workers)

    monkeypatch.setattr(Threads, "submit", counted)
    monkeypatch.setattr(Threads, "wait", awaited)
    made = run_each(lambda offset, piece, stopped: offset + piece.start, 7, pieces, threads=3)
    assert made == {piece: 7 + piece.start for piece in pieces}
    assert max(seen) == 3

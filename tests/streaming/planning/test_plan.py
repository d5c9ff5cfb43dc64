"""The plan: a pure function of the table and the request that keeps its word."""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kmufs_stream import RequestError
from kmufs_stream.sources.layout import Layout
from kmufs_stream.streaming.planning import plan as planning
from kmufs_stream.streaming.planning.plan import (
    Plan,
    make_plan,
    memory_budget,
    resolve_precision,
)
from kmufs_stream.streaming.planning.sizing import (
    BASELINE,
    MAX_PARTITIONS,
    MB,
    Candidate,
    ClusterSize,
    Cost,
    PlanRequest,
)
from kmufs_stream.streaming.planning.table import Table

GB = 10**9


def candidates(p: int, k: int = 10) -> dict[str, Candidate]:
    """Candidates with the growth of the real routes."""

    def gram(rows: int, itemsize: int) -> Cost:
        return Cost(8 * p * p, itemsize * p * p, 0, 24 * p * p, 8 * p * p, 1)

    def tsqr(rows: int, itemsize: int) -> Cost:
        return Cost(8 * p * p, 16 * (rows + p) * p, 0, 64 * p * p, 8 * p * k, 1)

    def lanczos(rows: int, itemsize: int) -> Cost:
        return Cost(8 * p * k, rows * k * itemsize, 240 * p * k, 300 * p * k, 8 * p * k, 12)

    return {
        "gram": Candidate(gram, "" if p <= 6000 else "wide"),
        "tsqr": Candidate(tsqr, "slow", float64=True),
        "lanczos": Candidate(lanczos, thin=True),
    }


def plan_or_refusal(table: Table, **request: Any) -> Plan | RequestError:
    try:
        return plan_of(table, **request)
    except RequestError as error:
        return error


def plan_of(table: Table, **request: Any) -> Plan:
    return make_plan(table, candidates(table.shape[1]), PlanRequest(**request))


def table_of(
    n: int = 1_000_000,
    p: int = 1000,
    chunk_rows: int = 1000,
    dtype: Any = np.float32,
    shards: int = 1,
) -> Table:
    dtype = np.dtype(dtype)
    return Table((n, p), dtype, Layout(dtype, chunk_rows, p, chunk_rows * shards))


tables = st.builds(
    table_of,
    n=st.integers(2, 10**9),
    p=st.integers(1, 9000),
    chunk_rows=st.integers(1, 10**5),
    dtype=st.sampled_from([np.uint8, np.float32, np.float64]),
    shards=st.sampled_from([1, 4, 50]),
)
EVERY = settings(deadline=None, max_examples=80)


@EVERY
@given(table=tables, threads=st.integers(1, 64), h=st.integers(0, 500))
def test_partitions_cover_every_row_once_in_whole_chunks_whatever_threads_and_memory(
    table: Table, threads: int, h: int
) -> None:
    plan = plan_of(table, memory=10**15, threads=threads, h=h, copies=h > 0)
    partitions, n = plan.partitions, table.shape[0]
    other = plan_of(table, memory=10**14, threads=1)  # decides none of the bits
    for name in ("method", "precision", "partitions"):
        assert getattr(other, name) == getattr(plan, name)
    assert 1 <= len(partitions) <= MAX_PARTITIONS
    assert plan.block_rows % table.layout.chunk_rows == 0
    assert partitions[0].start == 0
    assert partitions[-1].stop == n
    for a, b in itertools.pairwise(partitions):
        assert a.stop == b.start
    for part in partitions:
        assert part.step == plan.block_rows
        assert part.start < part.stop
        assert part.start % table.layout.chunk_rows == 0


@EVERY
@given(table=tables, threads=st.integers(1, 16), memory=st.integers(310 * MB, 50 * GB))
def test_same_request_same_plan_within_budget_and_more_of_it_never_gives_less(
    table: Table, threads: int, memory: int
) -> None:
    request: Any = {"threads": threads, "h": 5, "copies": True}
    plan = plan_or_refusal(table, memory=memory, **request)
    if isinstance(plan, RequestError):
        assert plan.code == "does_not_fit"
        return
    assert plan == plan_of(table, memory=memory, **request)
    assert plan.peak <= memory
    assert plan.peak == max(plan.stages.values())
    assert 1 <= plan.threads <= threads
    assert plan.budget == memory
    more = plan_of(table, memory=2 * memory, **request)  # never gives less
    assert (more.method == "gram") >= (plan.method == "gram")
    if more.method == plan.method:
        assert more.block_rows >= plan.block_rows
        if more.block_rows == plan.block_rows:
            assert more.threads >= plan.threads
            assert more.cached_rows >= plan.cached_rows or more.threads > plan.threads


@EVERY
@given(table=tables, memory=st.integers(1, 2 * GB))
def test_refusal_says_what_would_do(table: Table, memory: int) -> None:
    refusal = plan_or_refusal(table, memory=memory, threads=4, h=3, copies=True)
    if isinstance(refusal, Plan):
        assert memory > BASELINE
        return
    assert refusal.code == "does_not_fit"
    assert refusal.exit_code == 2
    found = re.search(r"`memory='(\d+)MB'` or more", refusal.remedy)
    assert found is not None
    enough = int(found[1]) * MB
    assert enough > memory
    assert plan_of(table, memory=enough, threads=4, h=3, copies=True).peak <= enough


def test_what_the_peak_grows_with() -> None:
    plan = plan_of(table_of(), memory=10**15, threads=3)
    more_threads = plan_of(table_of(), memory=10**15, threads=4)
    assert more_threads.stages["pass"] > plan.stages["pass"]
    heavier = plan_of(table_of(), memory=10**15, threads=3, solver_bytes=12345)
    assert heavier.stages["solver"] == plan.stages["solver"] + 12345
    long, longer = (
        plan_of(table_of(n=n), memory=100 * GB, threads=2, method="gram").peak
        for n in (50_000_000, 200_000_000)
    )
    assert longer < 1.05 * long


def test_concessions_in_order() -> None:
    table = table_of()
    ample = plan_of(table, memory=100 * GB, threads=8)
    assert (ample.threads, ample.method, ample.concessions) == (8, "gram", ())
    seen = [plan_of(table, memory=ample.peak, threads=8)]
    while isinstance(less := plan_or_refusal(table, memory=seen[-1].peak - 1, threads=8), Plan):
        seen.append(less)
    threads = [p for p in seen if p.method == "gram" and p.block_rows == ample.block_rows]
    blocks = [p for p in seen if p.method == "gram" and p.block_rows < ample.block_rows]
    others = [p for p in seen if p.method != "gram"]
    assert seen == threads + blocks + others
    assert [p.threads for p in threads] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert "1 of 8 threads" in threads[-1].concessions
    assert any("rows, not" in c for c in blocks[0].concessions)
    for plan in others:
        assert any("not gram" in c for c in plan.concessions)
        assert plan.rejected["gram"] == "does not fit the budget"
        assert plan.method not in plan.rejected


def test_blocks_shrink_only_for_an_explicit_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of()
    least = plan_of(table, memory=100 * GB, threads=1).peak
    assert plan_of(table, memory=least - 1, threads=1).concessions
    monkeypatch.setattr(planning, "available_memory", lambda: 2 * (least - 1))
    with pytest.raises(RequestError) as caught:
        plan_of(table, threads=1)
    assert caught.value.code == "does_not_fit"
    assert "half of the memory available" in caught.value.message
    monkeypatch.setattr(planning, "available_memory", lambda: 2 * least)
    plan = plan_of(table, threads=4)
    assert plan.threads == 1
    assert plan.concessions == ("1 of 4 threads",)


def test_refusal_names_the_sizes_and_a_chunk_that_spans_all_rows() -> None:
    table = table_of(n=2_000_000, p=500, chunk_rows=2_000_000)
    with pytest.raises(RequestError) as caught:
        plan_of(table, memory="1GB", threads=2)
    message = str(caught.value)
    for part in ("needed", "`memory='", "pass", "factor", "chunks of fewer rows"):
        assert part in message


@pytest.mark.parametrize(("p", "method"), [(6000, "gram"), (6001, "lanczos")])
def test_method_follows_the_number_of_features(p: int, method: str) -> None:
    plan = plan_of(table_of(p=p, chunk_rows=50), memory=100 * GB)
    assert plan.method == method
    assert set(plan.rejected) == {"gram", "tsqr", "lanczos"} - {method}
    assert plan.reads == (1 if method == "gram" else 12)
    for asked in ("gram", "tsqr", "lanczos"):
        plan = plan_of(table_of(), method=asked, memory=100 * GB)
        assert plan.method == asked
        assert plan.precision == ("float64" if asked == "tsqr" else "float32")


def test_cache_is_given_up_before_threads() -> None:
    table = table_of(n=100_000)
    whole = plan_of(table, method="lanczos", memory=100 * GB, threads=4)
    assert whole.cached_rows == 100_000
    tight = plan_of(table, method="lanczos", memory=whole.peak - 100 * MB, threads=4)
    assert 0 <= tight.cached_rows < 100_000
    assert tight.threads == 4
    assert any("cached" in c for c in tight.concessions)
    assert tight.partitions == whole.partitions


def test_precision_holds_every_value() -> None:
    for precision, dtypes in (
        ("float32", ("bool", "i1", "u1", "i2", "u2", "f2", "f4", ">f4")),
        ("float64", ("i4", "u4", "i8", "u8", "f8", ">f8")),
    ):
        for dtype in map(np.dtype, dtypes):
            assert resolve_precision("auto", dtype) == precision
            assert resolve_precision("float32", dtype) == "float32"


def test_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "available_memory", lambda: 2 * GB)
    sizes = {"2GB": 2 * GB, "2GiB": 2**31, "500MB": 500 * MB, 12345: 12345, None: GB}
    assert {text: memory_budget(text) for text in sizes} == sizes


def test_options_out_of_range() -> None:
    bad: dict[str, Any] = {"threads": [0], "precision": ["float16"], "method": ["svd"]}
    for option, values in (bad | {"memory": ["much", "0MB", -5]}).items():
        for value in values:
            with pytest.raises(RequestError) as caught:
                plan_of(table_of(), **{"memory": 100 * GB, option: value})
            assert caught.value.code == "bad_option"
            assert str(value) in caught.value.message


def test_shards_are_read_whole_while_small() -> None:
    small = table_of(n=10**6, p=100, chunk_rows=100, shards=10)
    assert plan_of(small, memory=100 * GB).block_rows % 1000 == 0
    large = dataclasses.replace(small, layout=dataclasses.replace(small.layout, shard_rows=500_000))
    plan = plan_of(large, memory=100 * GB)
    assert plan.block_rows % 100 == 0
    assert plan.block_rows < 500_000


def test_subset_is_written_in_whole_source_chunks() -> None:
    plan = plan_of(table_of(chunk_rows=777), memory=100 * GB, h=50, copies=True)
    assert plan.output_chunk_rows % 777 == 0
    assert plan.output_bytes == 10**6 * 50 * 4
    assert plan_of(table_of(), memory=100 * GB, h=50).output_bytes == 0


def test_what_a_source_holds_counts_in_each_worker() -> None:
    cluster = ClusterSize(workers=3, threads=2, memory=None)
    table = table_of()
    holding, larger = (
        dataclasses.replace(table, layout=dataclasses.replace(table.layout, held_bytes=held))
        for held in (GB, 4 * GB)
    )
    plain, held = (plan_of(t, memory="30GB", cluster=cluster) for t in (table, holding))
    assert held.worker_peak == plain.worker_peak + GB
    small = ClusterSize(workers=3, threads=2, memory=plain.worker_peak * 2)
    assert plan_of(table, memory="30GB", cluster=small).worker_peak == plain.worker_peak
    with pytest.raises(RequestError, match="A worker with 2 threads needs"):
        plan_of(larger, memory="30GB", cluster=small)

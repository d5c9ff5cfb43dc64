"""A pass on a Dask cluster: the bits of one on threads, whatever happens to the workers."""

from __future__ import annotations

import dataclasses
import gc
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import distributed
import numpy as np
import pytest
import zarr
from cluster_rows import Alive, Counting, Killing, Losing, Numbers, Slow, cut
from helpers import contents, planted, same_bits, write_bare, write_xarray
from processes import until
from xarray import DataArray
from zarr.storage import LocalStore

from kmufs_stream import (
    BrokenError,
    Factor,
    RequestError,
    decompose,
    open_matrix,
    plan_selection,
    select,
)
from kmufs_stream.events import Advanced
from kmufs_stream.streaming import cluster as cluster_module
from kmufs_stream.streaming import workers as workers_module
from kmufs_stream.streaming.cluster import active_client, compare, connected
from kmufs_stream.streaming.passes import run_pass
from kmufs_stream.streaming.planning import sizing
from kmufs_stream.streaming.planning.sizing import PARTITIONS_PER_TASK
from kmufs_stream.streaming.tree import Tree
from kmufs_stream.streaming.workers import open_workers
from kmufs_stream.system.allocator import ONE_HEAP

GB = 10**9
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore:.*unclosed.*"),
    pytest.mark.usefixtures("quick_workers", "small_blocks"),
]
Starting = Callable[..., Any]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 45 chunks, which no test changes."""
    X = planted(900, 30, k=4, dtype=np.float32)
    return write_bare(tmp_path_factory.mktemp("cluster") / "data.zarr", X, chunks=(20, 30))


@pytest.fixture
def expected(table: Path) -> Factor:
    """What threads make of it by the method ``gram``."""
    return decompose(table, 3, threads=2)


def test_bit_equal_to_threads(
    table: Path, expected: Factor, two_processes: Any, six_threads: Any, tmp_path: Path
) -> None:
    others = {m: decompose(table, 3, method=m, threads=2) for m in ("tsqr", "lanczos")}
    with distributed.Client(six_threads):
        plan = plan_selection(open_matrix(table), 3, 5)
        assert plan.cluster is not None
        assert plan.cluster.workers == 6
        assert len(plan.partitions) >= 12
        assert same_bits(decompose(table, 3), expected)
        assert same_bits(decompose(table, 3, method="lanczos"), others["lanczos"])
    with distributed.Client(two_processes):
        assert same_bits(decompose(table, 3, checkpoint=tmp_path / "kept"), expected)
        assert same_bits(decompose(table, 3, method="tsqr"), others["tsqr"])
    assert active_client() is None


@pytest.mark.parametrize(
    ("workers", "method", "kept"), [(2, "gram", True), (1, "lanczos", False)]
)  # of one, all states and constants die with it
def test_workers_killed_in_mid_pass(
    table: Path, tmp_path: Path, cluster_of: Starting, workers: int, method: str, kept: bool
) -> None:
    matrix = open_matrix(table)
    expected = decompose(matrix, 3, method=method)
    # No more than a task survives that waited at each of the killed: on a busy machine one does.
    at = tuple(plan_selection(matrix, 3, 5).partitions[i].start for i in (2, 9))
    (tmp_path / "killed").mkdir()
    killing = dataclasses.replace(matrix, rows=Killing(matrix.rows, tmp_path / "killed", at))
    checkpoint = tmp_path / "kept" if kept else None
    with cluster_of(workers, processes=True) as cluster, distributed.Client(cluster):
        found = decompose(killing, 3, method=method, checkpoint=checkpoint)
    assert len(list((tmp_path / "killed").iterdir())) == 2
    assert found.features.samples == 900
    assert same_bits(found, expected)
    assert not (tmp_path / "kept").exists()


def test_a_partition_that_keeps_killing_workers_is_named(
    table: Path, expected: Factor, tmp_path: Path, cluster_of: Starting
) -> None:
    matrix = open_matrix(table)
    partition = plan_selection(matrix, 3, 5).partitions[5]
    (tmp_path / "killed").mkdir()
    rows = Killing(matrix.rows, tmp_path / "killed", (partition.start,), times=100)
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 2}),
        cluster_of(2, processes=True) as cluster,
        distributed.Client(cluster) as client,
    ):
        with pytest.raises(BrokenError) as caught:
            decompose(dataclasses.replace(matrix, rows=rows), 3, checkpoint=tmp_path / "kept")
        assert (tmp_path / "kept").exists()
        client.wait_for_workers(1, timeout=60)
        again = decompose(table, 3, checkpoint=tmp_path / "kept", resume=True)
    assert same_bits(again, expected)
    assert caught.value.code == "worker_died"
    assert caught.value.message.startswith("3 workers have died while reading rows ")
    first, last = map(int, re.findall(r"rows (\d+)\.\.(\d+) ", caught.value.message)[0])
    assert first <= partition.start < partition.stop <= last + 1
    assert last + 1 - first <= PARTITIONS_PER_TASK * (partition.stop - partition.start)


def test_a_corrupt_chunk_is_named(table: Path, client: Any, tmp_path: Path) -> None:
    corrupt = shutil.copytree(table, tmp_path / "corrupt.zarr")
    (corrupt / "c" / "31" / "0").write_bytes(b"not a chunk")
    with pytest.raises(BrokenError, match=r"chunk c/31/0 of .* cannot be read"):
        decompose(corrupt, 3)


def test_the_subset_is_written_by_the_workers(tmp_path: Path, two_processes: Any) -> None:
    X = planted(900, 30, k=4, dtype=np.float32)
    array = DataArray(X.T, dims=("gene", "cell"), name="counts")
    store = write_xarray(tmp_path / "a.zarr", array, chunks=(30, 30))
    data = open_matrix(store, sample_dims="cell")
    select(data, 3, 5, out=tmp_path / "here.zarr")
    with distributed.Client(two_processes):
        result = select(data, 3, 5, out=tmp_path / "there.zarr")
    assert result.plan.cluster is not None
    here, there = (
        {path: digest for path, digest in contents(tmp_path / name).items() if "/c/" in path}
        for name in ("here.zarr", "there.zarr")
    )
    assert here == there != {}
    chosen = result.dataset["counts"].transpose("cell", "gene").values
    np.testing.assert_array_equal(chosen, X[:, result.selected])


def test_a_chunk_that_a_worker_wrote_and_others_do_not_find(
    table: Path, tmp_path: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizing, "OUTPUT_CHUNK_BYTES", 4000)
    out = Losing(LocalStore(tmp_path / "out.zarr"))
    with pytest.raises(BrokenError, match=r"Rows \d+\.\.\d+ of the output are not") as caught:
        select(table, 3, 5, out=out)
    assert caught.value.code == "output_differs"
    assert not list((tmp_path / "out.zarr").rglob("zarr.json"))


@pytest.mark.parametrize("partitions", [40, 400])
def test_scheduler_and_memory_are_spared(partitions: int, cluster_of: Starting) -> None:
    """Few tasks at a time, less than one for two partitions in all, and none is left behind.

    The client holds on to those, and to states that wait: one for each level, or just begun.
    """
    levels = Tree(partitions).root.level
    with cluster_of(2) as threads, distributed.Client(threads) as client:
        watch = Watch(threads.scheduler, client)
        threads.scheduler.add_plugin(watch)
        gc.collect()
        Alive.now = Alive.most = 0
        state = run_pass(Counting(), Numbers(), cut(partitions), threads=1, client=client)
        assert isinstance(state, Alive)
        # Of two threads: three of a merge, or of a run and its last partition, one that waits.
        assert 1 < Alive.most <= 2 * (4 + PARTITIONS_PER_TASK.bit_length()) + 4 + levels
        assert watch.most_unfinished <= 2 * 2 + 2  # two a thread; the kernel and the rows
        assert partitions / PARTITIONS_PER_TASK < watch.most_known <= partitions / 2 + 10
        assert watch.most_held <= 2 * 2 + 2 + levels + 2 * 4
        until(lambda: not threads.scheduler.tasks)


class Watch(distributed.SchedulerPlugin):
    """Counts the tasks that a scheduler knows: done ones, too, are remembered until the end."""

    def __init__(self, scheduler: Any, client: distributed.Client) -> None:
        self.scheduler, self.client = scheduler, client
        self.most_known = self.most_unfinished = self.most_held = 0

    def transition(self, key: Any, start: str, finish: str, *_: Any, **__: Any) -> None:
        tasks = self.scheduler.tasks.values()
        under_way = sum(t.state in ("waiting", "queued", "no-worker", "processing") for t in tasks)
        self.most_known = max(self.most_known, len(tasks))
        self.most_held = max(self.most_held, len(self.client.futures))
        self.most_unfinished = max(self.most_unfinished, under_way)


class Failing(Counting):
    """A kernel that fails at row 0."""

    def update(self, state: Alive, values: Any, start: int) -> Alive:
        return state if start else 1 // 0  # type: ignore[return-value]


def test_cancelled_partitions_end_early(client: Any, tmp_path: Path) -> None:
    partitions = [range(0, 1), range(1000, 3000)]
    with pytest.raises(ZeroDivisionError):
        run_pass(Failing(), Slow(tmp_path), partitions, threads=1, client=client)
    seen = -1
    while seen != (seen := len(list(tmp_path.iterdir()))):
        time.sleep(0.5)
    assert seen < 1000


class Absent:
    """A kernel that nobody but this process can import."""

    def __reduce__(self) -> Any:
        return __import__, ("a_package_that_is_not_there",)


def test_a_cluster_without_the_package(client: Any) -> None:
    absent: Any = Absent()
    with pytest.raises(BrokenError) as caught:
        run_pass(absent, Numbers(), [range(2)], threads=1, client=client)
    assert caught.value.code == "other_environment"


OURS = {"python": "3.12.1.final.0", "numpy": "2.4.6", "scipy": "1.17.1", "zarr": "3.1.6"}
OURS |= {"dask": "2026.8.0", "distributed": "2026.8.0", "kmufs_stream": "1.2.0"}


def test_versions_that_may_differ_and_that_may_not() -> None:
    for theirs in ({}, {"numpy": "2.4.0"}, {"dask": "2026.8.9"}):
        compare("scheduler", OURS | theirs, OURS)
    compare("scheduler", OURS, OURS | {"kmufs_stream": None})
    for name, version in (
        ("python", "3.13.0.final.0"),
        ("numpy", "2.5.0"),
        ("dask", "2026.3.0"),
        ("kmufs_stream", "1.2.1"),
        ("kmufs_stream", None),
    ):
        says = f"{name} {version or '(none)'}; here it is {OURS[name]}"
        with pytest.raises(RequestError) as caught:
            compare("scheduler", OURS | {name: version}, OURS)
        assert caught.value.code == "other_versions"
        assert f"The cluster's scheduler has {says}." == caught.value.message


def test_a_cluster_of_other_versions(
    table: Path, six_threads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {"packages": OURS | {"zarr": "3.2.0"}}
    same = {"packages": OURS}
    with distributed.Client(six_threads):
        for scheduler, worker, who in ((other, same, "scheduler"), (same, other, "worker tcp://w")):
            versions = {"scheduler": scheduler, "workers": {"tcp://w": worker}, "client": same}
            monkeypatch.setattr(distributed.Client, "get_versions", lambda *_, v=versions, **__: v)
            with pytest.raises(RequestError, match=f"{who} has zarr 3.2.0; here it is 3.1.6"):
                plan_selection(open_matrix(table), 3, 5)


def test_a_late_worker_that_is_too_small(
    table: Path, monkeypatch: pytest.MonkeyPatch, cluster_of: Starting
) -> None:
    monkeypatch.setattr(workers_module, "RECOUNTED_AFTER", 0.05)
    asked = distributed.Client.scheduler_info
    late: set[str] = set()
    with cluster_of(1) as threads, distributed.Client(threads) as client:
        first = set(client.nthreads())

        def told(client: Any, *given: Any, **options: Any) -> Any:
            found = asked(client, *given, **options)
            late.update(found["workers"].keys() - first)
            for address in late:
                found["workers"][address]["memory_limit"] = 450 * 10**6
            return found

        monkeypatch.setattr(distributed.Client, "scheduler_info", told)

        def join(event: Any) -> None:
            if isinstance(event, Advanced) and len(threads.workers) == 1:
                threads.scale(2)
                client.wait_for_workers(2)
                time.sleep(0.05)

        with pytest.raises(RequestError, match=r"has 450\.0 MB of memory") as caught:
            decompose(table, 3, progress=join)
        assert caught.value.code == "does_not_fit"
        assert f"worker {late.pop()} has" in caught.value.message
        assert not late


def test_no_task_runs_under_other_versions(client: Any, tmp_path: Path) -> None:
    with open_workers(1, client) as workers:
        assert isinstance(workers, workers_module.Cluster)
        workers._versions = {**workers._versions, "scipy": "0.9.0"}
        made = workers.submit(os.mkdir, tmp_path / "made")
        workers.wait()
        with pytest.raises(
            RequestError, match=r"worker tcp://.* scipy .* here it is 0.9.0"
        ) as caught:
            workers.check(made, "making it")
    assert caught.value.code == "other_versions"
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("size", "code", "says"),
    [
        ({"workers": 0}, "no_workers", "has had no worker for"),
        (
            {"workers": 1, "threads": 3, "memory": 450 * 10**6},
            "does_not_fit",
            r"A worker with 3 threads needs .*450\.0 MB",
        ),
    ],
)
def test_a_cluster_that_cannot_do_it_is_refused(
    table: Path,
    cluster_of: Starting,
    monkeypatch: pytest.MonkeyPatch,
    size: dict[str, int],
    code: str,
    says: str,
) -> None:
    monkeypatch.setattr(cluster_module, "PATIENCE", 0.1)
    with cluster_of(**size) as cluster, distributed.Client(cluster):
        with pytest.raises(RequestError, match=says) as caught:
            decompose(table, 3)
        assert caught.value.code == code


def test_all_workers_gone_in_mid_pass(
    table: Path,
    expected: Factor,
    tmp_path: Path,
    cluster_of: Starting,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers_module, "RECOUNTED_AFTER", 0.05)
    monkeypatch.setattr(workers_module, "DESERTED_AFTER", 0.2)
    kept = tmp_path / "kept"
    with cluster_of(1) as threads, distributed.Client(threads) as client:

        def leave(event: Any) -> None:
            if isinstance(event, Advanced) and threads.workers:
                threads.scale(0)

        with pytest.raises(BrokenError, match=r"All workers .* gone") as caught:
            decompose(table, 3, checkpoint=kept, progress=leave)
        assert caught.value.code == "no_workers"
        assert caught.value.__notes__ == [
            f"The checkpoint {kept} is kept: `resume=True` goes on from it."
        ]
        with open_workers(1, client) as workers:
            with pytest.raises(BrokenError, match="All workers"):
                workers.share(1)
            threads.scale(1)
            client.wait_for_workers(1)
            made = workers.submit(str, 1)
            assert workers.wait() is made
            threads.scale(0)
            until(lambda: not threads.workers)
            until(lambda: made.status != "finished")
            workers.check(made, "what was done")
            with pytest.raises(BrokenError, match="All workers"):
                workers.result(made)
            threads.scale(1)
            assert workers.result(made) == "1"
    assert same_bits(decompose(table, 3, checkpoint=kept, resume=True), expected)


def test_data_in_memory_stay_here(six_threads: Any) -> None:
    X = planted(300, 10)
    lazy = open_matrix(da.from_array(X, chunks=(30, 10)))
    expected = decompose(lazy, 3)
    with distributed.Client(six_threads):
        assert plan_selection(open_matrix(X), 3, 5).cluster is None
        assert plan_selection(lazy, 3, 5).cluster is not None
        assert same_bits(decompose(lazy, 3), expected)


def test_what_workers_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:

    def threads_and_heap() -> tuple[int | None, dict[str, str | None]]:
        heap = {name: os.environ.get(name) for name in ONE_HEAP}
        return zarr.config.get("threading.max_workers"), heap

    for name in ONE_HEAP:  # Dask leaves its own here for the workers of a cluster before
        monkeypatch.delenv(name, raising=False)
    with connected(None, None, threads=None, memory="3GB") as memory:
        assert memory == "3GB"
    spawned = {"distributed.worker.multiprocessing-method": "spawn"}  # read their environment
    with dask.config.set(spawned), connected(None, 1, threads=1, memory="2GB") as memory:
        assert memory == GB
        client = active_client()
        assert client is not None
        with connected(client.scheduler.address, None, threads=None, memory=None) as other:
            assert other is None
            assert active_client() is not client
        client.write_scheduler_file(str(tmp_path / "scheduler.json"))
        with connected(str(tmp_path / "scheduler.json"), None, threads=None, memory=None):
            found = active_client()
            assert found is not client
            assert found is not None
            assert found.scheduler.address == client.scheduler.address
        workers = client.scheduler_info()["workers"].values()
        assert [(w["nthreads"], w["memory_limit"]) for w in workers] == [(1, GB)]
        assert list(client.run(threads_and_heap).values()) == [(1, ONE_HEAP)]
    assert active_client() is None
    for wrong in (("tcp://127.0.0.1:1", 2), (None, 0)):
        with pytest.raises(RequestError), connected(*wrong, threads=None, memory=None):
            pass
    small = pytest.raises(RequestError, match=r"share 300\.0 MB of memory, but each needs")
    with small as raised, connected(None, 2, threads=None, memory="300MB"):
        pass
    enough = raised.value.remedy.split("'")[1]
    with connected(None, 2, threads=1, memory=enough):
        pass
    assert capsys.readouterr() == ("", "")


def test_a_scheduler_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.json").touch()
    Path("other.json").write_text('{"address": 3}')
    for scheduler, says in (
        ("tcp://127.0.0.1:1", "OSError: Timed out"),
        ("away.json", "ValueError: missing port number"),
        ("empty.json", "JSONDecodeError"),
        ("other.json", "TypeError"),
    ):
        with (
            dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
            pytest.raises(BrokenError, match=f"{scheduler} does not answer: {says}") as caught,
            connected(scheduler, None, threads=None, memory=None),
        ):
            pass
        assert caught.value.code == "no_scheduler"

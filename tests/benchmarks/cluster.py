"""One worker process against two, the overhead of many chunks, and what the client remembers.

Workers have one thread for tasks; decoding, and what Dask does, have threads of their own. So the
speed-up is measured twice: as the processes come, and with each kept on a core of its own, as on a
cluster.

python tests/benchmarks/cluster.py
python tests/benchmarks/cluster.py --part speed-up --scale 0.1 --repeats 1
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import distributed
import numpy as np
from limits import arguments, machine, show
from numpy.typing import NDArray
from stores import make_store

from kmufs_stream import open_matrix, plan_selection
from kmufs_stream.streaming.cluster import connected
from kmufs_stream.streaming.kernels.gram import Gram
from kmufs_stream.streaming.kernels.scaling import Scaling, read_probe
from kmufs_stream.streaming.passes import fold_partition, run_pass
from kmufs_stream.system.memory import peak_memory

MEMORY_RUN = "memory-of"
FEATURES = 2000


@contextmanager
def workers(count: int, *, pinned: bool = False) -> Iterator[distributed.Client]:
    """Processes of one thread each, as of --workers; the scheduler runs in this one."""
    with connected(None, count, threads=1, memory=f"{4 * (count + 1)}GB"):
        client = distributed.Client.current()
        if pinned:
            for core, worker in enumerate(client.scheduler_info()["workers"]):
                client.run(stay_on, core, workers=[worker])
        yield client


def stay_on(core: int) -> None:
    """Keep all threads of this process on one core."""
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


def gram_pass(store: Path, client: distributed.Client | None) -> float:
    """Seconds of the pass of a select."""
    matrix = open_matrix(store)
    plan = plan_selection(matrix, 10, 100)
    kernel = Gram(Scaling.from_probe(read_probe(matrix), plan.precision))
    began = time.perf_counter()
    run_pass(kernel, matrix.rows, plan.partitions, threads=1, client=client)
    return time.perf_counter() - began


def times(store: Path, client: distributed.Client | None, repeats: int) -> list[float]:
    return [gram_pass(store, client) for _ in range(repeats)]


class Drop:
    """A kernel that does nothing with what is read."""

    def init(self) -> int:
        return 0

    def update(self, state: int, values: NDArray[Any], start: int) -> int:
        return state


@dataclass(frozen=True)
class Made:
    """Rows made up where they are read."""

    features: int

    def read(self, start: int, stop: int) -> NDArray[Any]:
        return np.full((stop - start, self.features), start, np.float32)

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        raise NotImplementedError


def memory_of(partitions: int) -> None:
    """Print the peak of the client and its scheduler after a pass over so many partitions."""
    p = 300
    scaling = Scaling(np.zeros(p), np.ones(p), np.ones(p, bool), "float32")
    cut = [range(a, a + 1000, 1000) for a in range(0, 1000 * partitions, 1000)]
    with workers(2) as client:
        run_pass(Gram(scaling), Made(p), cut, threads=1, client=client)
        print(peak_memory())


def speed_up(asked: argparse.Namespace) -> None:
    """A pass on one thread here, on one worker, and on two."""
    store = make_store(asked.folder, int(200_000 * asked.scale), asked.features)
    rows: list[list[object]] = []
    for pinned in (False, True):
        spent = []
        for count in (1, 2):
            with workers(count, pinned=pinned) as client:
                gram_pass(store, client)  # imports, page cache
                spent.append(statistics.median(times(store, client, asked.repeats)))
        rows.append(["on a core each" if pinned else "free", *spent, spent[0] / spent[1]])
    show(
        f"Gram pass, {asked.features} features ({machine()})",
        ["workers", "1 worker s", "2 workers s", "speed-up"],
        rows,
    )
    print(f"1 thread: {statistics.median(times(store, None, asked.repeats)):.1f} s")


def many_chunks(asked: argparse.Namespace) -> None:
    """A pass over chunks of 10 rows, as many files, against reading them."""
    store = make_store(asked.folder, int(1_000_000 * asked.scale), 200, chunk_bytes=8000)
    matrix = open_matrix(store)
    cut = plan_selection(matrix, 10, 100).partitions
    rows = []
    for _ in range(asked.repeats):
        began = time.perf_counter()
        for partition in cut:
            fold_partition(Drop(), matrix.rows, partition, bool, id)
        alone = time.perf_counter() - began
        with workers(1) as client:
            client.submit(bool).result()
            began = time.perf_counter()
            run_pass(Drop(), matrix.rows, cut, threads=1, client=client)
            passed = time.perf_counter() - began
        rows.append([matrix.shape[0] // 10, len(cut), alone, passed, passed / alone])
    show("Many chunks", ["chunks", "partitions", "reading s", "pass s", "ratio"], rows)


def memory(asked: argparse.Namespace) -> None:
    """Peaks of the client and scheduler, over passes of few and of many partitions."""
    peaks = []
    for partitions in (400, 4000):
        command = [sys.executable, __file__, MEMORY_RUN, str(partitions)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append([partitions, int(done.stdout) / 1e6])
    show("Client and scheduler, one process", ["partitions", "peak MB"], peaks)


PARTS = {"speed-up": speed_up, "many-chunks": many_chunks, "memory": memory}


def main() -> None:
    """Print three tables, or the one asked for."""
    if sys.argv[1:2] == [MEMORY_RUN]:
        memory_of(int(sys.argv[2]))
        return
    asked = arguments(__doc__, features=FEATURES, part="all")
    for name, part in PARTS.items():
        if asked.part in ("all", name):
            part(asked)


if __name__ == "__main__":
    main()

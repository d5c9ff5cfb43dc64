"""One worker process against two, the overhead of many chunks, and what the client remembers.

python tests/benchmarks/cluster.py
python tests/benchmarks/cluster.py --scale 0.1 --repeats 1
"""

from __future__ import annotations

import logging
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
from kmufs_stream.streaming.kernels import Gram
from kmufs_stream.streaming.memory import peak_memory
from kmufs_stream.streaming.passes import fold_partition, run_pass
from kmufs_stream.streaming.scaling import Scaling, read_probe

MEMORY_RUN = "memory"
FEATURES = 2000


@contextmanager
def workers(count: int) -> Iterator[distributed.Client]:
    """Processes of one thread each on loopback; the scheduler runs in this one."""
    with (
        distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            memory_limit=4 * 10**9,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(count)
        yield client


def gram_pass(store: Path, client: distributed.Client | None) -> float:
    """Seconds of the pass of a select."""
    matrix = open_matrix(store)
    plan = plan_selection(matrix, 10, 100)
    kernel = Gram(Scaling.from_probe(read_probe(matrix), plan.precision))
    began = time.perf_counter()
    run_pass(kernel, matrix.rows, plan.partitions, threads=1, client=client)
    return time.perf_counter() - began


class Drop:
    """A kernel that does nothing with what is read."""

    def init(self) -> int:
        return 0

    def update(self, state: int, values: NDArray[Any], start: int) -> int:
        return state

    def merge(self, a: int, b: int) -> int:
        return a + b


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


def main() -> None:
    """Print three tables."""
    if sys.argv[1:2] == [MEMORY_RUN]:
        memory_of(int(sys.argv[2]))
        return
    asked = arguments(__doc__, features=FEATURES, solver="exact")
    store = make_store(asked.folder, int(200_000 * asked.scale), asked.features)
    seconds: dict[str, list[float]] = {"one": [], "two": [], "threads": []}
    with workers(1) as one:
        gram_pass(store, one)  # imports, page cache
        for _ in range(asked.repeats):
            seconds["one"].append(gram_pass(store, one))
    with workers(2) as two:
        gram_pass(store, two)
        for _ in range(asked.repeats):
            seconds["two"].append(gram_pass(store, two))
    for _ in range(asked.repeats):
        seconds["threads"].append(gram_pass(store, None))
    spent = {name: statistics.median(times) for name, times in seconds.items()}
    show(
        f"Gram pass, {asked.features} features ({machine()})",
        ["1 thread s", "1 worker s", "2 workers s", "speed-up"],
        [[spent["threads"], spent["one"], spent["two"], spent["one"] / spent["two"]]],
    )
    # Chunks of 10 rows: as many files as chunks.
    many = make_store(asked.folder, int(1_000_000 * asked.scale), 200, chunk_bytes=8000)
    matrix = open_matrix(many)
    cut = plan_selection(matrix, 10, 100).partitions
    rows = []
    for _ in range(asked.repeats):
        began = time.perf_counter()
        for partition in cut:
            fold_partition(Drop(), matrix.rows, partition, bool)
        alone = time.perf_counter() - began
        with workers(1) as client:
            client.submit(bool).result()
            began = time.perf_counter()
            run_pass(Drop(), matrix.rows, cut, threads=1, client=client)
            passed = time.perf_counter() - began
        rows.append([matrix.shape[0] // 10, len(cut), alone, passed, passed / alone])
    show("Many chunks", ["chunks", "partitions", "reading s", "pass s", "ratio"], rows)
    peaks = []
    for partitions in (400, 4000):
        command = [sys.executable, __file__, MEMORY_RUN, str(partitions)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append([partitions, int(done.stdout) / 1e6])
    show("Client and scheduler, one process", ["partitions", "peak MB"], peaks)


if __name__ == "__main__":
    main()

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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import distributed
import numpy as np
from limits import Work, arguments, fresh, machine, planned, reading, show, side_by_side
from numpy.typing import NDArray
from stores import make_store

from kmufs_stream.streaming.cluster import connected
from kmufs_stream.streaming.kernels.gram import Gram
from kmufs_stream.streaming.kernels.scaling import Scaling, read_probe
from kmufs_stream.streaming.passes import run_pass

ASKED = {"k": 10, "h": 100}


@contextmanager
def workers(count: int, *, pinned: bool = False) -> Iterator[distributed.Client | None]:
    """Processes of one thread each, as of --workers, or none; the scheduler runs in this one."""
    if not count:
        yield None
        return
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


def passing(store: str, count: int, pinned: bool = False, drop: bool = False) -> dict[str, Any]:
    """The pass of a select, the second one, on so many workers or on one thread here."""
    matrix, plan = planned(store, ASKED)
    kernel: Any = Drop() if drop else Gram(Scaling.from_probe(read_probe(matrix), plan.precision))
    with workers(count, pinned=pinned) as client:
        for _ in range(2):  # the first one pays for imports and fills the page cache
            with Work() as work:
                run_pass(kernel, matrix.rows, plan.partitions, threads=1, client=client)
    return {**vars(work), "partitions": len(plan.partitions)}


def remembering(partitions: int) -> dict[str, Any]:
    """A pass over so many partitions, for the peak of the client and its scheduler."""
    p = 300
    scaling = Scaling(np.zeros(p), np.ones(p), np.ones(p, bool), "float32")
    cut = [range(a, a + 1000, 1000) for a in range(0, 1000 * partitions, 1000)]
    with workers(2) as client:
        run_pass(Gram(scaling), Made(p), cut, threads=1, client=client)
    return {}


def speed_up(asked: argparse.Namespace) -> None:
    """A pass on one thread here, on one worker, and on two."""
    store = make_store(asked.folder, int(200_000 * asked.scale), asked.features)
    cases = {"here": (0, False), "one": (1, False), "two": (2, False)}
    cases |= {"one pinned": (1, True), "two pinned": (2, True)}
    runs = side_by_side(
        asked.repeats,
        {
            name: partial(fresh, passing, store=store, count=count, pinned=pinned)
            for name, (count, pinned) in cases.items()
        },
    )
    seconds = {name: done.median("seconds") for name, done in runs.items()}
    rows = [
        {
            "workers": "on a core each" if pinned else "free",
            "1 worker s": seconds["one" + pinned],
            "2 workers s": seconds["two" + pinned],
            "speed-up": seconds["one" + pinned] / seconds["two" + pinned],
        }
        for pinned in ("", " pinned")
    ]
    show(f"Gram pass, {asked.features} features ({machine()})", rows)
    print(f"1 thread: {seconds['here']:.1f} s")


def many_chunks(asked: argparse.Namespace) -> None:
    """A pass over chunks of 10 rows, as many files, against reading them."""
    n = int(1_000_000 * asked.scale)
    store = make_store(asked.folder, n, 200, chunk_bytes=8000)
    tasks = {
        "reading": partial(fresh, reading, store=store, options={**ASKED, "threads": 1}),
        "pass": partial(fresh, passing, store=store, count=1, drop=True),
    }
    alone, passed = side_by_side(asked.repeats, tasks).values()
    row = {
        "chunks": n // 10,
        "partitions": passed[0]["partitions"],
        "reading s": alone.median("seconds"),
        "pass s": passed.median("seconds"),
        "ratio": passed.median("seconds") / alone.median("seconds"),
    }
    show("Many chunks", [row])


def memory(asked: argparse.Namespace) -> None:
    """Peaks of the client and scheduler, over passes of few and of many partitions."""
    counts = [int(count * asked.scale) for count in (400, 4000)]
    rows = [
        {"partitions": n, "peak MB": fresh(remembering, partitions=n).peak / 1e6} for n in counts
    ]
    show("Client and scheduler, one process", rows)


PARTS = {"speed-up": speed_up, "many-chunks": many_chunks, "memory": memory}


def main() -> None:
    asked = arguments(__doc__, features=2000, part="all")
    for name, part in PARTS.items():
        if asked.part in ("all", name):
            part(asked)


if __name__ == "__main__":
    main()

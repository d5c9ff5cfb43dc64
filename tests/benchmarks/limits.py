"""What the benchmarks share: fresh processes side by side, the machine's limits, one table."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from stores import FOLDER
from threadpoolctl import threadpool_info

HERE = Path(__file__).resolve().parent
POLL_SECONDS = 0.02
CHILD = "import sys; sys.path.insert(0, sys.argv[1]); import limits; limits.child(*sys.argv[2:])"


# Fresh processes


@dataclass(frozen=True)
class Finished:
    """A process that has ended.

    Attributes
    ----------
    wall : seconds from its start to its end, interpreter and imports included.
    peak : its peak resident bytes.
    result : what it printed last, if one JSON object; also by ``run[key]``.
    failure : why it failed, in one line; empty where it did not.
    """

    wall: float
    peak: int
    result: dict[str, Any]
    failure: str = ""

    def __getitem__(self, key: str) -> Any:
        return self.result[key]


class Runs(list[Finished]):
    """The repeats of one process."""

    def median(self, *keys: str) -> float:
        """The median of a number in their results; of their wall time without keys."""

        def number(run: Finished) -> float:
            found: Any = run.result if keys else run.wall
            for key in keys:
                found = found[key]
            return float(found)

        return statistics.median(map(number, self))

    @property
    def peak(self) -> float:
        """The highest peak, in GB."""
        return max(run.peak for run in self) / 1e9


def side_by_side(repeats: int, tasks: Mapping[str, Callable[[], Finished]]) -> dict[str, Runs]:
    """Run several processes by turns, so that all meet the machine as it is at the time.

    One that may fail, and has, is not run again.
    """
    runs = {name: Runs() for name in tasks}
    for _ in range(repeats):
        for name, task in tasks.items():
            if not (runs[name] and runs[name][-1].failure):
                runs[name].append(task())
    return runs


def over_repeats(runs: Mapping[str, Runs], number: Callable[[dict[str, Finished]], float]) -> float:
    """The median over repeats of a number of one repeat's processes, such as a ratio."""
    rounds = zip(*runs.values(), strict=True)
    return statistics.median(number(dict(zip(runs, each, strict=True))) for each in rounds)


def run_process(
    command: Sequence[str],
    *,
    memory_limit: int | None = None,
    time_limit: float | None = None,
) -> Finished:
    """Run a command whose last line on stdout is JSON; end it at its limits.

    The peak is VmHWM of /proc, polled: ``ru_maxrss`` would include this process's own.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err)
        peak, failure = 0, ""
        while process.poll() is None:
            peak = max(peak, peak_bytes(process.pid))
            if memory_limit and peak > memory_limit:
                failure = f"over {memory_limit / 1e9:g} GB of memory"
            if time_limit and time.perf_counter() - began > time_limit:
                failure = f"over {time_limit:g} s"
            if failure:
                process.kill()
                process.wait()
                break
            time.sleep(POLL_SECONDS)
        wall = time.perf_counter() - began
        out.seek(0)
        err.seek(0)
        printed, complaints = out.read().strip(), err.read().strip()
    if not failure and process.returncode != 0:
        failure = (complaints or printed or f"exit {process.returncode}").splitlines()[-1]
    last = printed if printed.startswith("{") else printed.rpartition("\n")[2]
    result = json.loads(last) if last.startswith("{") and not failure else {}
    return Finished(wall, max(peak, result.get("peak_rss_bytes", 0)), result, failure)


def fresh(
    task: Callable[..., dict[str, Any]],
    /,
    *,
    memory_limit: int | None = None,
    time_limit: float | None = None,
    may_fail: bool = False,
    **arguments: Any,
) -> Finished:
    """Run ``task(**arguments)`` of one of these scripts in a process of its own.

    Ends this process, too, where that one fails, unless ``may_fail``.
    """
    module = Path(sys.modules[task.__module__].__file__ or "").stem
    sent = json.dumps(arguments, default=str)
    command = [sys.executable, "-c", CHILD, str(HERE), module, task.__name__, sent]
    done = run_process(command, memory_limit=memory_limit, time_limit=time_limit)
    if done.failure and not may_fail:
        raise SystemExit(f"{module}.{task.__name__}({sent}) failed: {done.failure}")
    return done


def child(module: str, task: str, arguments: str) -> None:
    """The other end of :func:`fresh`, with memory handed out as the command line has it."""
    from kmufs_stream.system.allocator import share_one_heap

    share_one_heap()
    work = getattr(import_module(module), task)
    result = work(**json.loads(arguments))
    print(json.dumps({"peak_rss_bytes": peak_bytes("self"), **result}))


class Work:
    """Wall and CPU seconds of what stands within it, and the bytes that it reads.

    CPU seconds, of all threads, say more than wall time where the machine is shared.
    """

    def __enter__(self) -> Work:
        self.read_bytes, self.cpu, self.seconds = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        now = self._now()
        self.read_bytes = now[0] - self.read_bytes
        self.cpu, self.seconds = now[1] - self.cpu, now[2] - self.seconds

    @staticmethod
    def _now() -> tuple[int, float, float]:
        counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        return int(counters["rchar"]), time.process_time(), time.perf_counter()


def command_line(*words: object) -> Finished:
    """``kmufs-stream`` with these words, as a user would run it."""
    done = run_process([sys.executable, "-m", "kmufs_stream_cli", *map(str, words)])
    if done.failure:
        raise SystemExit(f"kmufs-stream {words[0]} failed: {done.failure}")
    return done


def peak_bytes(pid: int | str) -> int:
    """Peak resident bytes of a process so far; 0 once it has gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    peaks = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(peaks[0]) * 1024 if peaks else 0


# The machine's limits


def planned(store: str, options: dict[str, Any]) -> tuple[Any, Any]:
    """The matrix, and what `select` would run under options of ``plan_selection``."""
    from kmufs_stream import open_matrix, plan_selection

    matrix = open_matrix(store)
    return matrix, plan_selection(matrix, **options)


def reading(store: str, options: dict[str, Any]) -> dict[str, Any]:
    """Reading alone: the plan's blocks in the plan's partitions on the plan's threads."""
    matrix, plan = planned(store, options)

    def read(partition: range) -> None:
        for start in partition:
            matrix.rows.read(start, min(start + partition.step, partition.stop))

    with Work() as work, ThreadPoolExecutor(plan.threads) as pool:
        list(pool.map(read, plan.partitions))
    decoded = matrix.shape[0] * matrix.shape[1] * matrix.dtype.itemsize
    return {**vars(work), "rate": decoded / work.seconds / 1e9, "threads": plan.threads}


def syrk(store: str, options: dict[str, Any]) -> dict[str, Any]:
    """The products of the plan's blocks alone, b.T @ b, one BLAS thread per block task."""
    from kmufs_stream.system import blas

    matrix, plan = planned(store, options)
    n, p = matrix.shape
    rows = min(plan.block_rows, n)
    rng = np.random.default_rng(0)
    blocks = [rng.standard_normal((rows, p), dtype=np.float32) for _ in range(plan.threads)]
    starts = list(chain.from_iterable(plan.partitions))

    def multiply(thread: int) -> None:
        for start in starts[thread :: plan.threads]:
            block = blocks[thread][: min(plan.block_rows, n - start)]
            block.T @ block

    with blas.one_thread(), Work() as work, ThreadPoolExecutor(plan.threads) as pool:
        list(pool.map(multiply, range(plan.threads)))
    return {**vars(work), "rate": n * p * (p + 1) / work.seconds / 1e9}


def factor(store: str, options: dict[str, Any]) -> dict[str, Any]:
    """The factor stage: probe, pass ("pass") and everything else ("eigen")."""
    from kmufs_stream import select

    with Work() as work:
        seconds = select(store, **options, solver="exact").seconds
    return {
        "cpu": work.cpu,
        "seconds": seconds.read + seconds.factor,
        "pass": seconds.read,
        "eigen": seconds.factor,
    }


def machine_limits(store: Path, options: dict[str, Any]) -> dict[str, Callable[[], Finished]]:
    """Reading alone and the products alone, to run side by side with what is measured."""
    sent: dict[str, Any] = {"store": store, "options": options}
    return {"read": partial(fresh, reading, **sent), "syrk": partial(fresh, syrk, **sent)}


def speed(runs: Mapping[str, Runs]) -> str:
    """These limits in words."""
    read, products = (runs[name].median("rate") for name in ("read", "syrk"))
    return f"read {read:.2f} GB/s, BLAS {products:.0f} GF/s"


# Options and tables


def arguments(
    description: str | None, *, rows: int | None = None, features: int | None = None, **more: Any
) -> argparse.Namespace:
    """Options that all benchmarks have, ``--rows`` and ``--features`` where there are defaults."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the stores are made")
    parser.add_argument("--repeats", type=int, default=3, help="medians of so many runs")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the rows")
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--h", type=int, default=100)
    more = {"rows": rows, "features": features} | more
    for name, default in more.items():
        if default is not None:
            parser.add_argument(f"--{name}", type=type(default), default=default)
    asked = parser.parse_args()
    if rows is not None:
        asked.rows = max(int(asked.rows * asked.scale), 2)
    return asked


def show(title: str, rows: Sequence[Mapping[str, object]]) -> None:
    """One table in plain text."""
    table = pd.DataFrame(rows).to_string(index=False, float_format=_three_digits)
    print(f"\n{title}\n{table}", flush=True)


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def machine(*packages: str) -> str:
    """Cores, the kernels that BLAS runs, and versions."""
    kernels = {str(lib.get("architecture")) for lib in threadpool_info() if "architecture" in lib}
    versions = [f"{name} {_version(name)}" for name in ("numpy", "zarr", "dask", *packages)]
    return f"{os.cpu_count()} cores, BLAS kernel {'/'.join(sorted(kernels))}, " + ", ".join(
        versions
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"

"""Rows and kernels that workers can import; some break them on purpose."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from zarr.storage import LocalStore, WrapperStore

from kmufs_stream.sources import Rows

LOST = "/c/1/0"


@dataclass(frozen=True)
class Killing:
    """Rows whose reading kills the worker, at each of some rows so many times."""

    rows: Rows
    folder: Path
    at: tuple[int, ...]
    times: int = 1

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        if start in self.at:
            for attempt in range(self.times):
                try:
                    (self.folder / f"{start}-{attempt}").touch(exist_ok=False)
                except FileExistsError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)
        return self.rows.read(start, stop)

    def take(self, start: int, stop: int, columns: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        return self.rows.take(start, stop, columns)


class Whole:
    """Rows of an array in memory, dense or sparse."""

    def __init__(self, X: Any) -> None:
        self.X = X

    def read(self, start: int, stop: int) -> Any:
        return self.X[start:stop]

    def take(self, start: int, stop: int, columns: Any) -> Any:
        raise NotImplementedError


class Numbers(Whole):
    """Rows whose one feature is their number."""

    def __init__(self) -> None:
        super().__init__(np.arange(10_000)[:, None])


class Slow(Whole):
    """Rows that come slowly, each block noted in a folder."""

    def read(self, start: int, stop: int) -> Any:
        (self.X / str(start)).touch()
        time.sleep(0.02)
        return np.zeros((stop - start, 1))


class Losing(WrapperStore[LocalStore]):
    """A store that takes some chunks and keeps them nowhere."""

    async def set(self, key: str, value: Any) -> None:
        if not key.endswith(LOST):
            await super().set(key, value)


class Alive:
    """A state that is counted as long as it lives in this process."""

    now = most = 0
    lock = threading.Lock()

    def __init__(self) -> None:
        with Alive.lock:
            Alive.now += 1
            Alive.most = max(Alive.most, Alive.now)

    def __del__(self) -> None:
        with Alive.lock:
            Alive.now -= 1

    def __add__(self, other: Alive) -> Alive:
        return Alive()


class Counting:
    """A kernel whose states are counted."""

    def init(self) -> Alive:
        return Alive()

    def update(self, state: Alive, values: Any, start: int) -> Alive:
        time.sleep(random.random() / 500)
        return state


def cut(n: int, block: int = 1, per_partition: int = 1) -> list[range]:
    """Partitions of n rows, each of so many blocks."""
    step = block * per_partition
    return [range(a, min(a + step, n), block) for a in range(0, n, step)]

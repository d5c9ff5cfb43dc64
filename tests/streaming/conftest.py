"""Clusters of this machine, each started once for all tests that leave it as it is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import dask
import distributed
import pytest

GB = 10**9


@pytest.fixture(scope="session")
def cluster_of(quick_workers: None) -> Callable[..., Any]:
    """Start so many workers, by default as threads of this process."""

    def start(
        workers: int, threads: int = 1, memory: int = 2 * GB, processes: bool = False
    ) -> distributed.LocalCluster:
        # What this process holds is not a worker's: Dask would pause it, or have it spill.
        limits = ("target", "spill", "pause", "terminate")
        unwatched = (
            {} if processes else {f"distributed.worker.memory.{name}": False for name in limits}
        )
        with dask.config.set(unwatched):
            return distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=threads,
                memory_limit=memory,
                processes=processes,
                host="127.0.0.1" if processes else None,
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            )

    return start


@pytest.fixture(scope="session")
def six_threads(cluster_of: Callable[..., Any]) -> Iterator[Any]:
    """A cluster of six workers of this process."""
    with cluster_of(6) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def two_processes(cluster_of: Callable[..., Any]) -> Iterator[Any]:
    with cluster_of(2, processes=True) as cluster:
        yield cluster


@pytest.fixture
def client(two_processes: Any) -> Iterator[Any]:
    """Two worker processes of one thread each, active."""
    with distributed.Client(two_processes) as client:
        client.wait_for_workers(2, timeout=60)
        yield client

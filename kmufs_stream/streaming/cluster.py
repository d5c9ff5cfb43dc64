"""Dask clusters: find the one active in Python, or open the one that options ask for.

A cluster must run the versions that this process runs: else bits differ, or tasks never end.
"""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import sys
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from kmufs_stream.errors import BrokenError, RequestError, Text, counted, missing_library
from kmufs_stream.streaming.planning.plan import memory_budget
from kmufs_stream.streaming.planning.sizing import MB, WORKER_BASELINE, WORKER_SHARE, ClusterSize
from kmufs_stream.system.allocator import ONE_HEAP
from kmufs_stream.system.blas import usable_cores
from kmufs_stream.system.memory import size

if TYPE_CHECKING:
    import distributed

Versions: TypeAlias = Mapping[str, str | None]

PACKAGES = ("numpy", "scipy", "zarr", "dask", "distributed", "kmufs_stream")
PATIENCE = 60  # seconds for a first worker to come
NO_WORKERS_HINT = "Start workers (dask worker ADDRESS; cluster.scale(n) in Python), then rerun."


def active_client() -> distributed.Client | None:
    """Return the Dask client that is active in this process, if any."""
    if "distributed" not in sys.modules:
        return None  # nobody can have started one
    import distributed

    try:
        client: distributed.Client = distributed.Client.current()
    except ValueError:
        return None
    return client


def cluster_size(client: distributed.Client) -> ClusterSize:
    """Ask a cluster for its current workers, threads and memory limits.

    Raises RequestError if no worker comes in a minute, or a node runs other versions than we do.
    """
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError:
        raise RequestError(
            "no_workers",
            f"The cluster has had no worker for {PATIENCE} seconds.",
            NO_WORKERS_HINT,
        ) from None
    check_cluster(client)
    workers = client.scheduler_info(n_workers=-1)["workers"].values()  # some versions list only 5
    limits = [w["memory_limit"] for w in workers if w["memory_limit"]]
    return ClusterSize(
        workers=len(workers),
        threads=max(w["nthreads"] for w in workers),
        memory=min(limits, default=None),
    )


def own_versions() -> Versions:
    """Return the versions in this process; None for packages that are not installed."""
    from distributed.versions import get_versions

    found: Versions = get_versions(PACKAGES)["packages"]
    return found


def check_cluster(client: distributed.Client) -> set[str]:
    """Compare the versions of the scheduler and of all workers with those of this process.

    Tasks of another Python, or of another release of Dask, may never end; another NumPy or SciPy
    gives other bits. ``Client.get_versions(check=True)`` only warns, and of patch releases too.

    Returns the addresses of the workers that answered. Raises RequestError for one that differs.
    """
    found = client.get_versions(packages=PACKAGES)
    nodes = {"scheduler": found["scheduler"]}
    nodes |= {f"worker {address}": said for address, said in found["workers"].items()}
    for node, said in nodes.items():
        compare(node, said["packages"], found["client"]["packages"])
    return set(found["workers"])


def compare(node: str, there: Versions, here: Versions) -> None:
    """Raise RequestError where a node's versions differ from the client's.

    Patch releases may differ, but for kmufs-stream's own.
    """
    for name in ("python", *PACKAGES):
        ours, theirs = here[name], there[name]
        # A package that is not installed here, such as this one in a source tree, is not compared.
        if ours is not None and _release(name, theirs) != _release(name, ours):
            raise RequestError(
                "other_versions",
                f"The cluster's {node} has {name} {theirs or '(none)'}; here it is {ours}.",
                "Start its scheduler and all workers in the environment of this process.",
            )


def _release(name: str, version: str | None) -> str | None:
    """Return the part of a version that has to agree."""
    if version is None or name == "kmufs_stream":
        return version
    return ".".join(version.split(".")[:2])


def check_memory(client: distributed.Client, addresses: Set[str], needed: int) -> None:
    """Raise RequestError for a worker with too little memory, which Dask would kill."""
    found = client.scheduler_info(n_workers=-1)["workers"]
    for address in sorted(addresses & found.keys()):
        limit = found[address]["memory_limit"]
        if limit and needed > WORKER_SHARE * limit:
            raise RequestError(
                "does_not_fit",
                f"The cluster's worker {address} has {size(limit)} of memory; the run was planned "
                f"for workers of {size(int(needed / WORKER_SHARE))} or more.",
                "Stop it, or start it with as much as the others.",
            )


@contextlib.contextmanager
def connected(
    scheduler: str | None, workers: int | None, *, threads: int | None, memory: str | None
) -> Iterator[str | int | None]:
    """Make a Dask cluster active: that of a scheduler, or local workers; with neither, none.

    A context manager, within which :func:`kmufs_stream.select` and others read by the cluster.

    Parameters
    ----------
    scheduler : str or None
        Its address, or the path of its scheduler file.
    workers : int or None
        Number of processes to start on this machine, on loopback only.
    threads : int or None
        Of each process; by default the cores are divided among them.
    memory : str or None
        Budget, divided equally among local workers and this process.

    Returns
    -------
    context manager
        Yields the budget of this process, to be given as ``memory``; None for the default.

    Raises
    ------
    RequestError
        Without the ``cluster`` extra, for options that contradict each other, and for local workers
        too small to start.
    BrokenError
        The scheduler does not answer.
    """
    if scheduler is None and workers is None:
        yield memory
        return
    if scheduler is not None and workers is not None:
        raise RequestError(
            "bad_option",
            Text("{scheduler} and {workers} are both given."),
            Text("{workers} starts processes here; a scheduler has workers of its own."),
        )
    if workers is not None and workers < 1:
        raise RequestError("bad_option", Text("{workers} is {}.", workers), "It must be 1 or more.")
    try:
        import dask
        import distributed
    except ImportError:
        raise missing_library("A Dask cluster", "distributed") from None
    for name in ("distributed", "distributed.client"):  # each has a level of its own
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters is raised
    if workers is None:
        with _client_of(scheduler or ""):
            yield memory
        return
    budget = memory_budget(memory)
    share = budget // (workers + 1)
    least = int(WORKER_BASELINE / WORKER_SHARE)
    if share < least:
        enough = -(-least * (workers + 1) // MB)
        raise RequestError(
            "does_not_fit",
            f"{counted(workers, 'workers')} and this process share {size(budget)} of memory, but "
            f"each needs {size(least)}.",
            Text("Give {memory} or more, or start fewer workers.", memory=f"{enough}MB"),
        )
    threads = threads or max(usable_cores() // workers, 1)
    heap = {f"distributed.nanny.pre-spawn-environ.{name}": ONE_HEAP[name] for name in ONE_HEAP}
    with (
        dask.config.set(heap),
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            memory_limit=share,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
            # Otherwise zarr would decode on every core in each of them.
            env={"ZARR_THREADING__MAX_WORKERS": str(threads)},
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.run(_ignore_interrupts)  # Ctrl-C reaches workers too; this process ends them
        yield None if memory is None else share


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _client_of(scheduler: str) -> distributed.Client:
    import distributed
    from distributed.comm import get_address_host_port

    try:
        file = Path(scheduler)
        address = json.loads(file.read_bytes())["address"] if file.is_file() else scheduler
        get_address_host_port(address)  # raises here; a failing Client leaves threads behind
        return distributed.Client(address)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrokenError(
            "no_scheduler",
            f"The scheduler {scheduler} does not answer: {type(error).__name__}: {error}.",
            "Give the address that dask scheduler prints, such as tcp://host:8786, or the path "
            "of its --scheduler-file.",
        ) from error

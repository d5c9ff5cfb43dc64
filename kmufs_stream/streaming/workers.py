"""Run the tasks of a pass, on threads of this process or on the workers of a Dask cluster."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias

from kmufs_stream.errors import BrokenError
from kmufs_stream.streaming.cluster import (
    NO_WORKERS_HINT,
    Versions,
    check_cluster,
    check_memory,
    compare,
    own_versions,
)
from kmufs_stream.streaming.planning.sizing import PARTITIONS_PER_TASK
from kmufs_stream.system import blas

if TYPE_CHECKING:
    import distributed

NOT_UNDERSTOOD = "Error during deserialization"  # from a scheduler without this package
RECOUNTED_AFTER = 2.0  # seconds, since workers come and go
DESERTED_AFTER = 300.0  # seconds without any worker: a queue may have to start them again


@contextlib.contextmanager
def open_workers(
    threads: int, client: distributed.Client | None, *, worker_bytes: int = 0
) -> Iterator[Workers]:
    """Open threads of this process, or a client's cluster; tasks left at the end are cancelled.

    ``worker_bytes`` is the memory that each worker of a cluster needs.
    """
    with blas.one_thread():  # workers of a cluster may be threads of this process too
        workers = Threads(threads) if client is None else Cluster(client, worker_bytes)
        with contextlib.closing(workers):
            yield workers


class Threads:
    """Threads of this process.

    Attributes
    ----------
    lossy : whether results may be lost, and are then computed again.
    partitions_per_task : neighbouring partitions that one task may fold, so that few states travel.
    slots : number of tasks that keep all threads busy.
    stopped : for tasks to call now and then: whether nobody wants their result any more.
    """

    lossy = False
    partitions_per_task = 1

    def __init__(self, threads: int) -> None:
        self.slots = threads
        self._pool = ThreadPoolExecutor(threads)
        self._stop = threading.Event()
        self._done: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        self.stopped = self._stop.is_set

    def close(self) -> None:
        """End the tasks that still run."""
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)

    def share(self, value: Any) -> Any:
        """Return a stand-in for an argument of many tasks, sent to each worker once."""
        return value

    def submit(
        self, task: Callable[..., Any], *arguments: Any, urgent: bool = False
    ) -> Future[Any]:
        """Start a task and return its future; futures among the arguments must be done."""
        given = [a.result() if isinstance(a, Future) else a for a in arguments]
        future = self._pool.submit(task, *given)
        future.add_done_callback(self._done.put)
        return future

    def wait(self) -> Future[Any]:
        """Return the next future that is done."""
        return self._done.get()

    def check(self, future: Future[Any], what: str) -> None:
        """Raise the error of a failed task; ``what`` says what it was doing."""
        future.result()

    def result(self, future: Future[Any]) -> Any:
        """Fetch the result of a task that is done."""
        return future.result()


class Cluster:
    """The workers of a Dask cluster; only states travel between them. Used as :class:`Threads`."""

    lossy = True
    partitions_per_task = PARTITIONS_PER_TASK

    def __init__(self, client: distributed.Client, worker_bytes: int) -> None:
        self._client, self._worker_bytes = client, worker_bytes
        self._running: dict[distributed.Future, None] = {}  # in the order of submission
        self._done: queue.SimpleQueue[distributed.Future] = queue.SimpleQueue()
        self._slots, self._counted = 0, -RECOUNTED_AFTER
        self._versions = own_versions()
        self._checked: set[str] = set()  # workers whose versions agree
        self._deserted: float | None = None  # since when
        self._fetching = ThreadPoolExecutor(1)
        self.stopped = _unwanted

    def close(self) -> None:
        if self._client.status == "running" and self._running:
            self._client.cancel(list(self._running))
        self._fetching.shutdown()

    @property
    def slots(self) -> int:
        """A running and a waiting task per thread, so that none idles while results travel."""
        if time.monotonic() - self._counted >= RECOUNTED_AFTER:
            self._recount()
        return self._slots

    def _recount(self) -> None:
        """Count the threads, and check the versions and the memory of new workers.

        Raises BrokenError if there has been no worker for long, RequestError if one runs other
        versions or has less memory than was planned with.
        """
        try:
            workers = self._client.nthreads()
            if late := workers.keys() - self._checked:
                check_memory(self._client, late, self._worker_bytes)
                self._checked |= check_cluster(self._client)
        except OSError as error:
            raise _lost("counting its workers") from error
        threads = sum(workers.values())
        self._slots = 2 * max(threads, 1)
        self._counted = time.monotonic()
        if threads:
            self._deserted = None
        elif self._deserted is None:
            self._deserted = self._counted
        elif self._counted - self._deserted >= DESERTED_AFTER:
            raise BrokenError(
                "no_workers",
                f"All workers of the cluster are gone; for {DESERTED_AFTER:.0f} seconds none has "
                "come.",
                NO_WORKERS_HINT,
            )

    def _attended(self, get: Callable[..., Any]) -> Any:
        """Return what ``get(timeout=...)`` returns in the end; recount the workers meanwhile."""
        while True:
            try:
                return get(timeout=RECOUNTED_AFTER)
            except (queue.Empty, TimeoutError):
                self._recount()

    def share(self, value: Any) -> Any:
        import dask

        # Unlike scattered data, a task's result outlives every worker that holds it.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            future = self._client.submit(_same, value, key=f"shared-{uuid.uuid4()}")
        # Dependents of a failed task are reported only as cancelled, so wait for this one.
        self._attended(future.exception)
        self.check(future, "sending what all tasks need")
        return future

    def submit(
        self, task: Callable[..., Any], *arguments: Any, urgent: bool = False
    ) -> distributed.Future:
        name = task.__name__.strip("_")
        future: distributed.Future = self._client.submit(
            _run_there,
            self._versions,
            task,
            *arguments,
            key=f"{name}-{uuid.uuid4()}",
            priority=int(urgent),
        )
        self._running[future] = None
        future.add_done_callback(self._done.put)
        return future

    def wait(self) -> distributed.Future:
        future: distributed.Future = self._attended(self._done.get)
        if future.status == "error":
            # Tasks that waited at a worker are said to have died with the one that killed it.
            future = next((other for other in self._running if other.status == "error"), future)
        self._running.pop(future, None)
        return future

    def check(self, future: distributed.Future, what: str) -> None:
        import distributed

        if future.status == "error":
            error = future.exception()
            if isinstance(error, ImportError) or NOT_UNDERSTOOD in str(error):
                self._recount()  # names a worker that runs other versions
                raise BrokenError(
                    "other_environment",
                    f"The cluster does not understand what it is sent ({error}).",
                    "Install kmufs-stream, and what the data need, in the same versions as here "
                    "on its scheduler and on all workers.",
                ) from error
            if not isinstance(error, distributed.KilledWorker):
                raise error
            raise BrokenError(
                "worker_died",
                f"{error.allowed_failures + 1} workers have died while {what} "
                f"(the last was {error.last_worker.address}).",
                "Look into the workers' logs: too little memory is the usual reason; give each "
                "worker more, or fewer threads.",
            )
        if future.status == "cancelled":
            raise _lost(what)
        # Its result may already be lost with a worker: then Dask computes it again on demand.

    def result(self, future: distributed.Future) -> Any:
        self._running[future] = None  # its worker may be lost before the result is here
        fetched = self._fetching.submit(future.result)
        self._attended(fetched.exception)
        self._running.pop(future)
        return fetched.result()


Workers: TypeAlias = Threads | Cluster


def _lost(what: str) -> BrokenError:
    return BrokenError(
        "cluster_lost",
        f"The cluster was lost while {what}: its scheduler does not answer any more.",
        "Start the cluster again, then rerun.",
    )


def _same(value: Any) -> Any:
    return value


def _run_there(versions: Versions, task: Callable[..., Any], *arguments: Any) -> Any:
    """On a worker, whose versions the client may not have checked yet."""
    import distributed

    compare(f"worker {distributed.get_worker().address}", own_versions(), versions)
    with blas.one_thread():
        return task(*arguments)


def _unwanted() -> bool:
    """On a worker: whether the client has cancelled the current task."""
    import distributed

    worker = distributed.get_worker()
    task = worker.state.tasks.get(worker.get_current_task())
    return task is None or task.state == "cancelled"

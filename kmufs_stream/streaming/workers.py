"""Where the tasks of a pass run: on threads of this process, or on the workers of a cluster."""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import dask

from kmufs_stream.errors import BrokenError
from kmufs_stream.streaming.cluster import check_memory
from kmufs_stream.streaming.planning.sizing import RUN
from kmufs_stream.streaming.versions import Versions, agree, check_workers, running
from kmufs_stream.system import blas

if TYPE_CHECKING:
    import distributed

NOT_UNDERSTOOD = "Error during deserialization"  # what Dask says of a scheduler without us
RECOUNTED_AFTER = 2.0  # seconds, since workers come and go
DESERTED_AFTER = 300.0  # seconds without any worker: a queue may have to start them again
SPENT = "kmufs-stream-spent"  # Dask's topic of what tasks tell


class Spent(NamedTuple):
    """Seconds that tasks took: to read and decode, and in all."""

    reading: float
    working: float


def sum_of(spent: Iterable[Spent]) -> Spent:
    """What several tasks took together."""
    each = list(spent)
    return Spent(sum(s.reading for s in each), sum(s.working for s in each))


class Workers(Protocol):
    """Runs tasks, each with one BLAS thread. A context: leaving it early ends what still runs."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    @property
    def slots(self) -> int:
        """Tasks that keep everybody busy."""

    @property
    def run(self) -> int:
        """Neighbouring partitions that one task may fold: merged there, their states stay."""

    @property
    def stopped(self) -> Callable[[], bool]:
        """For tasks to call now and then: whether nobody wants their result any more."""

    @property
    def lossy(self) -> bool:
        """Whether results may be lost, and are then computed anew."""

    @property
    def tell(self) -> Callable[[Spent], None]:
        """For tasks to tell what they took."""

    def told(self) -> Spent:
        """What tasks have told since this was last asked, added up: for display alone."""

    def share(self, value: Any) -> Any:
        """A stand-in for a constant argument of many tasks, sent to each worker once."""

    def submit(self, task: Callable[..., Any], *arguments: Any, urgent: bool = False) -> Any:
        """Start a task and return its future; futures among the arguments have to be done."""

    def wait(self) -> Any:
        """The next future that is done."""

    def check(self, future: Any, what: str) -> None:
        """Raise what a task failed with; ``what`` says what it was doing."""

    def result(self, future: Any) -> Any:
        """What a task that is done has made, brought here."""


def open_workers(
    threads: int, client: distributed.Client | None, *, worker_bytes: int = 0
) -> Workers:
    """Threads of this process, or the cluster of a client, whose workers need so much memory."""
    return Threads(threads) if client is None else Cluster(client, worker_bytes)


class _Listener:
    """What hears from tasks what they took."""

    def __init__(self) -> None:
        self._spent: queue.SimpleQueue[Spent] = queue.SimpleQueue()

    def told(self) -> Spent:
        return sum_of(self._spent.get() for _ in range(self._spent.qsize()))


class Threads(_Listener):
    """Threads of this process; see Workers."""

    lossy = False
    run = 1

    def __init__(self, threads: int) -> None:
        super().__init__()
        self.slots = threads
        self._pool = ThreadPoolExecutor(threads)
        self._stop = threading.Event()
        self._done: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        self._limit = blas.one_thread()
        self.stopped, self.tell = self._stop.is_set, self._spent.put

    def __enter__(self) -> Self:
        self._limit.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)
        self._limit.__exit__(None, None, None)

    def share(self, value: Any) -> Any:
        return value

    def submit(
        self, task: Callable[..., Any], *arguments: Any, urgent: bool = False
    ) -> Future[Any]:
        future = self._pool.submit(_run_here, task, arguments)
        future.add_done_callback(self._done.put)
        return future

    def wait(self) -> Future[Any]:
        return self._done.get()

    def check(self, future: Future[Any], what: str) -> None:
        error = future.exception()
        if error is not None:
            raise error

    def result(self, future: Future[Any]) -> Any:
        return future.result()


def _run_here(task: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return task(*(a.result() if isinstance(a, Future) else a for a in arguments))


class Cluster(_Listener):
    """The workers of a Dask cluster; see Workers. Only states travel between them."""

    lossy = True
    run = RUN

    def __init__(self, client: distributed.Client, worker_bytes: int) -> None:
        super().__init__()
        self._client, self._worker_bytes = client, worker_bytes
        self._running: dict[distributed.Future, None] = {}  # in the order of submission
        self._done: queue.SimpleQueue[distributed.Future] = queue.SimpleQueue()
        self._slots, self._counted = 0, -RECOUNTED_AFTER
        self._versions = running()
        self._agreeing: set[str] = set()  # workers that were asked what they run
        self._deserted: float | None = None  # since when
        self._fetching = ThreadPoolExecutor(1)
        self._limit = blas.one_thread()
        self._name = str(uuid.uuid4())
        self.stopped, self.tell = _unwanted, partial(_tell, self._name)

    def __enter__(self) -> Self:
        self._limit.__enter__()  # workers may be threads of this process
        self._client.subscribe_topic(SPENT, self._hear)
        return self

    def __exit__(self, *error: object) -> None:
        if self._client.status == "running":
            self._client.unsubscribe_topic(SPENT)
            if self._running:
                self._client.cancel(list(self._running))
        self._fetching.shutdown()
        self._limit.__exit__(None, None, None)

    def _hear(self, event: tuple[float, tuple[str, float, float]]) -> None:
        _, (name, reading, working) = event
        if name == self._name:  # the topic is everybody's, so that a scheduler keeps few of them
            self._spent.put(Spent(reading, working))

    @property
    def slots(self) -> int:
        """A task under way and one that waits, per thread: nobody idles while results travel."""
        if time.monotonic() - self._counted >= RECOUNTED_AFTER:
            self._recount()
        return self._slots

    def _recount(self) -> None:
        """Count the threads anew, and ask newcomers what they run and hold.

        Raises BrokenError if there has been none for long, RequestError if one runs other versions
        or has less memory than was planned with.
        """
        try:
            workers = self._client.nthreads()
            if late := workers.keys() - self._agreeing:
                check_memory(self._client, late, self._worker_bytes)
                self._agreeing |= check_workers(self._client, late)
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
                "Start workers (dask worker ADDRESS; cluster.scale(n) in Python), then rerun.",
            )

    def _attended(self, get: Callable[..., Any]) -> Any:
        """What ``get``, which takes a timeout, returns in the end: as long as there are workers."""
        while True:
            try:
                return get(timeout=RECOUNTED_AFTER)
            except (queue.Empty, TimeoutError):
                self._recount()

    def share(self, value: Any) -> Any:
        # Unlike scattered data, a task's result outlives every worker that holds it.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            future = self._client.submit(_same, value, key=f"shared-{uuid.uuid4()}")
        # Waits: what needs a task that has failed is only told to be cancelled.
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
            # Tasks that waited at a worker are told to have died with the one that killed it.
            future = next((other for other in self._running if other.status == "error"), future)
        self._running.pop(future, None)
        return future

    def check(self, future: distributed.Future, what: str) -> None:
        import distributed

        if future.status == "error":
            error = future.exception()
            if isinstance(error, ImportError) or NOT_UNDERSTOOD in str(error):
                self._recount()  # names the worker where it runs other versions
                raise BrokenError(
                    "other_environment",
                    f"The cluster does not understand what it is sent ({error}).",
                    "Install kmufs-stream, and what the data take, in the same versions as here "
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
        # Or its result may be lost with a worker by now: whoever needs it has it made again.

    def result(self, future: distributed.Future) -> Any:
        self._running[future] = None  # its worker may be lost before it is here
        fetched = self._fetching.submit(future.result)
        self._attended(fetched.exception)
        self._running.pop(future)
        return fetched.result()


def _lost(what: str) -> BrokenError:
    return BrokenError(
        "cluster_lost",
        f"The cluster was lost while {what}: its scheduler does not answer any more.",
        "Start the cluster again, then rerun.",
    )


def _same(value: Any) -> Any:
    return value


def _run_there(versions: Versions, task: Callable[..., Any], *arguments: Any) -> Any:
    """On a worker, which may have come and not been asked yet what it runs."""
    import distributed

    agree(f"worker {distributed.get_worker().address}", running(), versions)
    with blas.one_thread():
        return task(*arguments)


def _tell(name: str, spent: Spent) -> None:
    """On a worker: tell the client that listens for this name."""
    import distributed

    distributed.get_worker().log_event(SPENT, (name, *spent))


def _unwanted() -> bool:
    """On a worker: whether the client has cancelled the task that asks."""
    import distributed

    worker = distributed.get_worker()
    task = worker.state.tasks.get(worker.get_current_task())
    return task is None or task.state == "cancelled"

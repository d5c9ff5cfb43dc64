"""Number of BLAS threads, fixed for each stage so that results do not depend on options."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import lru_cache

from threadpoolctl import ThreadpoolController

from kmufs_stream.system.control_groups import cpu_quota

FEW_MULTIPLICATIONS = 1e8  # measured: 2000 x 100 is as fast on one core, 2000 x 300 on two


def usable_cores() -> int:
    """Return the number of cores that this process may run on, or whose time it is given."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return math.ceil(min(cores or 1, cpu_quota()))


_lock = threading.Lock()
_callers = 0
_limit = ExitStack()


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one BLAS thread per caller, for tasks that run in parallel themselves.

    The limit is the process's, so it ends when the last caller leaves. Only the first thread that
    sets it can change it (threadpoolctl 3.8): set it before starting others.
    """
    global _callers
    with _lock:
        if _callers == 0:
            _limit.enter_context(_limited(1))
        _callers += 1
    try:
        yield
    finally:
        with _lock:
            _callers -= 1
            if _callers == 0:
                _limit.close()


def all_cores() -> AbstractContextManager[object]:
    """Use every core for the in-memory stage, whatever the number of block tasks.

    Another number changes the last bits of a product, and with them the path of the ADMM.
    """
    return _limited(usable_cores())


def cores_for(work: float) -> AbstractContextManager[object]:
    """Use all cores for products of ``work`` multiplications each, one core where these are few.

    Threads of small products wait longer for each other than they save, much longer where other
    programs use the cores. The number depends on the problem alone, as it must.
    """
    return one_thread() if work < FEW_MULTIPLICATIONS else all_cores()


def _limited(threads: int) -> AbstractContextManager[object]:
    limits: AbstractContextManager[object] = _libraries(len(sys.modules)).limit(limits=threads)
    return limits


@lru_cache(maxsize=1)
def _libraries(modules: int) -> ThreadpoolController:
    """Find the libraries with threads of their own, again once more modules are loaded."""
    return ThreadpoolController()

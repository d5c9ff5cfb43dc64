"""Processes that begin at once: forked from one that has imported everything, and not from us.

To start Python and to import the scientific stack costs more than most of what tests then do.
"""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import dask
import distributed  # noqa: F401
import s3fs  # noqa: F401
from helpers import environment

import kmufs_stream
import kmufs_stream_cli.app
import kmufs_stream_cli.live  # noqa: F401

for name in kmufs_stream.__all__:
    getattr(kmufs_stream, name)
gc.freeze()  # or its first collection would have each process copy all that is imported here

LIMIT = 120  # seconds that a test waits at most


@functools.cache
def forking() -> Any:
    """Multiprocessing's context, once the process that has imported this module is there."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with mock.patch.dict(os.environ, environment()):
        forkserver.ensure_running()
    return context


def until(holds: Callable[[], Any]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Begun:
    """A process in a session of its own that calls a function, which other processes can import.

    Of its three streams, what is None is kept for ``said``; of ``environs``, what is None goes.
    """

    def __init__(
        self,
        function: Callable[..., None],
        *arguments: Any,
        cwd: Path | None = None,
        streams: tuple[int | None, int | None, int | None] = (None, None, None),
        **environs: str | None,
    ) -> None:
        env = {k: v for k, v in (environment() | environs).items() if v is not None}
        self._streams = [_scratch() if s is None else Connection(os.dup(s)) for s in streams]
        self._process = forking().Process(
            target=_live, args=(self._streams, str(cwd or Path.cwd()), env, function, arguments)
        )
        self._process.start()
        self.pid: int = self._process.pid
        for given, stream in zip(streams, self._streams, strict=True):
            if given is not None:
                stream.close()

    @property
    def code(self) -> Any:
        """What it ended with: minus a signal's number, where that ended it; None before."""
        return self._process.exitcode

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def until(self, holds: Callable[[], Any]) -> None:
        """Wait until something holds, while it lives."""
        until(lambda: holds() or self.code is not None)
        assert self.code is None, self.said()

    def end(self) -> int:
        """Wait for its end, for which it may not let wait; what it ended with."""
        self._process.join(LIMIT)
        if self.code is None:
            self._process.kill()
            raise AssertionError(self.said())
        return self.code

    def said(self) -> tuple[str, str]:
        """Its stdout and stderr so far."""
        out, err = ("" if stream.closed else _content(stream) for stream in self._streams[1:])
        return out, err


def _scratch() -> Connection:
    """A file that has no name; a connection is what multiprocessing hands over."""
    with tempfile.TemporaryFile() as file:
        return Connection(os.dup(file.fileno()))


def _content(stream: Connection) -> str:
    file = stream.fileno()
    return os.pread(file, os.fstat(file).st_size, 0).decode()


def _live(
    streams: list[Connection],
    cwd: str,
    env: dict[str, str],
    function: Callable[..., None],
    arguments: tuple[Any, ...],
) -> None:
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
    encoding = env.get("PYTHONIOENCODING", "utf-8")
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w", encoding=encoding)
    sys.stderr = os.fdopen(2, "w", encoding=encoding, buffering=1)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    dask.config.refresh()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs of a shell may ignore it
    function(*arguments)

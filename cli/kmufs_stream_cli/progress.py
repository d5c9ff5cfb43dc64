"""What stderr shows while a command works: a live display, plain lines, or only what is noticed."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kmufs_stream.errors import RequestError
from kmufs_stream.events import SILENT, Progress, Started
from kmufs_stream_cli.notices import notices

if TYPE_CHECKING:
    from kmufs_stream import Matrix
    from kmufs_stream_cli.table import StoreOptions

READING = "kmufs_stream.storage"  # logs what had to be read again


@contextlib.contextmanager
def shown(*, log: bool, quiet: bool) -> Iterator[Progress]:
    """The progress that fits what was asked for and where stderr goes.

    Raises RequestError where both of ``log`` and ``quiet`` are.
    """
    if log and quiet:
        raise RequestError(
            "bad_option", "--log and --quiet are both given.", "Leave out one of them."
        )
    if quiet:
        yield SILENT
        return
    # psutil and rich.live, which --help need not wait for.
    from kmufs_stream_cli.log import lines
    from kmufs_stream_cli.tally import Tally

    tally = Tally()
    with _retries(tally.retried):
        if log:
            with lines(tally) as progress:
                yield progress
            return
        if sys.stderr.isatty():
            from rich.console import Console

            console = Console(stderr=True)
            if not console.is_dumb_terminal:
                from kmufs_stream_cli.live import live

                with live(console, tally) as progress:
                    yield progress
                return
        yield notices


def opened(table: StoreOptions, *, log: bool, quiet: bool, like: str | None = None) -> Matrix:
    """A table, and that it is being opened: of large and far stores that takes a while."""
    with shown(log=log, quiet=quiet) as progress:
        progress(Started("opening"))
        return table.open(like)


@contextlib.contextmanager
def _retries(retried: Callable[[], None]) -> Iterator[None]:
    """Have a function called whenever something is read again."""

    class Counter(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            retried()

    logger, handler = logging.getLogger(READING), Counter()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)

"""What stderr shows while a command works: a live display, plain lines, or only what is noticed."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator

from kmufs_stream.errors import RequestError
from kmufs_stream.progress import SILENT, Event, Noticed, Planned, Progress, Started
from kmufs_stream_cli.tally import Standing, Tally, duration

EVERY = 10.0  # seconds between lines of a log
READING = "kmufs_stream.sources"  # logs what had to be read again


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
    tally = Tally()
    with _retries(tally.retried):
        if log:
            with _lines(tally) as progress:
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
        yield _notices


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


def _notices(event: Event) -> None:
    """Nothing but what a user should know."""
    if isinstance(event, Noticed):
        say(event.text)
    elif isinstance(event, Planned) and event.dashboard:
        say(f"cluster dashboard: {event.dashboard}")


@contextlib.contextmanager
def _lines(tally: Tally) -> Iterator[Progress]:
    """A line when a stage begins, every so often while it lasts, and when it ends."""

    def progress(event: Event) -> None:
        _notices(event)
        ended = tally(event)
        if ended is not None:
            say(_ended(ended))
        if isinstance(event, Started):
            began = tally.standing()
            assert began is not None
            total = f"{event.total:,} {event.unit}" if event.total else ""
            say(": ".join(part for part in (began.title, total) if part))

    def tell() -> None:
        while not over.wait(EVERY):
            now = tally.standing()
            if now is not None:
                share = "" if now.share is None else f"{now.share:.0%}"
                left = "" if now.left is None else f"{duration(now.left)} left"
                parts = [now.amount, share, now.rate, left, *now.figures, *tally.resources()[0]]
                say(f"{now.title}: {', '.join(part for part in parts if part)}")

    over = threading.Event()
    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield progress
        last = tally.standing(over=True)
        if last is not None:
            say(_ended(last))
    finally:
        over.set()
        teller.join()


def _ended(stage: Standing) -> str:
    parts = [f"done in {stage.seconds:.2f} s", stage.amount, stage.rate, *stage.figures]
    return f"{stage.title}: {', '.join(part for part in parts if part)}"


def say(line: str) -> None:
    """A plain line on stderr."""
    print(line, file=sys.stderr, flush=True)

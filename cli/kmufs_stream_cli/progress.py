"""What stderr shows while a command works: a live display, plain lines, or only notices."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kmufs_stream import Event, Noticed, Planned, Progress, RequestError, Started
from kmufs_stream_cli.show import say
from kmufs_stream_cli.wording import as_typed

if TYPE_CHECKING:
    from kmufs_stream_cli.stages import Run, Stage

READING = "kmufs_stream.storage"  # logs what had to be read again
EVERY = 10.0  # seconds between lines of a log


@contextlib.contextmanager
def shown(*, log: bool, quiet: bool) -> Iterator[Progress]:
    """Yield the progress that was asked for, or that fits where stderr goes."""
    if log and quiet:
        raise RequestError(
            "bad_option", "--log and --quiet are both given.", "Leave out one of them."
        )
    if quiet:
        yield lambda event: None
        return
    from kmufs_stream_cli.stages import Run

    run = Run()
    with _counting_retries(run):
        if log:
            with _logged(run) as progress:
                yield progress
            return
        if sys.stderr.isatty():
            from rich.console import Console

            if not (console := Console(stderr=True)).is_dumb_terminal:
                from kmufs_stream_cli.live import live

                with live(console, run) as progress:
                    yield progress
                return
        yield notice


def notice(event: Event) -> None:
    """Print what a user should know, whatever else is shown."""
    if isinstance(event, Noticed):
        say(as_typed(event.text))
    elif isinstance(event, Planned) and event.dashboard:
        say(f"cluster dashboard: {event.dashboard}")


@contextlib.contextmanager
def _logged(run: Run) -> Iterator[Progress]:
    """Print a line when a stage begins, every so often while it lasts, and when it ends."""

    def progress(event: Event) -> None:
        notice(event)
        ended = run.take(event)
        if ended is not None:
            say(_ended(ended))
        if isinstance(event, Started) and run.stage is not None:
            total = f"{event.total:,} {event.unit}" if event.total else ""
            say(": ".join(filter(None, [run.stage.title, total])))

    def tell() -> None:
        while not over.wait(EVERY):
            with run.lock:
                if run.stage is not None:
                    say(_under_way(run.stage, run.resources()[0]))

    over = threading.Event()
    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield progress
        if run.stage is not None:
            run.stage.end()
            say(_ended(run.stage))
    finally:
        over.set()
        teller.join()


def _under_way(stage: Stage, resources: list[str]) -> str:
    parts = [stage.amount, stage.percent, *stage.rates, stage.left, *stage.figures, *resources]
    return f"{stage.title}: {', '.join(filter(None, parts))}"


def _ended(stage: Stage) -> str:
    parts = [f"done in {stage.seconds:.2f} s", stage.amount, *stage.rates, *stage.figures]
    return f"{stage.title}: {', '.join(filter(None, parts))}"


@contextlib.contextmanager
def _counting_retries(run: Run) -> Iterator[None]:
    logger, handler = logging.getLogger(READING), logging.Handler()
    handler.emit = lambda record: run.retried()  # type: ignore[method-assign]
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)

"""A run as plain lines on stderr: for files, and for who reads them afterwards."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from kmufs_stream.events import Event, Progress, Started
from kmufs_stream_cli.notices import notices, say
from kmufs_stream_cli.tally import Standing, Tally, left_of

EVERY = 10.0  # seconds between lines


@contextlib.contextmanager
def lines(tally: Tally) -> Iterator[Progress]:
    """A line when a stage begins, every so often while it lasts, and when it ends."""

    def progress(event: Event) -> None:
        notices(event)
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
                parts = [
                    now.amount,
                    share,
                    now.rate,
                    now.limit,
                    left_of(now),
                    *now.figures,
                    *tally.resources()[0],
                ]
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
    parts = [
        f"done in {stage.seconds:.2f} s",
        stage.amount,
        stage.rate,
        stage.limit,
        *stage.figures,
    ]
    return f"{stage.title}: {', '.join(part for part in parts if part)}"

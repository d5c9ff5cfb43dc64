"""What stderr shows while a command works: a bar on a terminal, lines with -v, else nothing."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kmufs_stream.progress import Progress, Silent

if TYPE_CHECKING:
    import rich.progress


@contextlib.contextmanager
def shown(*, verbose: bool, json: bool) -> Iterator[Progress]:
    """The progress that fits where stderr goes."""
    if verbose:
        lines = Lines()
        yield lines
        lines.end()
    elif sys.stderr.isatty() and not json:
        with _display() as display:
            yield Bars(display)
    else:
        yield Notices()


def _display() -> rich.progress.Progress:
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[rate]}"),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )


class Notices(Silent):
    """Nothing but what a user should know."""

    def tell(self, notice: str) -> None:
        """See Progress."""
        say(notice)


class Bars:
    """One bar, of the stage under way."""

    def __init__(self, display: rich.progress.Progress) -> None:
        self._display = display
        self._task: rich.progress.TaskID | None = None

    def start(self, stage: str, rows: int) -> None:
        """See Progress."""
        if self._task is not None:
            self._display.remove_task(self._task)
        self._task = self._display.add_task(stage, total=rows or None, rate="")

    def advance(self, rows: int) -> None:
        """See Progress."""
        if self._task is None:
            return
        self._display.advance(self._task, rows)
        task = next(t for t in self._display.tasks if t.id == self._task)
        if task.speed:
            self._display.update(self._task, rate=f"{task.speed:,.0f} rows/s")

    def tell(self, notice: str) -> None:
        """See Progress."""
        self._display.print(notice, markup=False, highlight=False, soft_wrap=True)


class Lines:
    """A line when a stage begins and one when it ends."""

    def __init__(self) -> None:
        self._stage = ""
        self._rows = 0
        self._began = 0.0
        self._lock = threading.Lock()

    def start(self, stage: str, rows: int) -> None:
        """See Progress."""
        self.end()
        self._stage, self._rows, self._began = stage, 0, time.perf_counter()
        say(f"{stage}: {rows:,} rows" if rows else stage)

    def advance(self, rows: int) -> None:
        """See Progress."""
        with self._lock:
            self._rows += rows

    def tell(self, notice: str) -> None:
        """See Progress."""
        say(notice)

    def end(self) -> None:
        """The last stage is over."""
        if not self._stage:
            return
        seconds = time.perf_counter() - self._began
        rate = f", {self._rows / max(seconds, 1e-9):,.0f} rows/s" if self._rows else ""
        say(f"{self._stage}: {seconds:.2f} s{rate}")
        self._stage = ""


def say(line: str) -> None:
    """A plain line on stderr."""
    print(line, file=sys.stderr, flush=True)

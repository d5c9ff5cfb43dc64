"""The live display of a run on a terminal: stages that are over, the one under way, resources."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from kmufs_stream.events import Event, Noticed, Progress
from kmufs_stream_cli.show import escaped
from kmufs_stream_cli.tally import Standing, Tally, duration, left_of
from kmufs_stream_cli.wording import as_typed

HERTZ = 4  # more would cost the blocks' threads time
OVER = 4  # stages that stay in sight
LONGEST_BAR, SHORTEST_BAR = 40, 8
INDENT = "  "


@contextlib.contextmanager
def live(console: Console, tally: Tally) -> Iterator[Progress]:
    """Show what is told until the block is left, however that happens; then take it away."""
    view = View(tally)
    display = Live(
        view, console=console, refresh_per_second=HERTZ, transient=True, redirect_stdout=False
    )

    def progress(event: Event) -> None:
        if isinstance(event, Noticed):
            text = escaped(as_typed(event.text))
            display.console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)
        view.take(event)

    try:
        with display:
            yield progress
    finally:
        console.show_cursor(True)  # should the display itself have been cut off


class View:
    """What the terminal shows now, in as many columns as it has."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._over: deque[Standing] = deque(maxlen=OVER)
        self._spinners = {False: Spinner("dots"), True: Spinner("line")}

    def take(self, event: Event) -> None:
        """Go on to the stage that an event begins, if it does."""
        ended = self._tally(event)
        if ended is not None and ended.amount:
            self._over.append(ended)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        now = self._tally.standing()
        if now is None:
            return
        width, ascii_only = options.max_width, options.ascii_only
        dot = " - " if ascii_only else " · "
        for stage in list(self._over):
            parts = [stage.title, duration(stage.seconds), stage.amount, stage.rate, stage.limit]
            yield _line(parts, width, dot, "dim")
        yield self._under_way(now, console, width, ascii_only)
        if now.amount or now.figures:
            yield _line([now.amount, *now.figures, now.rate, now.limit], width, dot, "")
        for parts in self._tally.resources():
            yield _line(parts, width, dot, "dim")

    def _under_way(
        self, now: Standing, console: Console, width: int, ascii_only: bool
    ) -> Table | Text:
        turning = self._spinners[ascii_only].render(console.get_time())
        line = Text.assemble(str(turning), " ", (now.title, "bold"))
        if now.share is None:
            return line
        left = left_of(now)
        ending = f"{now.share:4.0%}" + (f", {left}" if left else "")
        room = width - line.cell_len - len(ending) - 4
        if room < SHORTEST_BAR:
            return Text.assemble(line, " ", ending, no_wrap=True, overflow="ellipsis")
        row = Table.grid(padding=(0, 2, 0, 0))
        bar = ProgressBar(1.0, now.share, width=min(room, LONGEST_BAR), complete_style="cyan")
        row.add_row(line, bar, ending)
        return row


def _line(parts: Sequence[str], width: int, dot: str, style: str) -> Text:
    """The first of the parts, and what fits of the others; never more than a line."""
    parts = [part for part in parts if part]
    text = INDENT + parts[0]
    for part in parts[1:]:
        if len(text) + len(dot) + len(part) <= width:
            text += dot + part
    return Text(text, style, no_wrap=True, overflow="ellipsis", end="\n")

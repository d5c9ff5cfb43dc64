"""Show a run live on a terminal: the stages that are over, the one under way, resources."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator

from rich.console import Console, RenderableType
from rich.progress import BarColumn, SpinnerColumn, TextColumn
from rich.progress import Progress as Display
from rich.table import Column
from rich.text import Text

from kmufs_stream import Event, Noticed, Progress, Started
from kmufs_stream_cli.show import escaped
from kmufs_stream_cli.stages import Run, duration
from kmufs_stream_cli.wording import as_typed

HERTZ = 4  # more would cost the blocks' threads time
OVER = 4  # stages that stay in sight
BAR = 30  # letters


@contextlib.contextmanager
def live(console: Console, run: Run) -> Iterator[Progress]:
    """Show events until the block is left, however that happens; then clear the display."""
    display = Stages(console, run)
    try:
        with display:
            yield display.take
    finally:
        console.show_cursor(True)  # should the display itself have been cut off


class Stages(Display):
    """A line for each stage that is over; a bar, rates and figures of the one under way."""

    def __init__(self, console: Console, run: Run) -> None:
        ascii_only = console.options.ascii_only
        self._run, self._dot = run, " - " if ascii_only else " · "
        self._over: deque[Text] = deque(maxlen=OVER)
        super().__init__(
            SpinnerColumn("line" if ascii_only else "dots"),
            _words("{task.description}", "bold"),
            BarColumn(BAR),
            _words("{task.fields[left]}"),
            console=console,
            refresh_per_second=HERTZ,
            transient=True,
            redirect_stdout=False,
        )

    def take(self, event: Event) -> None:
        if isinstance(event, Noticed):
            text = escaped(as_typed(event.text))
            self.console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)
        with self._lock:
            ended, stage = self._run.take(event), self._run.stage
            if ended is not None:
                self.remove_task(self.task_ids[0])
                if ended.amount:
                    parts = [ended.title, duration(ended.seconds), ended.amount, *ended.rates]
                    self._over.append(self._line(parts, "dim"))
            if stage is None:
                return
            if isinstance(event, Started):
                self.add_task(stage.title, total=event.total or None, left="")
            left = ", ".join(filter(None, [stage.percent, stage.left]))
            self.update(self.task_ids[0], completed=stage.done, left=left)

    def get_renderables(self) -> Iterable[RenderableType]:
        with self._lock, self._run.lock:
            yield from self._over
            yield self.make_tasks_table(self.tasks)
            stage = self._run.stage
            if stage is not None and (stage.amount or stage.figures):
                yield self._line([stage.amount, *stage.figures, *stage.rates])
            for parts in self._run.resources():
                yield self._line(parts, "dim")

    def _line(self, parts: Iterable[str], style: str = "") -> Text:
        text = "  " + self._dot.join(filter(None, parts))
        return Text(text, style, no_wrap=True, overflow="ellipsis")


def _words(text: str, style: str = "none") -> TextColumn:
    return TextColumn(
        text, style, markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")
    )

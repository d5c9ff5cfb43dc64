"""The live display of a run on a terminal: stages, the one under way in detail, resources."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from rich.console import Console, RenderableType
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, Task
from rich.progress import Progress as Display
from rich.table import Column
from rich.text import Text

from kmufs_stream import Event, Noticed, Progress, Started
from kmufs_stream_cli.show import escaped
from kmufs_stream_cli.stages import Run, Stage, duration
from kmufs_stream_cli.wording import as_typed

HERTZ = 4  # more would cost the blocks' threads time
OVER = 4  # stages that stay in sight
BAR = 30  # columns


def terminal() -> Console | None:
    """The terminal that stderr is, if it can move its cursor."""
    console = Console(stderr=True)
    return None if console.is_dumb_terminal else console


@contextlib.contextmanager
def live(console: Console, run: Run) -> Iterator[Progress]:
    """Show what is told until the block is left, however that happens; then take it away."""
    display = Stages(console, run)
    try:
        with display:
            yield display.take
    finally:
        console.show_cursor(True)  # should the display itself have been cut off


class Words(ProgressColumn):
    """A column of words about a stage."""

    def __init__(self, words: Callable[[Stage], str], style: str = "") -> None:
        super().__init__(Column(no_wrap=True, overflow="ellipsis"))
        self._words, self._style = words, style

    def render(self, task: Task) -> Text:
        return Text(self._words(task.fields["stage"]), self._style)


class Stages(Display):
    """The stages that are over, a line each; the one under way; resources."""

    def __init__(self, console: Console, run: Run) -> None:
        ascii_only = console.options.ascii_only
        self._run, self._dot = run, " - " if ascii_only else " · "
        self._over: deque[Text] = deque(maxlen=OVER)
        super().__init__(
            SpinnerColumn("line" if ascii_only else "dots"),
            Words(lambda stage: stage.title, "bold"),
            BarColumn(BAR),
            Words(_left),
            console=console,
            refresh_per_second=HERTZ,
            transient=True,
            redirect_stdout=False,
        )

    def take(self, event: Event) -> None:
        """Show an event."""
        if isinstance(event, Noticed):
            text = escaped(as_typed(event.text))
            self.console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)
        with self._lock:
            ended = self._run.take(event)
            if ended is not None:
                self.remove_task(self.task_ids[0])
                if ended.amount:
                    parts = [ended.title, duration(ended.seconds), ended.amount, *ended.rates]
                    self._over.append(self._line(parts, "dim"))
            if isinstance(event, Started):
                self.add_task("", total=event.total or None, stage=self._run.stage)
            elif (stage := self._run.stage) is not None:
                self.update(self.task_ids[0], completed=stage.done)

    def get_renderables(self) -> Iterable[RenderableType]:
        with self._lock, self._run.lock:
            yield from self._over
            yield self.make_tasks_table(self.tasks)
            stage = self._run.stage
            if stage is not None and (stage.amount or stage.figures):
                yield self._line([stage.amount, *stage.figures, *stage.rates], "")
            for parts in self._run.resources():
                yield self._line(parts, "dim")

    def _line(self, parts: Iterable[str], style: str) -> Text:
        text = "  " + self._dot.join(filter(None, parts))
        return Text(text, style, no_wrap=True, overflow="ellipsis")


def _left(stage: Stage) -> str:
    share = "" if stage.share is None else f"{stage.share:.0%}"
    return ", ".join(filter(None, [share, stage.left]))

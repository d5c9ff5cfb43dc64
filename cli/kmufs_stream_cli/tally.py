"""Where a run stands, from what it tells; and the words for it that every display uses."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from kmufs_stream.errors import counted
from kmufs_stream.events import Advanced, Event, Planned, Started
from kmufs_stream.system.memory import resident_memory, size

WINDOW = 30.0  # seconds over which a rate is taken
LEAST_READING = 0.05  # of the time of all tasks: reading that takes less is no limit


class Mark(NamedTuple):
    """What was done by some moment, since a stage began."""

    moment: float
    done: int
    reading: float = 0.0
    working: float = 0.0


@dataclass(frozen=True)
class Standing:
    """One stage at one moment.

    Attributes
    ----------
    title : its name, with which one it is of how many.
    share : done of the total, 0 to 1; None where the total is not known.
    amount : what is done, in words; empty where nothing is counted.
    rate : GB/s or another rate, in words; empty where it is not known.
    limit : what that would be if tasks did nothing but read, in words; empty where not known.
    left : seconds to its end; None where that is not known.
    after : the same of the reads that come after it, at most where ``at_most``; 0 without any.
    reads : it is one of the reads of the data, after which other stages come.
    figures : objective, residuals, in words.
    seconds : since it began.
    """

    title: str
    share: float | None
    amount: str
    rate: str
    limit: str
    left: float | None
    after: float
    at_most: bool
    reads: bool
    figures: tuple[str, ...]
    seconds: float


class Tally:
    """Adds up events, from whatever thread they come."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._began = clock()
        self._planned: Planned | None = None
        self._stage: Started | None = None
        self._stage_began = self._began
        self._done = self._restored = 0
        self._figures: dict[str, float] = {}
        self._marks = deque([Mark(self._began, 0)])  # of the last WINDOW; never empty
        self.retries = 0

    def __call__(self, event: Event) -> Standing | None:
        """Take in an event; one that begins a stage returns how the stage before it ended."""
        with self._lock:
            if isinstance(event, Planned):
                self._planned = event
            elif isinstance(event, Started):
                ended = self.standing(over=True)
                self._stage, self._stage_began = event, self._clock()
                self._done = self._restored = 0
                self._figures = {}
                self._marks = deque([Mark(self._stage_began, 0)])
                return ended
            elif isinstance(event, Advanced):
                self._advance(event)
            return None

    def _advance(self, event: Advanced) -> None:
        self._done += event.count
        self._figures.update(event.figures)
        if event.restored:
            self._restored += event.count
            return
        before, now = self._marks[-1], self._clock()
        self._marks.append(
            Mark(
                now,
                self._done - self._restored,
                before.reading + event.reading,
                before.working + event.working,
            )
        )
        while len(self._marks) > 2 and self._marks[1].moment < now - WINDOW:
            self._marks.popleft()

    def retried(self) -> None:
        """A chunk had to be asked for again."""
        with self._lock:
            self.retries += 1

    def standing(self, *, over: bool = False) -> Standing | None:
        """The stage under way, or, with ``over``, as it ended; None before the first."""
        with self._lock:
            stage, now = self._stage, self._clock()
            if stage is None:
                return None
            first = Mark(self._stage_began, 0) if over else self._marks[0]
            last = self._marks[-1]
            speed = (last.done - first.done) / max(now - first.moment, 1e-6)
            reading = last.reading - first.reading
            working = last.working - first.working
            limit = speed * working / reading if reading > LEAST_READING * working else 0.0
            left, after = None, 0.0
            reads = stage.number > 0 and stage.unit == "rows"
            if stage.total and speed > 0 and not over:
                left = (stage.total - self._done) / speed
                after = max(stage.of - stage.number, 0) * stage.total / speed
            return Standing(
                title=_title(stage),
                share=min(self._done / stage.total, 1.0) if stage.total else None,
                amount=_amount(stage, self._done, over),
                rate=_rate(stage, speed),
                limit=f"reading alone about {_rate(stage, limit)}" if limit > 0 else "",
                left=left,
                after=after if reads else 0.0,
                at_most=stage.at_most,
                reads=reads,
                figures=tuple(
                    f"{name.replace('_', ' ')} {value:.5g}" for name, value in self._figures.items()
                ),
                seconds=now - self._stage_began,
            )

    def resources(self) -> list[list[str]]:
        """Memory now against the budget, who works, time since the start; then the dashboard."""
        with self._lock:
            planned, seconds = self._planned, self._clock() - self._began
        used, passed = size(resident_memory()), f"{duration(seconds)} so far"
        again = [counted(self.retries, "retries")] if self.retries else []
        if planned is None:
            return [[f"memory {used}", *again, passed]]
        here = " here" if planned.workers else ""
        memory = f"memory{here} {used} of {size(planned.budget)}"
        dashboard = [[f"dashboard {planned.dashboard}"]] if planned.dashboard else []
        return [[memory, _who(planned), *again, passed], *dashboard]


def _title(stage: Started) -> str:
    if not stage.number:
        return stage.stage
    most = "at most " if stage.at_most else ""
    return f"{stage.stage} {stage.number}" + (f" of {most}{stage.of}" if stage.of else "")


def _amount(stage: Started, done: int, over: bool) -> str:
    if not stage.unit:
        return ""
    if not stage.total or (over and done >= stage.total):
        return size(done) if stage.unit == "bytes" else counted(done, stage.unit)
    if stage.unit == "bytes":
        return f"{size(done)} of {size(stage.total)}"
    return f"{done:,} of {counted(stage.total, stage.unit)}"


def _rate(stage: Started, speed: float) -> str:
    if speed <= 0 or not stage.unit:
        return ""
    if stage.unit_bytes:
        return f"{size(int(speed * stage.unit_bytes))}/s"
    return f"{speed:,.1f} {stage.unit}/s"


def _who(planned: Planned) -> str:
    threads = counted(planned.threads, "threads")
    if not planned.workers:
        return threads
    return f"{counted(planned.workers, 'workers')} of {threads}"


def left_of(now: Standing) -> str:
    """The time left of a stage, and of all reading where more comes; nothing where not known."""
    if now.left is None:
        return ""
    left = f"{duration(now.left)} left"
    if not now.after:
        return left + " of reading" * now.reads
    most = "at most " if now.at_most else ""
    return f"{left}, {most}{duration(now.left + now.after)} of all reading"


def duration(seconds: float) -> str:
    """0:07, 12:40, 3:02:11."""
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

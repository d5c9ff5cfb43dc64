"""Stages of a run: how far each has come, and the words that every display has for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psutil

from kmufs_stream import Advanced, Event, Planned, Started
from kmufs_stream.errors import counted
from kmufs_stream_cli.show import size

LEAST_READING = 0.05  # of the time of all tasks: reading that takes less is no limit


class Stage:
    """One stage of a run, under way or ended."""

    def __init__(self, event: Started, clock: Callable[[], float]) -> None:
        self.event, self._clock = event, clock
        self.began, self.ended = clock(), 0.0
        self.done = self._restored = 0
        self._reading = self._working = 0.0  # seconds of all tasks
        self._figures: dict[str, float] = {}

    def advance(self, event: Advanced) -> None:
        self.done += event.count
        self._restored += event.count if event.restored else 0
        self._reading += event.reading
        self._working += event.working
        self._figures.update(event.figures)

    def end(self) -> None:
        self.ended = self._clock()

    @property
    def title(self) -> str:
        """Its name, with which one it is of how many."""
        stage = self.event
        most = "at most " if stage.at_most else ""
        of = f" of {most}{stage.of}" if stage.of else ""
        return f"{stage.stage} {stage.number}{of}" if stage.number else stage.stage

    @property
    def seconds(self) -> float:
        return (self.ended or self._clock()) - self.began

    @property
    def percent(self) -> str:
        """Done of the total; empty if that is not known."""
        return f"{min(self.done / self.event.total, 1.0):.0%}" if self.event.total else ""

    @property
    def amount(self) -> str:
        """What is done, in words; empty if nothing is counted."""
        total, unit = self.event.total, self.event.unit
        if not unit:
            return ""
        if not total or (self.ended and self.done >= total):
            return size(self.done) if unit == "bytes" else counted(self.done, unit)
        if unit == "bytes":
            return f"{size(self.done)} of {size(total)}"
        return f"{self.done:,} of {counted(total, unit)}"

    @property
    def rates(self) -> list[str]:
        """Its rate, and what that would be if tasks did nothing but read, as far as known."""
        rates = [self._rate(self._speed)]
        if self._reading > LEAST_READING * self._working and self._speed > 0:
            alone = self._speed * self._working / self._reading
            rates.append(f"reading alone about {self._rate(alone)}")
        return rates

    @property
    def figures(self) -> list[str]:
        return [f"{name.replace('_', ' ')} {value:.5g}" for name, value in self._figures.items()]

    @property
    def left(self) -> str:
        """The time left, and that of all reading if more reads follow; empty if not known."""
        stage, speed = self.event, self._speed
        if not stage.total or speed <= 0 or self.ended:
            return ""
        left = (stage.total - self.done) / speed
        said = f"{duration(left)} left"
        if not stage.number or stage.unit != "rows":
            return said
        if stage.of <= stage.number:
            return f"{said} of reading"
        most = "at most " if stage.at_most else ""
        whole = left + (stage.of - stage.number) * stage.total / speed
        return f"{said}, {most}{duration(whole)} of all reading"

    @property
    def _speed(self) -> float:
        """How many are done in a second, without those of an earlier run."""
        return (self.done - self._restored) / max(self.seconds, 1e-6)

    def _rate(self, speed: float) -> str:
        if speed <= 0 or not self.event.unit:
            return ""
        if self.event.unit_bytes:
            return f"{size(int(speed * self.event.unit_bytes))}/s"
        return f"{speed:,.1f} {self.event.unit}/s"


class Run:
    """What a run tells of itself, from whatever thread: its plan, its stages, its retries."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.lock = threading.RLock()
        self.stage: Stage | None = None
        self._retries = 0
        self._clock, self._began = clock, clock()
        self._planned: Planned | None = None

    def take(self, event: Event) -> Stage | None:
        """Take in an event; one that begins a stage returns the stage that has ended."""
        with self.lock:
            before = self.stage
            if isinstance(event, Planned):
                self._planned = event
            elif isinstance(event, Started):
                if before is not None:
                    before.end()
                self.stage = Stage(event, self._clock)
                return before
            elif isinstance(event, Advanced) and before is not None:
                before.advance(event)
            return None

    def retried(self) -> None:
        with self.lock:
            self._retries += 1

    def resources(self) -> list[list[str]]:
        """Memory now against the budget, who works, time since the start; then the dashboard."""
        planned, passed = self._planned, f"{duration(self._clock() - self._began)} so far"
        used = size(psutil.Process().memory_info().rss)
        again = [counted(self._retries, "retries")] if self._retries else []
        if planned is None:
            return [[f"memory {used}", *again, passed]]
        threads, here = counted(planned.threads, "threads"), ""
        if planned.workers:
            threads, here = f"{counted(planned.workers, 'workers')} of {threads}", " here"
        memory = f"memory{here} {used} of {size(planned.budget)}"
        dashboard = [[f"dashboard {planned.dashboard}"]] if planned.dashboard else []
        return [[memory, threads, *again, passed], *dashboard]


def duration(seconds: float) -> str:
    """0:07, 12:40, 3:02:11."""
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

"""What a long run tells whoever watches it: events, handed to one function as they happen.

Any function of one event will do (``select(..., progress=print)``). Events come from the thread
that called; they change no result, and an exception that the function raises ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kmufs_stream.streaming.plan import Plan


@dataclass(frozen=True)
class Planned:
    """A plan is made: what the run may take.

    Attributes
    ----------
    budget : bytes of memory.
    threads : tasks side by side, in each worker where there are any.
    workers : those of a cluster; 0 for this process.
    dashboard : address of the cluster's dashboard, or nothing.
    plan : all of it.
    """

    budget: int
    threads: int
    workers: int = 0
    dashboard: str = ""
    plan: Plan | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Started:
    """A stage begins, and the one before it is over.

    Attributes
    ----------
    total : how many of ``unit`` it goes over; 0 where that is not known.
    unit : what Advanced counts: ``rows``, ``bytes``, ``iterations``, ...; nothing where the stage
        does not count.
    unit_bytes : of a row as it is read or written, decoded; 0 where nothing is.
    number, of : which one it is of how many such stages, counted from 1; 0 where not known.
    at_most : ``of`` is an upper bound.
    """

    stage: str
    total: int = 0
    unit: str = ""
    unit_bytes: int = 0
    number: int = 0
    of: int = 0
    at_most: bool = False


@dataclass(frozen=True)
class Advanced:
    """So many more are done.

    Attributes
    ----------
    restored : they were done by an earlier run, and come from its checkpoint.
    reading, working : seconds that tasks, side by side or not, have meanwhile spent on reading and
        decoding, and in all; 0 where that is not measured.
    figures : where the stage stands now, by name: an objective, residuals.
    """

    count: int
    restored: bool = False
    reading: float = 0.0
    working: float = 0.0
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Noticed:
    """Something that a user should know, such as where a checkpoint is."""

    text: str


Event = Planned | Started | Advanced | Noticed
Progress = Callable[[Event], None]


def SILENT(event: Event) -> None:  # noqa: N802
    """Tell nobody."""

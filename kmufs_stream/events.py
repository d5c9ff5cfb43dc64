"""What a long run tells whoever watches it: events, handed to one function as they happen.

Any function of one event will do (``select(..., progress=print)``). Events come from the thread
that called; they change no result, and an exception that the function raises ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Planned:
    """An event: a plan is made, and this is what the run may take.

    Attributes
    ----------
    budget : int
        Bytes of memory.
    threads : int
        Tasks side by side, in each worker where there are any.
    workers : int
        Those of a cluster; 0 for this process.
    dashboard : str
        Address of the cluster's dashboard, or nothing.
    plan : Plan or None
        All of it.
    """

    budget: int
    threads: int
    workers: int = 0
    dashboard: str = ""
    plan: object = field(default=None, repr=False)


@dataclass(frozen=True)
class Started:
    """An event: a stage begins, and the one before it is over.

    Attributes
    ----------
    stage : str
        Its name, for people.
    total : int
        How many of ``unit`` it goes over; 0 where that is not known.
    unit : str
        What Advanced counts: ``rows``, ``bytes``, ``iterations``, ...; nothing where the stage does
        not count.
    unit_bytes : int
        Of a row as it is read or written, decoded; 0 where nothing is.
    number, of : int
        Which one it is of how many such stages, counted from 1; 0 where not known.
    at_most : bool
        ``of`` is an upper bound.
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
    """An event: so many more are done, of what the stage counts.

    Attributes
    ----------
    count : int
        How many.
    restored : bool
        They were done by an earlier run, and come from its checkpoint.
    reading, working : float
        Seconds that tasks, side by side or not, have meanwhile spent on reading and decoding, and
        in all; 0 where that is not measured.
    figures : mapping of str to float
        Where the stage stands now, by name: an objective, residuals.
    """

    count: int
    restored: bool = False
    reading: float = 0.0
    working: float = 0.0
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Noticed:
    """An event: something that a user should know, such as where a checkpoint is.

    Attributes
    ----------
    text : str
        A sentence.
    """

    text: str


Event = Planned | Started | Advanced | Noticed
"""What a run tells as it goes on."""
Progress = Callable[[Event], None]
"""A function that is called with each event, in the thread that called the library."""


class _Silent:
    def __call__(self, event: Event) -> None:
        """Tell nobody."""

    def __repr__(self) -> str:
        return "SILENT"


SILENT: Progress = _Silent()
"""Tells nobody."""

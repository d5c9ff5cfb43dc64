"""Events of a run, passed to one function as they happen.

Any function of one event will do (``select(..., progress=print)``). It is called in the thread that
called the library; an exception that it raises ends the run. Events never change a result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Planned:
    """An event: the run is planned.

    Attributes
    ----------
    budget : int
        Bytes of memory that it may use.
    threads : int
        Tasks in parallel, in each worker of a cluster.
    workers : int
        Workers of the cluster; 0 if this process does the work.
    dashboard : str
        Address of the cluster's dashboard, or "".
    plan : Plan or None
        The whole plan.
    """

    budget: int
    threads: int
    workers: int = 0
    dashboard: str = ""
    plan: object = field(default=None, repr=False)


@dataclass(frozen=True)
class Started:
    """An event: a stage begins, and the one before it has ended.

    Attributes
    ----------
    stage : str
        Its name, for people.
    total : int
        How many of ``unit`` it goes over; 0 if not known.
    unit : str
        What Advanced counts: ``rows``, ``bytes``, ``iterations``, ...; "" if it counts nothing.
    unit_bytes : int
        Bytes of a row, decoded, that is read or written; 0 if none is.
    number, of : int
        Its number among ``of`` such stages, from 1; 0 if not known.
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
    """An event: the stage has done some more of what it counts.

    Attributes
    ----------
    count : int
        How many more.
    restored : bool
        An earlier run did them: they come from its checkpoint.
    reading, working : float
        Seconds that all tasks have spent meanwhile on reading and decoding, and in total; 0 if not
        measured.
    figures : mapping of str to float
        Figures of the stage by name, such as an objective or residuals.
    """

    count: int
    restored: bool = False
    reading: float = 0.0
    working: float = 0.0
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Noticed:
    """An event: something that users should know, such as where a checkpoint is.

    Attributes
    ----------
    text : str
        A sentence; a Text where it names parameters.
    """

    text: str


Event = Planned | Started | Advanced | Noticed
"""Any event of a run."""
Progress = Callable[[Event], None]
"""A function that is called with each event."""


class _Silent:
    def __call__(self, event: Event) -> None:
        """Ignore an event."""

    def __repr__(self) -> str:  # as signatures show it
        return "SILENT"


SILENT: Progress = _Silent()

"""Compare names of features whatever the order of their parts, the digits or the units of time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

PARTS = re.compile(r"\s+(?=[^\s=]+=)")  # the spaces of "lat=75 lon=202.5"
TIME = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d+))?)?)?)?")
SPAN = re.compile(r"(-?\d+) ?([a-z]+?)s?")
NANOSECONDS = {
    "day": 86_400 * 10**9,
    "hour": 3_600 * 10**9,
    "minute": 60 * 10**9,
    "second": 10**9,
    "millisecond": 10**6,
    "microsecond": 10**3,
    "nanosecond": 1,
}


class Spellings:
    """Finds the features of a table by names that mean the same.

    Parameters
    ----------
    names : (p,) of the features.
    dim : dimension of the features, which may stand before a name: ``time=...``.
    """

    def __init__(self, names: Sequence[str] | NDArray[np.object_], dim: str) -> None:
        self._dim = dim
        self._dims = [dim for dim, _ in _parts(names[0])] if len(names) else []
        self._places: dict[str, dict[str, list[int]]] = {}
        for i, name in enumerate(names):
            self._places.setdefault(self._plain(name), {}).setdefault(name, []).append(i)

    def of(self, name: str) -> list[int]:
        """Return the features of a name, however spelt; none if it may mean several names."""
        alike = self._places.get(self._plain(name), {})
        return next(iter(alike.values())) if len(alike) == 1 else []

    def meeting(self, pattern: str) -> list[int]:
        """Return the features whose names, however spelt, meet a shell pattern; ascending."""
        pattern = self._plain(pattern)
        met = [alike for plain, alike in self._places.items() if fnmatchcase(plain, pattern)]
        return sorted(i for alike in met for places in alike.values() for i in places)

    def completed(self, name: str) -> str | None:
        """Complete some parts of a name to a pattern: ``lat=75`` to ``lat=75 lon=*``.

        None if no feature meets it.
        """
        given = dict(_parts(name))
        pattern = " ".join(f"{dim}={given.get(dim, '*')}" for dim in self._dims)
        some = given and given.keys() < {*self._dims}
        return pattern if some and self.meeting(pattern) else None

    def _plain(self, name: str) -> str:
        parts = _parts(name)
        if len(parts) < 2 and all(dim == self._dim for dim, _ in parts):
            return _value(parts[0][1] if parts else name.strip())
        return " ".join(sorted(f"{dim}={_value(value)}" for dim, value in parts))


def _parts(name: str) -> list[tuple[str, str]]:
    """Split a name like ``lat=75 lon=2.5``; other text has no parts."""
    parts = [part.partition("=") for part in PARTS.split(name.strip())]
    return (
        [(dim, value) for dim, _, value in parts] if all(equals for _, equals, _ in parts) else []
    )


def _value(text: str) -> str:
    """Spell a number, a time or a span of time in one way; other text is kept."""
    time = TIME.fullmatch(text)
    if time is not None:  # of whatever calendar
        day, hour, minute, second, part = time.groups("00")
        return f"{day}T{hour}:{minute}:{second}.{part.rstrip('0')}"
    span = SPAN.fullmatch(text)
    if span is not None and span[2] in NANOSECONDS:
        return f"{int(span[1]) * NANOSECONDS[span[2]]} nanoseconds"
    try:
        return str(float(text) + 0)  # of -0 too
    except ValueError:
        return text

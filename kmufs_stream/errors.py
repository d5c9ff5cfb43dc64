"""What can go wrong, as the user is told it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice
from typing import Any

ONE_OF = {"classes": "class", "retries": "retry"}
COMPARED = 100_000  # names at most that a misspelt one is compared with


class KmufsError(Exception):
    """An error with a code for machines, a message that names the thing, and a remedy.

    Texts name parameters as Python has them, in backticks: ```h``` or ```h=3```; the command line
    makes options of these.

    Attributes
    ----------
    code : str
        For machines: short and lasting.
    message : str
        What is wrong with what.
    remedy : str
        What to do about it.
    exit_code : int
        What the command line ends with: 2 where the request cannot be met as it stands, 1 where
        something broke on the way.
    """

    exit_code = 1

    def __init__(self, code: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message

    def __reduce__(self) -> tuple[type[KmufsError], tuple[Any, ...]]:
        return type(self), (self.code, self.message, self.remedy)


class RequestError(KmufsError, ValueError):
    """The request cannot be met: bad input, unknown name, does not fit in memory.

    A ValueError too: what libraries such as scikit-learn expect of bad input.
    """

    exit_code = 2


class BrokenError(KmufsError):
    """Something broke while a sound request ran: a corrupt chunk, a lost store, a full disk.

    Attributes
    ----------
    chunk : str or None
        The key of the stored chunk that could not be read, where that is what broke.
    """

    exit_code = 1

    def __init__(self, code: str, message: str, remedy: str, chunk: str | None = None) -> None:
        super().__init__(code, message, remedy)
        self.chunk = chunk

    def __reduce__(self) -> tuple[type[BrokenError], tuple[Any, ...]]:
        return type(self), (self.code, self.message, self.remedy, self.chunk)


def missing_library(use: str, *packages: str) -> RequestError:
    """What is told where optional libraries are not installed; ``use`` is what takes them."""
    return RequestError(
        "needs_extra",
        f"{use} needs what is not installed: {' and '.join(packages)}.",
        f"Type: pip install {' '.join(packages)}",
    )


def counted(number: int, things: str) -> str:
    """A number and its things, one of them without its plural."""
    singular = ONE_OF.get(things, things.removesuffix("s"))
    return f"{number:,} {singular if number == 1 else things}"


def listed(names: Iterable[str]) -> str:
    """Names that somebody gave to something; in quotes where they could be read as parameters."""
    return ", ".join(repr(name) if "`" in name else name for name in names) or "none"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The beginning of a remedy for a misspelt name; nothing where no known name is close."""
    names = {other.lower(): other for other in islice(known, COMPARED)}
    close = difflib.get_close_matches(name.lower(), names, n=1)
    return f"Did you mean {names[close[0]]!r}? " if close else ""

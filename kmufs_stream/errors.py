"""Errors, and the texts that tell them: what is wrong, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from itertools import islice
from string import Formatter
from typing import Any

ONE_OF = {"classes": "class", "retries": "retry"}
COMPARED = 100_000  # names at most that a misspelt one is compared with
SHOWN = 5  # names

HOMES = {
    "open_matrix(data, {})": (
        "variable group sample_dims feature_dims features_from_variables layer raw feature_labels "
        "transform fill_missing_chunks retries features exclude_features where"
    ),
    "screening=Screening({})": "missing min_std min_nonzero",
    "lanczos=LanczosOptions({})": "tol max_passes seed",
    "options=AdmmOptions({})": "mu0 mu_max rho max_iter patience",
}
"""Where in Python parameters go that the function called may not take itself."""


class Option:
    """Parameters that a text names, with the values to give them, if any.

    ``Option("h")`` names h; ``Option(h=3)`` advises its value. Python and the command line spell
    it each in its own way: ``h=3`` and ``--h 3``.
    """

    def __init__(self, name: str | None = None, /, **values: Any) -> None:
        self.name, self.values = name, values

    def __str__(self) -> str:
        if self.name is not None:
            return f"`{self.name}`"
        given = ", ".join(f"{name}={value!r}" for name, value in self.values.items())
        first = next(iter(self.values))
        home = next((home for home, names in HOMES.items() if first in names.split()), "{}")
        return f"`{home.format(given)}`"

    @property
    def names(self) -> list[str]:
        """Names of the parameters."""
        return [*self.values] if self.name is None else [self.name]


class Text(str):
    """A text that names parameters; as a str, it spells them as Python does.

    ``Text("{threads} is {}. Give {memory}.", n, memory="1GB")``: a named field is a parameter,
    with its value where that is given; the others are filled as :meth:`str.format` does.

    Parameters
    ----------
    template : str
        A literal: whatever comes from elsewhere, such as names of the user's, is an argument.
    *filling : object
        For fields without a name, in order; an Option or a Text keeps its parameters.
    **values : object
        Values of the parameters named.
    """

    parts: tuple[str | Option, ...]

    def __new__(cls, template: str, /, *filling: object, **values: Any) -> Text:
        parts: list[str | Option] = []
        rest = iter(filling)
        for literal, field, spec, conversion in Formatter().parse(template):
            parts.append(literal)
            if field:
                parts.append(Option(**{field: values[field]}) if field in values else Option(field))
            elif field is not None:
                value = next(rest)
                if isinstance(value, Option | Text):
                    parts += [value] if isinstance(value, Option) else value.parts
                else:
                    value = repr(value) if conversion == "r" else value
                    parts.append(format(value, spec or ""))
        return cls._of(parts)

    @classmethod
    def _of(cls, parts: Iterable[str | Option]) -> Text:
        text = super().__new__(cls, "".join(map(str, parts)))
        text.parts = tuple(part for part in parts if part != "")
        return text

    def __add__(self, other: str) -> Text:
        return Text("{}{}", self, other)

    def __radd__(self, other: str) -> Text:
        return Text("{}{}", other, self)

    def __reduce__(self) -> tuple[Callable[..., Text], tuple[list[str | Option]]]:
        return Text._of, ([*self.parts],)

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters, each once, in the order in which the text names them."""
        options = [part for part in self.parts if isinstance(part, Option)]
        return list(dict.fromkeys(name for option in options for name in option.names))

    def spelled(self, spell: Callable[[Option], str]) -> str:
        """The text with each option as ``spell`` writes it."""
        return "".join(part if isinstance(part, str) else spell(part) for part in self.parts)


class KmufsError(Exception):
    """An error with a code for machines, a message that names the culprit, and a remedy.

    Attributes
    ----------
    code : str
        For machines: short and lasting.
    message : str
        What is wrong with what; a Text where it names parameters.
    remedy : str
        What to do about it; a Text where it names parameters.
    exit_code : int
        Of the command line: 2 if the request cannot be met as it stands, 1 if something broke on
        the way.
    """

    exit_code = 1

    def __init__(self, code: str, message: str, remedy: str) -> None:
        super().__init__(code, message, remedy)
        self.code = code
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters that the error is about, in the order in which it names them."""
        return Text("{}{}", self.message, self.remedy).parameters


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


def missing_library(use: str, *packages: str) -> RequestError:
    """What is told where optional libraries are not installed; ``use`` is what takes them."""
    return RequestError(
        "needs_extra",
        f"{use} needs what is not installed: {' and '.join(packages)}.",
        f"Type: pip install {' '.join(packages)}",
    )


def unknown_value(parameter: str, value: str, known: Iterable[str]) -> RequestError:
    """The error for a value of a parameter that is none of those it may have."""
    choices = list(known)
    return RequestError(
        "bad_option",
        Text("{} {!r} is unknown.", Option(parameter), value),
        f"{did_you_mean(value, choices)}Choose one of {', '.join(choices)}.",
    )


def counted(number: int, things: str) -> str:
    """A number and its things, one of them without its plural."""
    singular = ONE_OF.get(things, things.removesuffix("s"))
    return f"{number:,} {singular if number == 1 else things}"


def listed(names: Iterable[str]) -> str:
    """Join names with commas; "none" if there are none."""
    return ", ".join(names) or "none"


def first_few(names: Iterable[str]) -> str:
    """Join the first names with commas, and count the others."""
    names = list(names)
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The beginning of a remedy for a misspelt name; nothing where no known name is close."""
    names = {other.lower(): other for other in islice(known, COMPARED)}
    close = difflib.get_close_matches(name.lower(), names, n=1)
    return f"Did you mean {names[close[0]]!r}? " if close else ""

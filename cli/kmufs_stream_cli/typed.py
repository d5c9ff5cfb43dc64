"""The command line under way, as it is kept in what it makes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextvars import ContextVar

SECRETS = (
    (re.compile(r"(\w://)[^/?#]*@"), r"\1***@"),  # the user and password of a URL
    (re.compile(r"(\w://[^?]*\?).*"), r"\1***"),  # its query, which may be a signature
)

_words: ContextVar[Sequence[str]] = ContextVar("words", default=())


def remember(words: Sequence[str]) -> None:
    """Note what was typed, the program's name first."""
    _words.set(words)


def typed() -> str | None:
    """The command line, to be typed again, without passwords; None where there is none."""
    return shlex.join(map(_open, _words.get())) or None


def _open(word: str) -> str:
    for secret, stands_in in SECRETS:
        word = secret.sub(stands_in, word)
    return word

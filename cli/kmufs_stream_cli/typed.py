"""Command lines: the one that runs, as outputs record it, and words as a shell takes them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from contextvars import ContextVar

NAME = "kmufs-stream"
SPECIAL = re.compile(r'["$`\\!]')  # within double quotes
SECRETS = (
    (re.compile(r"(\w://)[^/?#]*@"), r"\1***@"),  # the user and password of a URL
    (re.compile(r"(\w://[^?]*\?).*"), r"\1***"),  # its query, which may be a signature
)

_words: ContextVar[Sequence[str]] = ContextVar("words", default=())


def remember(words: Sequence[str]) -> None:
    """Keep the words of the command line, the program's name first."""
    _words.set(words)


def typed() -> str | None:
    """Return the command line that runs, without passwords; None from Python."""
    return shell_line(map(_without_secrets, _words.get())) or None


def shell_line(words: Iterable[str]) -> str:
    """Quote words for a shell: in double quotes if they hold single ones."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    plain = "'" in word and not SPECIAL.search(word)
    return f'"{word}"' if plain else shlex.quote(word)


def _without_secrets(word: str) -> str:
    for secret, stands_in in SECRETS:
        word = secret.sub(stands_in, word)
    return word

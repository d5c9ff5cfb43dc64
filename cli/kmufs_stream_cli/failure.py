"""What went wrong, as it is told: one message, its remedy, an exit code; or one JSON object."""

from __future__ import annotations

import json as jsonlib
import shlex
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import typer

from kmufs_stream.errors import KmufsError
from kmufs_stream_cli.interrupt import Interrupted
from kmufs_stream_cli.wording import as_typed

# The base of all usage errors: of click, or of the copy of click inside newer versions of Typer.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
RESUME = "--resume"
LONGEST = 500  # letters of a foreign message


@dataclass(frozen=True)
class Failure:
    """An error for people and machines."""

    code: str
    message: str
    remedy: str
    exit_code: int
    kept: tuple[str, ...] = ()  # by a checkpoint: where it is, and how to go on from it


def explain(error: BaseException, command: Sequence[str]) -> Failure:
    """What an exception means to whoever typed the command."""
    notes = map(as_typed, getattr(error, "__notes__", []))
    kept = tuple(note for note in notes if RESUME in note)
    return replace(_explain(error, command, resumable=bool(kept)), kept=kept)


def _explain(error: BaseException, command: Sequence[str], *, resumable: bool) -> Failure:
    if isinstance(error, KmufsError):
        message, remedy = (as_typed(text, *command[1:2]) for text in (error.message, error.remedy))
        return Failure(error.code, message, remedy, error.exit_code)
    if isinstance(error, Interrupted | KeyboardInterrupt | typer.Abort):
        # What was typed to go on may end before it has looked at what it would go on from.
        how = "go on" if resumable or RESUME in command else "start again"
        again = [*command, RESUME] if resumable and RESUME not in command else command
        return Failure(
            "interrupted",
            "Interrupted; no partial output is left.",
            f"To {how}, type: {shlex.join(again)}",
            130,
        )
    if isinstance(error, UsageError):
        return _usage(error, command)
    if isinstance(error, MemoryError):
        return Failure(
            "out_of_memory",
            "Memory ran out.",
            "Give a smaller --memory or --threads 1, or close other programs.",
            1,
        )
    said = " ".join(str(error).split())
    said = said if len(said) <= LONGEST else said[:LONGEST] + " ..."
    return Failure(
        "unexpected",
        f"Something unexpected broke: {type(error).__name__}: {said}".rstrip(": "),
        "Run again with --debug to see where.",
        1,
    )


def _usage(error: Exception, command: Sequence[str]) -> Failure:
    """What the parser does not understand."""
    named = [word for word in command[:2] if not word.startswith("-")]
    path = getattr(getattr(error, "ctx", None), "command_path", " ".join(named))
    message = str(getattr(error, "format_message", lambda: error)())
    option = getattr(getattr(error, "param", None), "opts", [""])[0]
    given = [word for before, word in pairwise(command) if before == option]
    given += [word.partition("=")[2] for word in command if word.startswith(f"{option}=")]
    if given and isinstance(error, typer.BadParameter):  # all others are texts and flags
        kind = "whole number" if "integer" in message else "number"
        return Failure(
            "usage", f"{option} {given[-1]} is no {kind}.", f"Give one; see {path} --help.", 2
        )
    remedy = f"See {path} --help."
    if "No such command" in message and Path(named[-1]).exists():
        what = shlex.join([command[0], "select", *command[1:]])
        remedy = f"A command comes first, as in: {what}"
    return Failure("usage", message, remedy, 2)


def tell(failure: Failure, error: BaseException, *, json: bool, debug: bool) -> None:
    """Print it: JSON on stdout, or words on stderr; where it came from only with ``debug``."""
    from kmufs_stream_cli.show import escaped

    if debug:
        traceback.print_exception(error, file=sys.stderr)
    if json:
        remedy = "\n".join([failure.remedy, *failure.kept]).strip()
        keys = {"code": failure.code, "message": failure.message, "remedy": remedy}
        print(jsonlib.dumps({"error": keys}))
        return
    head = "" if failure.exit_code == 130 else "Error: "
    # What the parser says has lines of its own; elsewhere only a name can hold a break.
    message = failure.message if failure.code == "usage" else escaped(failure.message)
    print(f"{head}{message}", file=sys.stderr)
    for line in filter(None, [failure.remedy, *failure.kept]):
        print(f"  {escaped(line)}", file=sys.stderr)

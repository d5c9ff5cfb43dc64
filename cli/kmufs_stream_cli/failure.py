"""Turn an exception into a message with a hint and an exit code, and print it."""

from __future__ import annotations

import json as jsonlib
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import typer

from kmufs_stream import KmufsError
from kmufs_stream.errors import did_you_mean
from kmufs_stream_cli.interrupt import Interrupted
from kmufs_stream_cli.typed import shell_line
from kmufs_stream_cli.wording import ARGUMENTS, as_typed

# The base class of usage errors, in click or in the copy of click inside newer Typer.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
RESUME = "--resume"
FLAGS = ("help", "version")  # which some type as commands
SUGGESTED = ("--k", "--h")
MEANT = {  # names that other programs have for our options
    "--clusters": "--k",
    "--n-clusters": "--k",
    "--n-features": "--h",
    "--images": "--png",
    "--output": "--out",
}
LONGEST = 500  # letters of a message from elsewhere


@dataclass(frozen=True)
class Failure:
    """An error for people and machines."""

    code: str
    message: str
    remedy: str
    exit_code: int
    kept: tuple[str, ...] = ()  # where a checkpoint is, and how to resume from it


def explain(error: BaseException, command: Sequence[str]) -> Failure:
    """Explain an exception to whoever typed the command."""
    notes = map(as_typed, getattr(error, "__notes__", []))
    kept = tuple(note for note in notes if RESUME in note)
    return replace(_explain(error, command, resumable=bool(kept)), kept=kept)


def _explain(error: BaseException, command: Sequence[str], *, resumable: bool) -> Failure:
    if isinstance(error, KmufsError):
        message, remedy = (as_typed(text, *command[1:2]) for text in (error.message, error.remedy))
        return Failure(error.code, message, remedy, error.exit_code)
    if isinstance(error, Interrupted | KeyboardInterrupt | typer.Abort):
        # A resumed run may be interrupted before it finds the checkpoint.
        how = "go on" if resumable or RESUME in command else "start again"
        again = [*command, RESUME] if resumable and RESUME not in command else command
        return Failure(
            "interrupted",
            "Interrupted; no partial output is left.",
            f"To {how}, type: {shell_line(again)}",
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
    """Explain what the parser does not understand."""
    named = [word for word in command[:2] if not word.startswith("-")]
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", " ".join(named))
    message = str(getattr(error, "format_message", lambda: error)())
    option = getattr(getattr(error, "param", None), "opts", [""])[0]
    given = [word for before, word in pairwise(command) if before == option]
    given += [word.partition("=")[2] for word in command if word.startswith(f"{option}=")]
    if given and isinstance(error, typer.BadParameter):  # a number: texts and flags are never bad
        kind = "whole number" if "integer" in message else "number"
        return Failure(
            "usage", f"{option} {given[-1]} is no {kind}.", f"Give one; see {path} --help.", 2
        )
    remedy = f"See {path} --help."
    if context is not None and "No such option" in message:
        unknown = str(getattr(error, "option_name", ""))
        known = [option[2:] for parameter in context.command.params for option in parameter.opts]
        message = f"No such option: {unknown}."
        meant = MEANT.get(unknown, unknown)
        remedy = did_you_mean(meant.lstrip("-"), known).replace("'", "'--", 1) + remedy
        if named[-1] in ARGUMENTS and meant == "--out":
            remedy = _out_as_argument(command, unknown)
    elif message.startswith("Missing") and option in SUGGESTED:
        data = next((word for word in command[2:3] if not word.startswith("-")), "DATA")
        proposed = shell_line([command[0], "sweep", data, "--suggest-k", "--suggest-h"])
        remedy = f"{remedy} To have it proposed, type: {proposed}"
    elif "No such command" in message and named[-1] in FLAGS:
        remedy = f"Type: {shell_line([command[0], *command[2:], f'--{named[-1]}'])}"
    elif "No such command" in message and Path(named[-1]).exists():
        what = shell_line([command[0], "select", *command[1:]])
        remedy = f"A command comes first, as in: {what}"
    elif "No such command" in message and context is not None:
        remedy = did_you_mean(named[-1], context.command.list_commands(context)) + remedy
    return Failure("usage", message, remedy, 2)


def _out_as_argument(command: Sequence[str], option: str) -> str:
    """Show how to type OUT, which was given as an option."""
    words = [part for w in command for part in w.split("=", w.startswith(f"{option}="))]
    at = words.index(option)
    out = [*words[at + 1 : at + 2]] or ["OUT"]
    words = [*words[:at], *words[at + 2 :]]
    words += ["DATA"] * (len(words) == 2)
    at = 3 if len(words) > 2 and not words[2].startswith("-") else len(words)
    return f"OUT is the second argument. Type: {shell_line([*words[:at], *out, *words[at:]])}"


def tell(failure: Failure, error: BaseException, *, json: bool, debug: bool) -> None:
    """Print a failure: JSON on stdout, or text on stderr, with ``debug`` the traceback too."""
    from kmufs_stream_cli.show import escaped

    if debug:
        traceback.print_exception(error, file=sys.stderr)
    if json:
        remedy = "\n".join([failure.remedy, *failure.kept]).strip()
        keys = {"code": failure.code, "message": failure.message, "remedy": remedy}
        print(jsonlib.dumps({"error": keys}))
        return
    head = "" if failure.exit_code == 130 else "Error: "
    # Only messages of the parser have lines; in others a break is part of a name.
    message = failure.message if failure.code == "usage" else escaped(failure.message)
    print(f"{head}{message}", file=sys.stderr)
    for line in filter(None, [failure.remedy, *failure.kept]):
        print(f"  {escaped(line)}", file=sys.stderr)

"""Turn an exception into a message with a hint and an exit code, and print it."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten

import typer

from kmufs_stream import KmufsError
from kmufs_stream_cli.interrupt import Interrupted
from kmufs_stream_cli.typed import shell_line
from kmufs_stream_cli.wording import as_typed

# The base class of usage errors, in click or in the copy of click inside newer Typer.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
RESUME = "--resume"
LONGEST = 500  # letters of a message from elsewhere


@dataclass(frozen=True)
class Failure:
    """An error for people and machines."""

    code: str
    message: str
    hints: list[str]
    exit_code: int

    def tell(self, *, json: bool) -> None:
        """Print JSON on stdout, or text on stderr."""
        from kmufs_stream_cli.show import say

        if json:
            keys = {"code": self.code, "message": self.message, "remedy": "\n".join(self.hints)}
            print(jsonlib.dumps({"error": keys}))
            return
        say(self.message if self.code == "interrupted" else f"Error: {self.message}")
        for hint in self.hints:
            say(f"  {hint}")


def explain(error: BaseException, command: Sequence[str]) -> Failure:
    """Explain an exception to whoever typed the command."""
    notes = map(as_typed, getattr(error, "__notes__", []))
    kept = [note for note in notes if RESUME in note]  # where a checkpoint is, and how to resume
    if isinstance(error, KmufsError):
        message, hint = (as_typed(text, *command[1:2]) for text in (error.message, error.remedy))
        code, exit_code = error.code, error.exit_code
    elif isinstance(error, Interrupted | KeyboardInterrupt | typer.Abort):
        # A resumed run may be interrupted before it finds the checkpoint.
        how = "go on" if kept or RESUME in command else "start again"
        again = [*command, RESUME] if kept and RESUME not in command else command
        code, exit_code = "interrupted", 130
        message = "Interrupted; no partial output is left."
        hint = f"To {how}, type: {shell_line(again)}"
    elif isinstance(error, UsageError):
        named = [word for word in command[:2] if not word.startswith("-")]
        path = getattr(getattr(error, "ctx", None), "command_path", " ".join(named))
        code, exit_code = "usage", 2
        message = str(getattr(error, "format_message", lambda: error)())
        hint = f"See {path} --help."
    elif isinstance(error, MemoryError):
        code, exit_code = "out_of_memory", 1
        message = "Memory ran out."
        hint = "Give a smaller --memory or --threads 1, or close other programs."
    else:
        code, exit_code = "unexpected", 1
        said = shorten(f"{type(error).__name__}: {error}", LONGEST, placeholder=" ...")
        message = f"Something unexpected broke: {said}".rstrip(": ")
        hint = "Run again with --debug to see where."
    return Failure(code, message, [*filter(None, [hint]), *kept], exit_code)

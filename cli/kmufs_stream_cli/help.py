"""What ``--help`` shows. Typer's own layout of it, in frames, takes longer than all else."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand


class Command(TyperCommand):
    """A command whose help shows its arguments, then its options, those of a kind together."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_parameters(self.get_params(ctx), ctx, formatter)


def write_parameters(parameters: list[Any], ctx: Any, formatter: Any) -> None:
    """Sections of arguments and options."""
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for parameter in parameters:
        usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
        panel = getattr(parameter, "rich_help_panel", None) or usual
        if record := parameter.get_help_record(ctx):
            name, said = record
            # Older Typer escapes brackets for its own layout.
            sections.setdefault(panel, []).append((name, said.replace(r"\[", "[")))
    for heading, records in sections.items():
        write_section(formatter, heading, records)


def write_section(formatter: Any, heading: str, records: list[tuple[str, str]]) -> None:
    """A heading, and below it names with what they mean; nothing where there are none."""
    if records:
        with formatter.section(typer.style(heading, bold=True)):
            formatter.write_dl([(typer.style(what, fg="cyan"), said) for what, said in records])


def examples(commands: list[str]) -> str:
    """What stands below a command's help: a line each, as they are."""
    return "\n".join(("\b", "Examples:", *(f"  {command}" for command in commands)))

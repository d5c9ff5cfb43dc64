"""Lay out ``--help`` in plain sections: Typer's own frames take longer than all else."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand


class Command(TyperCommand):
    """A command whose help shows arguments, then options by section."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_parameters(self.get_params(ctx), ctx, formatter)


def write_parameters(parameters: list[Any], ctx: Any, formatter: Any) -> None:
    """Write sections of arguments and options."""
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
    """Write a heading, and names with what they mean; nothing if there are none."""
    if records:
        with formatter.section(typer.style(heading, bold=True)):
            formatter.write_dl([(typer.style(what, fg="cyan"), said) for what, said in records])


def examples(commands: list[str]) -> str:
    """Format examples below a command's help, a line each."""
    return "\n".join(("\b", "Examples:", *(f"  {command}" for command in commands)))

"""kmufs-stream info"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from kmufs_stream.errors import counted
from kmufs_stream.storage.provenance import described
from kmufs_stream_cli import next_commands, options, show
from kmufs_stream_cli.failure import RESUME


def info(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="What select, decompose or apply wrote, or a checkpoint."
        ),
    ],
    addresses: options.Addresses,
    screen: options.Printing,
) -> None:
    """Tell how PATH was made: command, date, versions, data, options, outcome, sizes."""
    from kmufs_stream import info as run

    found = run(path, storage_options=addresses.storage_options())
    if screen.printed(found):
        return
    show.line(f"{found['path']}: a kmufs-stream {found['kind']}", "bold")
    show.facts(_origin(found))
    for heading in ("shape", "options", "outcome", "arrays"):
        if found[heading]:
            show.line()
            show.line(heading, "bold")
            show.facts(_facts(found, heading))
    next_commands.show_next(_next(found, addresses.storage_option))


def _origin(found: dict[str, Any]) -> list[tuple[str, str]]:
    version = found["format_version"]
    if version != found["reads"]:
        version = f"{version}, which this version cannot read: it reads {found['reads']}"
    origin = {
        "command": found["command"],
        "created": found["created"],
        "by version": found["version"],
        "format": version,
        "data": found["source"],
        "identity": found["identity"],
        "on disk": show.size(found["bytes"]),
    }
    if found["kind"] == "checkpoint":
        del origin["identity"]
    return described(origin)


def _facts(found: dict[str, Any], heading: str) -> list[tuple[str, str]]:
    values: Mapping[str, Any] = found[heading]
    if heading == "arrays":
        return [(name, _array(array)) for name, array in values.items()]
    if heading == "outcome" and found["kind"] == "checkpoint":
        whole, part = counted(values["reads_kept"], "reads"), values["of_next_read"]
        return [("reads", f"{whole} of the data done, and {part:.0%} of the next")]
    return described(values)


def _array(array: Mapping[str, Any]) -> str:
    kind = "text" if array["dtype"] == "StringDType()" else array["dtype"]
    if "first" in array:
        kind = f"times, {array['first']} to {array['last']}"
    return f"{' x '.join(map(str, array['shape'])) or 'scalar'} {kind}"


def _next(found: dict[str, Any], stores: list[str] | None) -> str | None:
    """Say what can be done with it."""
    path, made = found["path"], found["command"]
    if found["format_version"] != found["reads"]:
        return None
    if found["kind"] == "selection":
        return next_commands.report(path, stores=stores)
    if found["kind"] == "factor":
        return next_commands.sweep(path, found["shape"]["k"], stores)
    if found["kind"] == "application":
        # Normalised rows take all features.
        whole = found["source"] if "normalise-rows" in found["options"]["transforms"] else None
        return next_commands.command("evaluate", path, data=whole, storage_option=stores)
    return made if made is None or RESUME in shlex.split(made) else f"{made} {RESUME}"

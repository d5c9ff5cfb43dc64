"""kmufs-stream info"""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer

from kmufs_stream.errors import counted
from kmufs_stream.storage.provenance import in_words, named
from kmufs_stream_cli import options, show
from kmufs_stream_cli.failure import RESUME
from kmufs_stream_cli.table import storage_options


def info(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="What select, decompose or apply wrote, or a checkpoint."
        ),
    ],
    storage_option: options.StorageOption = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Tell how PATH was made: command, date, versions, data, options, outcome, sizes."""
    from kmufs_stream import info as run

    found = run(path, storage_options=storage_options(storage_option))
    if json:
        show.as_json(found)
        return
    out = show.console()
    show.line(out, f"{found['path']}: a kmufs-stream {found['kind']}", "bold")
    show.facts(out, _origin(found))
    unfinished = found["kind"] == "checkpoint"
    for heading in ("shape", "options", "outcome"):
        if found[heading]:
            show.line(out)
            show.line(out, heading, "bold")
            show.facts(
                out,
                [("reads", _so_far(found[heading]))]
                if unfinished and heading == "outcome"
                else [(named(n), in_words(v)) for n, v in found[heading].items()],
            )
    if found["arrays"]:
        show.line(out)
        show.line(out, "arrays", "bold")
        show.facts(
            out,
            [
                (
                    name,
                    f"{' x '.join(map(str, array['shape'])) or 'scalar'} {_kind(array)}",
                )
                for name, array in found["arrays"].items()
            ],
        )
    show.next_commands(out, *_next(found, storage_option))


def _next(found: dict[str, Any], stores: list[str] | None) -> list[str]:
    """What to do with it."""
    path, made = found["path"], found["command"]
    if found["format_version"] != found["reads"]:
        return []
    if found["kind"] == "selection":
        return show.report(path, stores)
    if found["kind"] == "checkpoint":
        resumed = made if made is None or RESUME in shlex.split(made) else f"{made} {RESUME}"
        return [] if resumed is None else [resumed]
    asked: dict[str, Any] = {"storage_option": stores}
    if found["kind"] == "factor":
        k = found["shape"]["k"]
        return [show.command("sweep", path, k=k, suggest_h=True, **asked)]
    return [show.command("evaluate", path, **asked)]


def _so_far(outcome: dict[str, Any]) -> str:
    """How far a run came, of whose reads the last may be kept in part."""
    whole, part = outcome["reads_kept"], outcome["of_next_read"]
    return f"{counted(whole, 'reads')} of the data done, and {part:.0%} of the next"


def _kind(array: dict[str, Any]) -> str:
    if "first" in array:
        return f"times, {array['first']} to {array['last']}"
    return "text" if array["dtype"] == "StringDType()" else str(array["dtype"])


def _origin(found: dict[str, Any]) -> list[tuple[str, str]]:
    version = in_words(found["format_version"])
    if found["format_version"] != found["reads"]:
        version += f", which this version cannot read: it reads {found['reads']}"
    return [
        ("command", in_words(found["command"])),
        ("created", in_words(found["created"])),
        ("by version", in_words(found["version"])),
        ("format", version),
        ("data", in_words(found["source"])),
        *([] if found["kind"] == "checkpoint" else [("identity", in_words(found["identity"]))]),
        ("on disk", show.size(found["bytes"])),
    ]

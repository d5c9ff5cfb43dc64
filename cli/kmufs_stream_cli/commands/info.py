"""kmufs-stream info"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kmufs_stream_cli import options, show


def info(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="What select, decompose or apply wrote, or a checkpoint."
        ),
    ],
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Tell how PATH was made: command, date, versions, data, options, outcome, sizes."""
    from kmufs_stream import info as run

    found = run(path)
    if json:
        show.as_json(found)
        return
    out = show.console()
    show.line(out, f"{found['path']}: a kmufs-stream {found['kind']}", "bold")
    show.facts(out, _origin(found))
    for heading in ("shape", "options", "outcome"):
        if found[heading]:
            show.line(out)
            show.line(out, heading, "bold")
            show.facts(out, [(n.replace("_", " "), _text(v)) for n, v in found[heading].items()])
    if found["arrays"]:
        show.line(out)
        show.line(out, "arrays", "bold")
        show.facts(
            out,
            [
                (name, f"{' x '.join(map(str, array['shape'])) or 'scalar'} {array['dtype']}")
                for name, array in found["arrays"].items()
            ],
        )


def _origin(found: dict[str, Any]) -> list[tuple[str, str]]:
    version = _text(found["format_version"])
    if found["format_version"] != found["reads"]:
        version += f", which this version cannot read: it reads {found['reads']}"
    return [
        ("command", _text(found["command"])),
        ("created", _text(found["created"])),
        ("by version", _text(found["version"])),
        ("format", version),
        ("data", _text(found["source"])),
        ("identity", _text(found["identity"])),
        ("on disk", show.size(found["bytes"])),
    ]


def _text(value: Any) -> str:
    if value is None:
        return "not recorded"
    if value == "":
        return "none"
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return f"{value:.10g}" if isinstance(value, float) else str(value)

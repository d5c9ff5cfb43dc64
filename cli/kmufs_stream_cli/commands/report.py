"""kmufs-stream report"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from kmufs_stream_cli import next_commands, options, show
from kmufs_stream_cli.groups import Group
from kmufs_stream_cli.progress import shown
from kmufs_stream_cli.typed import typed

SEVERAL = "report.html"


@dataclass(frozen=True)
class Written(Group):
    """The files that a report makes."""

    out: str | None = options.in_output(
        None,
        "Page to write; by default RESULT's name + .report.html in this folder, "
        f"{SEVERAL} of several.",
        "FILE",
    )
    png: str | None = options.in_output(
        None,
        "Write the figures as PNG too: all in one image, or one each into a folder.",
        "FILE.png|FOLDER",
    )


def report(
    results: Annotated[
        list[str],
        typer.Argument(
            metavar="RESULT...",
            help="What select wrote, a folder or an address; what sweep wrote by --csv, or printed "
            "by --json.",
        ),
    ],
    *,
    written: Written,
    addresses: options.Addresses,
    overwrite: options.Overwrite = False,
    screen: options.Printing,
) -> None:
    """Show selections and sweeps on one HTML page that needs nothing else; compare several."""
    from kmufs_stream import report as run

    usual = SEVERAL if len(results) > 1 else next_commands.default_output("report", results[0])
    with shown(log=False, quiet=False) as progress:
        done = run(
            results,
            out=usual if written.out is None else written.out,
            png=written.png,
            overwrite=overwrite,
            storage_options=addresses.storage_options(),
            command=typed(),
            progress=progress,
        )
    summary = done.summary()
    if screen.printed(summary):
        return
    page = f"{done.output} ({show.size(summary['bytes'])})"
    images = [("image", image) for image in summary["images"]]
    show.facts([*show.took(summary), ("page", page), *images])

"""kmufs-stream report"""

from __future__ import annotations

from typing import Annotated

import typer

from kmufs_stream_cli import options, outputs, show
from kmufs_stream_cli.progress import shown
from kmufs_stream_cli.table import storage_options
from kmufs_stream_cli.typed import typed

SEVERAL = "report.html"


def report(
    results: Annotated[
        list[str],
        typer.Argument(
            metavar="RESULT...",
            help="What select wrote, a folder or an address; what sweep wrote by --csv, or printed "
            "by --json.",
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Page to write; by default RESULT's name + .report.html in this folder, "
            f"{SEVERAL} of several.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    png: Annotated[
        str | None,
        typer.Option(
            "--png",
            metavar="FILE.png|FOLDER",
            help="Write the figures as PNG too: all in one image, or one each into a folder.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    storage_option: options.StorageOption = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Show selections and sweeps on one HTML page that needs nothing else; compare several."""
    from kmufs_stream import report as run

    usual = SEVERAL if len(results) > 1 else outputs.default_output("report", results[0])
    with shown(log=False, quiet=False) as progress:
        done = run(
            results,
            out=usual if out is None else out,
            png=png,
            overwrite=overwrite,
            storage_options=storage_options(storage_option),
            command=typed(),
            progress=progress,
        )
    if json:
        show.as_json(done.summary())
        return
    console = show.console()
    size = show.size(done.summary()["bytes"])
    images = [("image", str(file)) for file in done.images]
    show.facts(console, [*show.took(done.summary()), ("page", f"{done.output} ({size})"), *images])

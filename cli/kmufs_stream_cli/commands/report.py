"""kmufs-stream report"""

from __future__ import annotations

from typing import Annotated

import typer

from kmufs_stream_cli import options, show
from kmufs_stream_cli.table import storage_options
from kmufs_stream_cli.typed import typed


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
        str,
        typer.Option(
            "--out", metavar="FILE", help="Page to write.", rich_help_panel=options.OUTPUT
        ),
    ] = "report.html",
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

    done = run(
        results,
        out=out,
        png=png,
        overwrite=overwrite,
        storage_options=storage_options(storage_option),
        command=typed(),
    )
    if json:
        show.as_json(done.summary())
        return
    console = show.console()
    size = show.size(done.summary()["bytes"])
    show.facts(
        console,
        [("page", f"{done.output} ({size})"), *(("image", str(file)) for file in done.images)],
    )

"""kmufs-stream rechunk"""

from __future__ import annotations

from typing import Annotated

import typer

from kmufs_stream_cli import options, outputs, show
from kmufs_stream_cli.progress import opened, shown
from kmufs_stream_cli.table import StoreOptions, on_table
from kmufs_stream_cli.typed import typed


@on_table
def rechunk(
    table: StoreOptions,
    out: Annotated[
        str | None,
        typer.Argument(
            metavar="OUT",
            callback=outputs.lasting,
            help="Zarr store to write, a path or address; DATA's name + .rechunked.zarr in this "
            "folder by default.",
        ),
    ] = None,
    memory: options.Memory = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on from what an earlier run has left in OUT.checkpoint.",
            rich_help_panel=options.RESOURCES,
        ),
    ] = False,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    log: options.Log = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Write a table again in chunks of few rows, within a memory budget.

    For stores whose chunks span all rows, or one feature each.
    """
    from kmufs_stream import rechunk as run

    matrix = opened(table, log=log, quiet=quiet)
    with shown(log=log, quiet=quiet) as progress:
        done = run(
            matrix,
            outputs.default_output("rechunk", table.data) if out is None else out,
            memory=memory,
            resume=resume,
            overwrite=overwrite,
            storage_options=table.storage_options(),
            command=typed(),
            progress=progress,
        )
    if json:
        show.as_json(done.summary())
        return
    console = show.console()
    (n, p), before, after = done.shape, done.chunks_before, done.chunks
    show.line(console, f"Wrote {n:,} samples x {p:,} features in other chunks.", "bold")
    rows = [
        ("before", f"{before[0]:,} x {before[1]:,}"),
        ("now", f"{after[0]:,} x {after[1]:,}"),
        *show.took(done.summary()),
        ("output", str(done.output)),
    ]
    show.facts(console, rows)
    more = {"feature_labels": table.feature_labels, "storage_option": table.storage_option}
    show.next_plan(console, str(done.output), p, **more)

"""kmufs-stream rechunk"""

from __future__ import annotations

from typing import Annotated

import typer

from kmufs_stream_cli import next_commands, options, show
from kmufs_stream_cli.typed import typed


def rechunk(
    data: options.Data,
    table: options.Store,
    out: Annotated[
        str | None, options.output_argument("DATA's name + .rechunked.zarr in this folder")
    ] = None,
    *,
    resources: options.Memory,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on from what an earlier run has left in OUT.checkpoint.",
            rich_help_panel=options.RESOURCES,
        ),
    ] = False,
    overwrite: options.Overwrite = False,
    screen: options.Showing,
) -> None:
    """Write a table again in chunks of few rows, within a memory budget.

    For stores whose chunks span all rows, or one feature each.
    """
    from kmufs_stream import rechunk as run

    matrix = screen.opened(table, data)
    with screen.progress() as progress:
        done = run(
            matrix,
            next_commands.default_output("rechunk", data) if out is None else out,
            **vars(resources),
            resume=resume,
            overwrite=overwrite,
            storage_options=table.storage_options(),
            command=typed(),
            progress=progress,
        )
    summary = done.summary()
    if screen.printed(summary):
        return
    (n, p), before, after = done.shape, done.chunks_before, done.chunks
    show.line(f"Wrote {n:,} samples x {p:,} features in other chunks.", "bold")
    rows = [
        ("chunks", f"{before[0]:,} x {before[1]:,} before, {after[0]:,} x {after[1]:,} now"),
        *show.took(summary),
        ("output", summary["output"]),
    ]
    show.facts(rows)
    more = {"feature_labels": table.feature_labels, "storage_option": table.storage_option}
    next_commands.show_plan(summary["output"], p, **more)

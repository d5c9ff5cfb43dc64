"""kmufs-stream update"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from kmufs_stream_cli import next_commands, options
from kmufs_stream_cli.commands.decompose import show_factor, summary_of
from kmufs_stream_cli.typed import typed


def update(
    factor: Annotated[
        str, typer.Argument(metavar="FACTOR", help="What decompose wrote, by method gram.")
    ],
    *,
    data: Annotated[
        str,
        typer.Option(
            "--with",
            metavar="NEW",
            help="The rows to add: whatever decompose takes, with the same features.",
        ),
    ],
    table: options.Store,
    out: Annotated[str | None, options.output("FACTOR itself, which takes --overwrite,")] = None,
    overwrite: options.Overwrite = False,
    resources: options.Cluster,
    screen: options.Showing,
) -> None:
    """Add rows to a factor: only they are read, and it becomes the factor of all rows.

    Transforms, features that take part and what becomes of missing values are FACTOR's. NEW is
    opened with the options recorded in FACTOR: give those below only where NEW is different.
    """
    from kmufs_stream import update as run

    began = time.perf_counter()
    matrix = screen.opened(table, data, like=factor)
    target = factor if out is None else out
    with resources.connected() as used, screen.progress() as progress:
        updated = run(
            factor,
            matrix,
            out=target,
            overwrite=overwrite,
            **used,
            storage_options=table.storage_options(),
            command=typed(),
            progress=progress,
        )
    summary = summary_of(updated, target, time.perf_counter() - began)
    summary["samples_added"] = matrix.shape[0]
    if screen.printed(summary):
        return
    show_factor(updated, summary, f"Added {matrix.shape[0]:,} samples, decomposed")
    again = next_commands.sweep(target, updated.k, table.storage_option)
    next_commands.show_next(again)

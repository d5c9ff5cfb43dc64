"""kmufs-stream update"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from kmufs_stream_cli import options, outputs, show
from kmufs_stream_cli.commands.decompose import show_factor, summary_of, sweep_of
from kmufs_stream_cli.progress import opened, shown
from kmufs_stream_cli.table import StoreOptions, on_table
from kmufs_stream_cli.typed import typed


@on_table
def update(
    factor: Annotated[
        str, typer.Argument(metavar="FACTOR", help="What decompose wrote, by method gram.")
    ],
    table: Annotated[
        StoreOptions,
        typer.Option(
            "--with",
            metavar="NEW",
            help="The rows to add: whatever decompose takes, with the same features.",
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="PATH",
            callback=outputs.lasting,
            help="Zarr store to write; by default FACTOR itself, which takes --overwrite.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    threads: options.Threads = None,
    memory: options.Memory = None,
    scheduler: options.Scheduler = None,
    workers: options.Workers = None,
    json: options.Json = False,
    log: options.Log = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Add rows to a factor: only they are read, and it becomes the factor of all rows.

    Transforms, features that take part and what becomes of missing values are FACTOR's, and it
    knows where in NEW the table is: the options below that say so are for data unlike its own.
    """
    from kmufs_stream import update as run
    from kmufs_stream.streaming.cluster import connected

    began = time.perf_counter()
    matrix = opened(table, log=log, quiet=quiet, like=factor)
    target = factor if out is None else out
    with (
        connected(scheduler, workers, threads=threads, memory=memory) as share,
        shown(log=log, quiet=quiet) as progress,
    ):
        updated = run(
            factor,
            matrix,
            out=target,
            overwrite=overwrite,
            memory=share,
            threads=threads,
            storage_options=table.storage_options(),
            command=typed(),
            progress=progress,
        )
    summary = summary_of(updated, target, time.perf_counter() - began)
    summary["samples_added"] = matrix.shape[0]
    if json:
        show.as_json(summary)
        return
    show_factor(updated, summary, f"Added {matrix.shape[0]:,} samples, decomposed")
    show.next_commands(show.console(), sweep_of(updated, target, table.storage_option))

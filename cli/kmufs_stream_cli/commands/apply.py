"""kmufs-stream apply"""

from __future__ import annotations

from typing import Annotated

import typer

from kmufs_stream_cli import options, outputs, show
from kmufs_stream_cli.commands.evaluate import likely_labels
from kmufs_stream_cli.progress import opened, shown
from kmufs_stream_cli.table import StoreOptions, on_table
from kmufs_stream_cli.typed import typed


@on_table
def apply(
    result: Annotated[
        str, typer.Argument(metavar="RESULT", help="What select wrote: a folder or an address.")
    ],
    table: Annotated[
        StoreOptions, typer.Argument(metavar="NEW", help="The new data: whatever select takes.")
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="PATH",
            callback=outputs.lasting,
            help="Zarr store to write, a path or address; NEW's name + .selected.zarr in this "
            "folder by default.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    threads: options.Threads = None,
    memory: options.Memory = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    log: options.Log = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Take the features that RESULT chose from new data, matched by label.

    By position where there are no labels; the numbers of features then have to agree. RESULT knows
    where in NEW the table is: the options below that say so are for data unlike its own.
    """
    from kmufs_stream import apply as run

    matrix = opened(table, log=log, quiet=quiet, like=result)
    with shown(log=log, quiet=quiet) as progress:
        done = run(
            result,
            matrix,
            out=outputs.default_output("apply", table.data) if out is None else out,
            overwrite=overwrite,
            memory=memory,
            threads=threads,
            storage_options=table.storage_options(),
            command=typed(),
            progress=progress,
        )
    if json:
        show.as_json(done.summary())
        return
    console = show.console()
    show.line(
        console,
        f"Took {len(done.columns):,} features of {done.samples:,} samples, matched by "
        f"{done.matched}.",
        "bold",
    )
    output = str(done.output)
    show.facts(console, [*show.took(done.summary()), ("output", output)])
    labels = next(iter(likely_labels(output, table)), None)
    show.next_commands(
        console,
        show.command("evaluate", output, labels=labels, storage_option=table.storage_option),
        show.opened(output, table.storage_options()),
    )

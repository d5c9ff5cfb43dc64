"""kmufs-stream apply"""

from __future__ import annotations

from typing import Annotated

import typer

from kmufs_stream_cli import next_commands, options, show
from kmufs_stream_cli.typed import typed


def apply(
    result: Annotated[
        str, typer.Argument(metavar="RESULT", help="What select wrote: a folder or an address.")
    ],
    data: Annotated[
        str, typer.Argument(metavar="NEW", help="The new data: whatever select takes.")
    ],
    table: options.Store,
    *,
    out: Annotated[str | None, options.output("NEW's name + .selected.zarr in this folder")] = None,
    overwrite: options.Overwrite = False,
    resources: options.Threads,
    screen: options.Showing,
) -> None:
    """Take the features that RESULT chose from new data, matched by label.

    Without labels they are matched by position; then the numbers of features must agree. NEW is
    opened with the options recorded in RESULT: give those below only where NEW is different.
    """
    from kmufs_stream import apply as run

    matrix = screen.opened(table, data, like=result)
    with screen.progress() as progress:
        done = run(
            result,
            matrix,
            out=next_commands.default_output("apply", data) if out is None else out,
            overwrite=overwrite,
            **vars(resources),
            storage_options=table.storage_options(),
            command=typed(),
            progress=progress,
        )
    summary = done.summary()
    if screen.printed(summary):
        return
    show.line(
        f"Took {summary['h']:,} features of {done.samples:,} samples, matched by {done.matched}.",
        "bold",
    )
    output = summary["output"]
    show.facts([*show.took(summary), ("output", output)])
    next_commands.show_next(
        next_commands.command(
            "evaluate",
            output,
            labels=done.likely_classes[:1],
            data=None if done.self_contained else data,
            storage_option=table.storage_option,
        )
    )

"""kmufs-stream apply"""

from __future__ import annotations

from typing import Annotated

import typer

from kmufs_stream_cli import options, show
from kmufs_stream_cli.progress import shown
from kmufs_stream_cli.table import split, storage_options
from kmufs_stream_cli.typed import typed


def apply(
    result: Annotated[
        str, typer.Argument(metavar="RESULT", help="What select wrote: a Zarr store (a folder).")
    ],
    data: Annotated[
        str, typer.Argument(metavar="NEW", help="The new data: whatever select takes.")
    ],
    out: Annotated[str, typer.Option("--out", metavar="PATH", help="Store to write.")],
    variable: options.Variable = None,
    group: options.Group = None,
    sample_dims: options.SampleDims = None,
    feature_dims: options.FeatureDims = None,
    layer: options.Layer = None,
    raw: options.Raw = False,
    feature_labels: options.FeatureLabels = None,
    fill_missing_chunks: options.FillMissingChunks = False,
    storage_option: options.StorageOption = None,
    threads: options.Threads = None,
    memory: options.Memory = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    log: options.Log = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Take the features that RESULT chose from new data, matched by label.

    By position where there are no labels; the numbers of features then have to agree.
    """
    from kmufs_stream import apply as run
    from kmufs_stream import open_matrix

    stores = storage_options(storage_option)
    matrix = open_matrix(
        data,
        variable=variable,
        group=group,
        sample_dims=split(sample_dims),
        feature_dims=split(feature_dims),
        layer=layer,
        raw=raw,
        feature_labels=feature_labels,
        fill_missing_chunks=fill_missing_chunks,
        storage_options=stores,
    )
    with shown(log=log, quiet=quiet) as progress:
        done = run(
            result,
            matrix,
            out=out,
            overwrite=overwrite,
            memory=memory,
            threads=threads,
            storage_options=stores,
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
    show.facts(console, [*show.took(done.summary()), ("output", str(done.output))])
    show.next_commands(console, show.opened(str(done.output)))

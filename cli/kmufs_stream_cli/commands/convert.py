"""kmufs-stream convert"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

import typer

from kmufs_stream.errors import counted
from kmufs_stream_cli import options, outputs, show
from kmufs_stream_cli.progress import shown
from kmufs_stream_cli.table import storage_options
from kmufs_stream_cli.wording import as_typed


def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help="A .csv, .tsv, .parquet (file or folder), .npy, .npz, NetCDF, HDF5 or .mat file, "
            "or a 10x folder. FILE::NAME is what is meant inside a file: data.h5::/counts.",
        ),
    ],
    out: Annotated[
        str | None,
        typer.Argument(
            metavar="OUT",
            callback=outputs.lasting,
            help="Zarr store to write, a path or address; IN's name + .zarr in this folder by "
            "default.",
        ),
    ] = None,
    index_column: Annotated[
        str | None,
        typer.Option(
            "--index-column",
            metavar="NAME",
            help=".csv, .parquet: the column that names the samples.",
        ),
    ] = None,
    coordinate: Annotated[
        list[str] | None,
        typer.Option(
            "--coordinate",
            metavar="NAME",
            help=".csv, .parquet: a column of numbers that describes the samples, such as a class "
            "or a year; columns of text always do. May be repeated.",
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            metavar="NAME",
            help="Store the values as float32 or another dtype: rounded where it is floating "
            "point, refused where an integer cannot be one.",
        ),
    ] = None,
    memory: options.Memory = None,
    storage_option: options.StorageOption = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    log: options.Log = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Turn a file of another format into a Zarr store, in blocks of some MB."""
    from kmufs_stream import convert as run

    with shown(log=log, quiet=quiet) as progress:
        done = run(
            source,
            outputs.default_output("convert", source) if out is None else out,
            index_column=index_column,
            coordinates=coordinate or (),
            dtype=dtype,
            memory=memory,
            overwrite=overwrite,
            storage_options=storage_options(storage_option),
            progress=progress,
        )
    notes = [*map(as_typed, done.notes)]
    if json:
        show.as_json({**done.summary(), "notes": notes})
        return
    console = show.console()
    sizes = ", ".join(f"{dim} {size:,}" for dim, size in done.sizes.items())
    show.line(console, f"Converted {source}: {sizes}.", "bold")
    facts = [("coordinates", _named(done.columns))] if done.columns else []
    if done.features:
        facts.append(("features", show.few(done.features)))
    missing = done.missing or {}
    parts = missing.get("features", 0) > missing.get("features_without_any", 0)
    if missing.get("values"):
        facts.append(("missing", _missing(missing, parts=parts)))
    facts += [("note", note) for note in notes]
    show.facts(console, [*facts, *show.took(done.summary()), ("output", str(done.output))])
    if done.format == "netcdf" and not done.tables:
        return
    variable, table = next(iter(done.tables.items()), (None, done.sizes))
    samples, *others = table
    show.next_plan(
        console,
        str(done.output),
        math.prod(table[dim] for dim in others),
        variable=variable if len(done.tables) > 1 else None,
        sample_dims=samples if len(others) > 1 else None,
        missing="mean" if parts else None,
        storage_option=storage_option,
    )


def _missing(missing: Mapping[str, int], *, parts: bool) -> str:
    """How much is missing, and what to say about it."""
    empty = missing["features_without_any"]
    values, features, samples = (counted(missing[n], n) for n in ("values", "features", "samples"))
    said = f"{values}, in {features} and {samples}"
    if empty:
        said += f"; {empty:,} of the features have no value at all, and are left out anyway"
    return said + "; say --missing mean, drop-features or drop-samples" * parts


def _named(columns: Mapping[str, str]) -> str:
    """Coordinates, and the columns that they were where these have other names."""
    said = (c if c == column else f"{c} (column {column!r})" for c, column in columns.items())
    return ", ".join(said)

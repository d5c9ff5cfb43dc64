"""kmufs-stream convert"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import typer

from kmufs_stream.errors import counted, first_few
from kmufs_stream_cli import next_commands, options, show
from kmufs_stream_cli.groups import Group, section
from kmufs_stream_cli.wording import as_typed

in_options = section("Options")


@dataclass(frozen=True)
class Values(Group):
    """What the values of a file are."""

    index_column: str | None = in_options(
        None, ".csv, .parquet: the column that names the samples.", "NAME"
    )
    coordinate: list[str] | None = in_options(
        None,
        ".csv, .parquet: a column of numbers that describes the samples, such as a class or a "
        "year; columns of text always do. May be repeated.",
        "NAME",
    )
    dtype: str | None = in_options(
        None,
        "Store the values as float32 or another dtype: rounded if it is floating point, refused "
        "if an integer dtype cannot hold them.",
        "NAME",
    )


def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help="A .csv, .tsv, .parquet (file or folder), .npy, .npz, NetCDF, HDF5 or .mat file, "
            "or a 10x folder. FILE::NAME names a table inside a file: data.h5::/counts.",
        ),
    ],
    out: Annotated[str | None, options.output_argument("IN's name + .zarr in this folder")] = None,
    *,
    values: Values,
    resources: options.Memory,
    addresses: options.Addresses,
    overwrite: options.Overwrite = False,
    screen: options.Showing,
) -> None:
    """Turn a file of another format into a Zarr store, in blocks of some MB."""
    from kmufs_stream import convert as run

    with screen.progress() as progress:
        done = run(
            source,
            next_commands.default_output("convert", source) if out is None else out,
            index_column=values.index_column,
            coordinates=values.coordinate or (),
            dtype=values.dtype,
            **vars(resources),
            overwrite=overwrite,
            storage_options=addresses.storage_options(),
            progress=progress,
        )
    notes = [*map(as_typed, done.notes)]
    summary = {**done.summary(), "notes": notes}
    if screen.printed(summary):
        return
    sizes = ", ".join(f"{dim} {size:,}" for dim, size in done.sizes.items())
    show.line(f"Converted {source}: {sizes}.", "bold")
    facts = [("coordinates", ", ".join(done.columns))] if done.columns else []
    if done.features:
        facts.append(("features", first_few(done.features)))
    missing = done.missing or {}
    parts = missing.get("features", 0) > missing.get("features_without_any", 0)
    if missing.get("values"):
        numbers, *where = (counted(missing[n], n) for n in ("values", "features", "samples"))
        facts.append(("missing", f"{numbers}, in {' and '.join(where)}"))
    facts += [("note", note) for note in notes]
    show.facts([*facts, *show.took(summary), ("output", summary["output"])])
    if done.format == "netcdf" and not done.tables:
        return
    variable, table = next(iter(done.tables.items()), (None, done.sizes))
    samples, *others = table
    next_commands.show_plan(
        summary["output"],
        math.prod(table[dim] for dim in others),
        variable=variable if len(done.tables) > 1 else None,
        sample_dims=samples if len(others) > 1 else None,
        missing="mean" if parts else None,
        storage_option=addresses.storage_option,
    )

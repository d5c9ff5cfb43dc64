"""kmufs-stream plan"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kmufs_stream.errors import counted
from kmufs_stream_cli import next_commands, options, show
from kmufs_stream_cli.wording import as_typed

if TYPE_CHECKING:
    from kmufs_stream import Matrix, Plan

LABELS = 5  # that are shown


def plan(
    data: options.Data,
    table: options.Table,
    k: options.K,
    h: options.H,
    *,
    factoring: options.Factoring,
    choosing: options.Choosing,
    resources: options.Reading,
    screen: options.Printing,
) -> None:
    """Show what select would do with DATA, and the memory it would take. Nothing is computed."""
    from kmufs_stream import load_factor, plan_selection

    matrix, known = table.open(data, like=choosing.factor), None
    if choosing.factor is not None:
        known = load_factor(choosing.factor, storage_options=table.storage_options())
    with resources.connected() as used:
        made = plan_selection(
            matrix,
            k,
            h,
            **{**vars(choosing), "factor": known},
            **factoring.keywords(),
            **used,
            screening=table.screening(),
        )
    missing = (table.screening() if known is None else known.screening).missing
    transforms = matrix.transforms or (() if known is None else known.transforms)
    summary = {
        "source": matrix.source,
        "variable": matrix.metadata.name,
        "sample_dim": matrix.metadata.sample_dim,
        "feature_dim": matrix.metadata.feature_dim,
        "transforms": list(transforms),
        "first_labels": matrix.first_labels(LABELS),
        "k": k,
        "h": h,
        "solver": choosing.solver,
        "missing": missing,
        **made.summary(),
    }
    if screen.printed(summary):
        return
    show.line(f"{matrix.source}: {matrix.metadata.name}", "bold")
    notes = [("note", as_typed(note)) for note in made.notes]
    show.facts([*plan_facts(matrix, made, transforms), ("missing", missing), *notes])
    more = table.typed() | choosing.typed() | factoring.typed() | resources.typed()
    next_commands.show_next(next_commands.command("select", data, k=k, h=h, **more))


def plan_facts(matrix: Matrix, made: Plan, transforms: Sequence[str]) -> list[tuple[str, str]]:
    """Say what a plan decides for a table whose values are transformed so."""
    (samples, features), layout = made.table.shape, made.table.layout
    shape = (
        f"{samples:,} samples ({matrix.metadata.sample_dim}) x {features:,} features "
        f"({matrix.metadata.feature_dim})"
    )
    if made.table.columns < features:
        shape += f", of which {made.table.columns:,} take part"
    dtype = str(made.table.dtype)
    if layout.dtype != made.table.dtype:
        dtype += f", stored as {layout.dtype}"
    if transforms:
        dtype += ", transformed by " + ", then ".join(transforms)
    labels = "none found, features are numbered"
    if (first := matrix.first_labels(LABELS)) is not None:
        labels = ", ".join(map(str, first)) + (", ..." if features > LABELS else "")
    threads = f"{made.threads:,}"
    if made.cluster is not None:
        threads += (
            f" in each of {counted(made.cluster.workers, 'workers')}, "
            f"{show.size(made.worker_peak)} predicted at most"
        )
    at_most = "at most " if made.reads > 1 else ""
    return [
        ("shape", shape),
        ("dtype", dtype),
        ("chunks", _chunks(made)),
        ("labels", labels),
        *[("note", as_typed(note)) for note in (matrix.hint, matrix.doubt) if note],
        ("method", f"{made.method}, products of blocks in {made.precision}"),
        (
            "blocks",
            f"{min(made.block_rows, samples):,} rows, {made.blocks_per_partition:,} per partition, "
            f"{counted(len(made.partitions), 'partitions')}",
        ),
        ("threads", threads),
        ("reads", f"{at_most}{made.reads} for the factor, then the chosen columns once"),
        ("output", f"{show.size(made.output_bytes)} before compression"),
        ("memory", f"{show.size(made.peak)} predicted at most, of {show.size(made.budget)}"),
        *[("to fit", concession) for concession in made.concessions],
    ]


def _chunks(made: Plan) -> str:
    """Say how the values are stored, and so what is read at a time."""
    layout = made.table.layout
    if (sparse := layout.sparsity) is not None:
        return f"sparse, {sparse.indptr[-1]:,} entries in chunks of {sparse.chunk_entries:,}"
    said = f"{counted(layout.chunk_rows, 'samples')} x {counted(layout.chunk_columns, 'features')}"
    if layout.shard_rows != layout.chunk_rows:
        said += f", in shards of {counted(layout.shard_rows, 'samples')}"
    if made.table.is_one_block:
        said += "; one chunk spans all samples, so the whole table is one block: see rechunk"
    return said

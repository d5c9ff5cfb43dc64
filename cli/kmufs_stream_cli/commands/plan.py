"""kmufs-stream plan"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kmufs_stream.errors import counted
from kmufs_stream_cli import next_commands, options, show
from kmufs_stream_cli.wording import as_typed

if TYPE_CHECKING:
    from kmufs_stream import Matrix, Plan

LABELS = 5  # that are shown
UNSEEN = "not looked for before select reads; "
MISSING = {
    "raise": f"{UNSEEN}if a value is missing, the run ends: say --missing mean, drop-features or "
    "drop-samples then",
    "mean": f"{UNSEEN}where a value is missing, its feature's mean stands in",
    "drop-features": f"{UNSEEN}features with any missing value are left out",
    "drop-samples": f"{UNSEEN}samples with any missing value are left out",
}


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
    asked = {"k": k, "h": h, "solver": choosing.solver, "missing": missing}
    if screen.printed({**_about(matrix, transforms), **asked, **made.summary()}):
        return
    show.line(f"{matrix.source}: {matrix.metadata.name}", "bold")
    told = [("missing", MISSING[missing])] if made.table.dtype.kind == "f" else []
    told += [("note", as_typed(note)) for note in made.notes]
    show.facts([*plan_facts(matrix, made, transforms), *told])
    show.line()
    show.line("Memory by stage; they follow each other, so the largest counts:")
    peaks = [(stage, show.size(peak)) for stage, peak in made.stages.items()]
    show.table([("stage", False), ("memory", True)], peaks)
    more = table.typed() | choosing.typed() | factoring.typed() | resources.typed()
    commands = [next_commands.command("select", data, k=k, h=h, **more)]
    if made.table.is_one_block:
        commands.append(next_commands.command("rechunk", data, **table.located()))
    next_commands.show_next(*commands)


def _about(matrix: Matrix, transforms: Sequence[str]) -> dict[str, Any]:
    """Names of a table, in plain JSON types."""
    return {
        "source": matrix.source,
        "variable": matrix.metadata.name,
        "sample_dim": matrix.metadata.sample_dim,
        "feature_dim": matrix.metadata.feature_dim,
        "transforms": list(transforms),
        "first_labels": matrix.first_labels(LABELS),
    }


def plan_facts(matrix: Matrix, made: Plan, transforms: Sequence[str]) -> list[tuple[str, str]]:
    """Say what a plan decides for a table whose values are transformed so."""
    (samples, features), layout = made.table.shape, made.table.layout
    shape = (
        f"{samples:,} samples ({matrix.metadata.sample_dim}) x {features:,} features "
        f"({matrix.metadata.feature_dim})"
    )
    if made.table.columns < features:
        shape += f", of which {made.table.columns:,} take part"
    if matrix.hint:
        shape += f"; {as_typed(matrix.hint)}"
    dtype = str(made.table.dtype)
    if layout.dtype != made.table.dtype:
        dtype += f", stored as {layout.dtype}"
    if transforms:
        dtype += ", transformed by " + ", then ".join(transforms)
    labels = "none found, features are numbered"
    if (first := matrix.first_labels(LABELS)) is not None:
        labels = ", ".join(map(str, first)) + (", ..." if features > LABELS else "")
    rejected = "; ".join(f"{name}: {why}" for name, why in made.rejected.items())
    at_most = "at most " if made.reads > 1 else ""
    return [
        ("shape", shape),
        ("dtype", dtype),
        ("chunks", _chunks(made)),
        ("labels", labels),
        *([("note", as_typed(matrix.doubt))] if matrix.doubt else []),
        ("method", f"{made.method}, products of blocks in {made.precision}"),
        ("not run", rejected or "-"),
        (
            "blocks",
            f"{min(made.block_rows, samples):,} rows, {made.blocks_per_partition:,} per partition, "
            f"{counted(len(made.partitions), 'partitions')}",
        ),
        ("threads", f"{made.threads:,}{_of_workers(made)}"),
        ("reads", f"{at_most}{made.reads} for the factor, then the chosen columns once"),
        ("output", f"{show.size(made.output_bytes)} before compression"),
        ("memory", f"{show.size(made.peak)} predicted at most, of {show.size(made.budget)}"),
        *([("to fit", "; ".join(made.concessions))] if made.concessions else []),
    ]


def _chunks(made: Plan) -> str:
    """Say how the values are stored, and so what is read at a time."""
    layout = made.table.layout
    if (sparse := layout.sparsity) is not None:
        return f"sparse, {sparse.indptr[-1]:,} entries in chunks of {sparse.chunk_entries:,}"
    rows = layout.chunk_rows
    said = f"{counted(rows, 'samples')} x {counted(layout.chunk_columns, 'features')}"
    said += ": any sample can be read alone" if rows == 1 else ", each read as a whole"
    if layout.shard_rows != rows:
        said += f", in shards of {counted(layout.shard_rows, 'samples')}"
    if made.table.is_one_block:
        said += "; one chunk spans all samples, so the whole table is one block: see rechunk"
    return said


def _of_workers(made: Plan) -> str:
    if made.cluster is None:
        return ""
    limit = "no limit" if made.cluster.memory is None else f"of {show.size(made.cluster.memory)}"
    return (
        f" in each of {made.cluster.workers:,} workers, "
        f"{show.size(made.worker_peak)} predicted at most, {limit}"
    )

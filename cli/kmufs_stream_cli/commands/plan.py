"""kmufs-stream plan"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kmufs_stream.errors import counted
from kmufs_stream_cli import options, show
from kmufs_stream_cli.table import TableOptions, on_table
from kmufs_stream_cli.wording import as_typed

if TYPE_CHECKING:
    from kmufs_stream import Matrix, Plan
    from kmufs_stream.sources.layout import Sparsity

NAMED = 5  # labels that are shown
UNSEEN = "not looked for before select reads; "
MISSING = {
    "raise": f"{UNSEEN}if a value is missing, the run ends: say --missing mean, drop-features or "
    "drop-samples then",
    "mean": f"{UNSEEN}where a value is missing, its feature's mean stands in",
    "drop-features": f"{UNSEEN}features with any missing value are left out",
    "drop-samples": f"{UNSEEN}samples with any missing value are left out",
}


@on_table
def plan(
    table: TableOptions,
    k: options.K,
    h: options.H,
    method: options.Method = "auto",
    tol: options.Tol = options.TOL,
    max_passes: options.MaxPasses = options.MAX_PASSES,
    factor: options.FactorPath = None,
    selection_only: options.SelectionOnly = False,
    solver: options.SolverName = "admm",
    threads: options.Threads = None,
    memory: options.Memory = None,
    scheduler: options.Scheduler = None,
    workers: options.Workers = None,
    precision: options.Precision = "auto",
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Show what select would do with DATA, and the memory it would take. Nothing is computed."""
    from kmufs_stream import LanczosOptions, load_factor, plan_selection
    from kmufs_stream.factors.reopening import as_decomposed
    from kmufs_stream.factors.solving import long_run_note, size_note
    from kmufs_stream.options import AdmmOptions
    from kmufs_stream.streaming.cluster import connected

    matrix, stores = table.open(factor), table.storage_options()
    known = None if factor is None else load_factor(factor, storage_options=stores)
    if known is not None:
        matrix = as_decomposed(known, matrix)
    policy = (table.screening() if known is None else known.screening).missing
    with connected(scheduler, workers, threads=threads, memory=memory) as share:
        made = plan_selection(
            matrix,
            k,
            h,
            solver=solver,
            factor=known,
            selection_only=selection_only,
            method=method,
            lanczos=LanczosOptions(tol, max_passes),
            screening=table.screening(),
            memory=share,
            threads=threads,
            precision=precision,
        )
    if json:
        show.as_json({**_summary(matrix, made, k, h, solver), "missing": policy})
        return
    out = show.console()
    show.line(out, f"{matrix.source}: {matrix.metadata.name}", "bold")
    told = [("missing", MISSING[policy])] if matrix.dtype.kind == "f" else []
    usable = matrix.width if known is None else len(known.components)
    notes = size_note(k, h), long_run_note([solver], usable, [h], AdmmOptions().max_iter)
    told += [("note", as_typed(note)) for note in notes if note is not None]
    show.facts(out, [*plan_facts(matrix, made), *told])
    show.line(out)
    show.line(out, "Memory by stage; they follow each other, so the largest counts:")
    peaks = [(stage, show.size(peak)) for stage, peak in made.stages.items()]
    show.table(out, [("stage", False), ("memory", True)], peaks)
    again = show.command(
        "select",
        table.data,
        k=k,
        h=h,
        **table.typed(),
        **options.unusual(
            solver=solver,
            factor=factor,
            selection_only=selection_only,
            method=method,
            tol=tol,
            max_passes=max_passes,
            memory=memory,
            threads=threads,
            scheduler=scheduler,
            workers=workers,
            precision=precision,
        ),
    )
    more = [show.command("rechunk", table.data, **table.located())] * _is_one_block(matrix)
    show.next_commands(out, again, *more)


def plan_facts(matrix: Matrix, made: Plan) -> list[tuple[str, str]]:
    """What a plan decides, as names and values."""
    from kmufs_stream.sources.names import plain

    samples, features = matrix.shape
    labels = "none found, features are numbered"
    if matrix.labels is not None:
        first = ", ".join(str(plain(label)) for label in matrix.labels[:NAMED])
        labels = first + (", ..." if features > NAMED else "")
    dtype = str(matrix.dtype)
    if matrix.layout.dtype != matrix.dtype:
        dtype += f", stored as {matrix.layout.dtype}"
    if matrix.transforms:
        dtype += ", transformed by " + ", then ".join(matrix.transforms)
    whole = "; one chunk spans all samples, so the whole table is one block: see rechunk"
    part = "" if matrix.asked is None else f", of which {matrix.width:,} take part"
    return [
        (
            "shape",
            f"{samples:,} samples ({matrix.metadata.sample_dim}) x {features:,} features "
            f"({matrix.metadata.feature_dim}){part}"
            + (f"; {as_typed(matrix.hint)}" if matrix.hint else ""),
        ),
        ("dtype", dtype),
        (
            "chunks",
            _entries(matrix.layout.sparsity)
            if matrix.layout.sparsity is not None
            else _pieces(matrix) + (whole if _is_one_block(matrix) else ""),
        ),
        ("labels", labels),
        *([("note", as_typed(matrix.doubt))] if matrix.doubt else []),
        ("method", f"{made.method}, products of blocks in {made.precision}"),
        ("not run", "; ".join(f"{name}: {why}" for name, why in made.rejected.items()) or "-"),
        (
            "blocks",
            f"{min(made.block_rows, matrix.shape[0]):,} rows, "
            f"{made.blocks_per_partition:,} per partition, "
            f"{counted(len(made.partitions), 'partitions')}",
        ),
        ("threads", f"{made.threads:,}" + _of_workers(made)),
        ("reads", f"{_most(made)}{made.reads} for the factor, then the chosen columns once"),
        ("output", f"{show.size(made.output_bytes)} before compression"),
        ("memory", f"{show.size(made.peak)} predicted at most, of {show.size(made.budget)}"),
        *([("to fit", "; ".join(made.concessions))] if made.concessions else []),
    ]


def _pieces(matrix: Matrix) -> str:
    """How the values are stored, and so what is read at a time."""
    rows = matrix.layout.chunk_rows
    said = f"{counted(rows, 'samples')} x {counted(matrix.layout.chunk_columns, 'features')}"
    said += ": any sample can be read alone" if rows == 1 else ", each read as a whole"
    if matrix.layout.shard_rows != rows:
        said += f", in shards of {counted(matrix.layout.shard_rows, 'samples')}"
    return said


def _is_one_block(matrix: Matrix) -> bool:
    """Whether a chunk spans all samples, and features are in several."""
    samples, features = matrix.shape
    return (
        matrix.layout.sparsity is None
        and matrix.layout.chunk_rows >= samples > 1
        and (matrix.layout.chunk_columns < features)
    )


def _entries(sparsity: Sparsity) -> str:
    return f"sparse, {sparsity.indptr[-1]:,} entries in chunks of {sparsity.chunk_entries:,}"


def _of_workers(made: Plan) -> str:
    if made.cluster is None:
        return ""
    limit = "no limit" if made.cluster.memory is None else f"of {show.size(made.cluster.memory)}"
    return (
        f" in each of {made.cluster.workers:,} workers, "
        f"{show.size(made.worker_peak)} predicted at most, {limit}"
    )


def _most(made: Plan) -> str:
    return "at most " if made.reads > 1 else ""


def _summary(matrix: Matrix, made: Plan, k: int, h: int, solver: str) -> dict[str, Any]:
    """The plan in plain JSON types."""
    from kmufs_stream import __version__
    from kmufs_stream.sources.names import plain

    labels = matrix.labels
    return {
        "source": matrix.source,
        "variable": matrix.metadata.name,
        "samples": matrix.shape[0],
        "features": matrix.shape[1],
        "taking_part": matrix.width,
        "sample_dim": matrix.metadata.sample_dim,
        "feature_dim": matrix.metadata.feature_dim,
        "dtype": str(matrix.dtype),
        "stored_dtype": str(matrix.layout.dtype),
        "chunk_rows": matrix.layout.chunk_rows,
        "chunk_columns": matrix.layout.chunk_columns,
        "shard_rows": matrix.layout.shard_rows,
        "entries": None
        if matrix.layout.sparsity is None
        else int(matrix.layout.sparsity.indptr[-1]),
        "transforms": list(matrix.transforms),
        "zarr_format": matrix.layout.zarr_format,
        "first_labels": None if labels is None else [plain(label) for label in labels[:NAMED]],
        "k": k,
        "h": h,
        "solver": solver,
        "method": made.method,
        "precision": made.precision,
        "block_rows": made.block_rows,
        "blocks_per_partition": made.blocks_per_partition,
        "partitions": len(made.partitions),
        "threads": made.threads,
        "workers": None if made.cluster is None else made.cluster.workers,
        "worker_memory_bytes": None if made.cluster is None else made.cluster.memory,
        "predicted_worker_peak_bytes": made.worker_peak or None,
        "reads": made.reads,
        "cached_rows": made.cached_rows,
        "rejected": dict(made.rejected),
        "concessions": list(made.concessions),
        "budget_bytes": made.budget,
        "predicted_peak_bytes": made.peak,
        "stages_bytes": dict(made.stages),
        "output_bytes": made.output_bytes,
        "output_chunk_rows": made.output_chunk_rows,
        "version": __version__,
    }

"""kmufs-stream decompose"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kmufs_stream_cli import options, outputs, show
from kmufs_stream_cli.progress import opened, shown
from kmufs_stream_cli.table import TableOptions, on_table
from kmufs_stream_cli.typed import typed

if TYPE_CHECKING:
    from rich.console import Console

    from kmufs_stream import Factor

SPECTRUM = 10  # components that are shown
BAR = 30  # letters of the longest


@on_table
def decompose(
    table: TableOptions,
    k: options.K,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="PATH",
            callback=outputs.lasting,
            help="Zarr store to write the factor to, a path or address; DATA's name + .factor.zarr "
            "in this folder by default.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    method: options.Method = "auto",
    tol: options.Tol = options.TOL,
    max_passes: options.MaxPasses = options.MAX_PASSES,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    threads: options.Threads = None,
    memory: options.Memory = None,
    scheduler: options.Scheduler = None,
    workers: options.Workers = None,
    checkpoint: options.Checkpoint = None,
    resume: options.Resume = False,
    precision: options.Precision = "auto",
    json: options.Json = False,
    log: options.Log = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Read DATA once and keep its factor: select then answers every k up to K from it at once."""
    from kmufs_stream import LanczosOptions
    from kmufs_stream import decompose as run
    from kmufs_stream.streaming.cluster import connected

    began = time.perf_counter()
    target = outputs.default_output("decompose", table.data) if out is None else out
    matrix = opened(table, log=log, quiet=quiet)
    with (
        connected(scheduler, workers, threads=threads, memory=memory) as share,
        shown(log=log, quiet=quiet) as progress,
    ):
        factor = run(
            matrix,
            k,
            method=method,
            lanczos=LanczosOptions(tol, max_passes, seed),
            screening=table.screening(),
            memory=share,
            threads=threads,
            precision=precision,
            out=target,
            overwrite=overwrite,
            checkpoint=checkpoint,
            resume=resume,
            storage_options=table.storage_options(),
            command=typed(),
            progress=progress,
        )
    summary = summary_of(factor, target, time.perf_counter() - began)
    if json:
        show.as_json(summary)
    else:
        show_factor(factor, summary)
        again = show.command(
            "select",
            table.data,
            factor=target,
            k=k,
            h=show.fewer(summary["usable"]),
            **table.reading(),
            memory=memory,
            threads=threads,
        )
        note = f"h is an example: up to {summary['usable']:,} can be chosen"
        many = sweep_of(factor, target, table.storage_option)
        show.next_commands(show.console(), again, many, note=note)


def sweep_of(factor: Factor, place: str, stores: list[str] | None) -> str:
    """A command that tries several numbers of features by a stored factor."""
    return show.command("sweep", place, k=factor.k, suggest_h=True, storage_option=stores)


def summary_of(factor: Factor, out: str, seconds: float) -> dict[str, Any]:
    """The factor in plain JSON types."""
    from kmufs_stream import __version__
    from kmufs_stream.system.memory import peak_memory

    features = factor.features
    return {
        "k": factor.k,
        "components": len(factor.singular_values),
        "rank": factor.rank,
        "singular_values": factor.singular_values.tolist(),
        "eigenvalues": factor.eigenvalues.tolist(),
        "residuals": factor.residuals.tolist(),
        "method": factor.method,
        "precision": factor.precision,
        "passes": factor.passes,
        "settled": factor.settled,
        "score_error": factor.score_error,
        "samples": features.samples,
        "features": len(features.mean),
        "usable": len(features.usable),
        "excluded": {reason: i.tolist() for reason, i in features.excluded.items()},
        "output": out,
        "seconds": {"total": seconds},
        "peak_rss_bytes": peak_memory(),
        "version": __version__,
    }


def show_factor(factor: Factor, summary: dict[str, Any], what: str = "Decomposed") -> None:
    """What the factor is, and what it took."""
    out = show.console()
    show.line(
        out,
        f"{what} {summary['samples']:,} samples x {summary['features']:,} features into "
        f"{summary['components']:,} components.",
        "bold",
    )
    show.line(out)
    _show_spectrum(out, summary)
    if summary["components"] > SPECTRUM:
        show.line(out, f"  and {summary['components'] - SPECTRUM:,} more")
    show.line(out)
    scores = [] if summary["settled"] else [("scores", show.not_settled(summary))]
    show.facts(
        out,
        [
            ("components", _why(summary)),
            ("rank", f"{summary['rank']:,}: select takes --k up to this"),
            ("excluded", show.excluded(summary["excluded"], show.names(factor))),
            *scores,
            ("reads", str(summary["passes"])),
            *show.took(summary),
            ("output", summary["output"]),
        ],
    )


def _why(summary: dict[str, Any]) -> str:
    if summary["components"] == summary["usable"]:
        return "one for each usable feature: there are no more"
    return "2 k + 1, so that larger k, and where the spectrum falls, can be looked at too"


def _show_spectrum(out: Console, summary: dict[str, Any]) -> None:
    values = summary["eigenvalues"]
    rows = [
        (str(j + 1), f"{s:.6g}", f"{value / summary['usable']:.2%}", "#" * bar(value, values[0]))
        for j, (s, value) in enumerate(
            zip(summary["singular_values"][:SPECTRUM], values, strict=False)
        )
    ]
    columns = [("component", True), ("singular value", True), ("of variance", True), ("", False)]
    show.table(out, columns, rows)


def bar(value: float, largest: float) -> int:
    """Letters of a bar."""
    return round(BAR * value / largest)

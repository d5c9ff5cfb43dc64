"""kmufs-stream decompose"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

from kmufs_stream_cli import next_commands, options, show
from kmufs_stream_cli.typed import typed

if TYPE_CHECKING:
    from kmufs_stream import Factor

SPECTRUM = 7  # components that are shown
BAR = 30  # letters of the longest


def decompose(
    data: options.Data,
    table: options.Table,
    k: options.K,
    *,
    out: Annotated[str | None, options.output("DATA's name + .factor.zarr in this folder")] = None,
    factoring: options.Factoring,
    overwrite: options.Overwrite = False,
    resources: options.LongReading,
    screen: options.Showing,
) -> None:
    """Read DATA once and keep its factor: select then answers every k up to K from it at once."""
    from kmufs_stream import decompose as run

    began = time.perf_counter()
    target = next_commands.default_output("decompose", data) if out is None else out
    matrix = screen.opened(table, data)
    with resources.connected() as used, screen.progress() as progress:
        factor = run(
            matrix,
            k,
            **factoring.keywords(),
            **used,
            screening=table.screening(),
            out=target,
            overwrite=overwrite,
            storage_options=table.storage_options(),
            command=typed(),
            progress=progress,
        )
    summary = summary_of(factor, target, time.perf_counter() - began)
    if screen.printed(summary):
        return
    show_factor(factor, summary)
    next_commands.show_next(next_commands.sweep(target, factor.k, table.storage_option))


def summary_of(factor: Factor, out: str, seconds: float) -> dict[str, Any]:
    """Sum up a factor, and the run that made it, in plain JSON types."""
    from kmufs_stream import __version__, peak_memory

    return {
        **factor.summary(),
        "output": out,
        "seconds": {"total": seconds},
        "peak_rss_bytes": peak_memory(),
        "version": __version__,
    }


def show_factor(factor: Factor, summary: dict[str, Any], what: str = "Decomposed") -> None:
    """Show what a factor is, and what it took."""
    show.line(
        f"{what} {summary['samples']:,} samples x {summary['features']:,} features into "
        f"{summary['components']:,} components.",
        "bold",
    )
    show.line()
    _show_spectrum(factor)
    show.line()
    rows = [
        ("rank", f"{summary['rank']:,}: select takes --k up to this"),
        *show.factor_facts(factor),
        ("reads", str(summary["passes"])),
        *show.took(summary),
        ("output", summary["output"]),
    ]
    show.facts(rows)


def _show_spectrum(factor: Factor) -> None:
    values, singular = factor.eigenvalues[:SPECTRUM], factor.singular_values[:SPECTRUM]
    columns = [
        ("component", range(1, len(values) + 1)),
        ("singular value", [f"{value:.6g}" for value in singular]),
        ("of variance", [f"{value / len(factor.components):.2%}" for value in values]),
        ("", ["#" * round(BAR * value / values[0]) for value in values]),
    ]
    show.table(columns, len(factor.singular_values) - len(values))

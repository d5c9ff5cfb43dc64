"""Show facts and tables on stdout."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from kmufs_stream.errors import counted, first_few

if TYPE_CHECKING:
    from rich.console import Console

    from kmufs_stream import Factor

BREAKING = ("Cc", "Zl", "Zp")  # control characters, separators of lines and paragraphs
PLACES = ("output", "anndata")  # facts that are copied, and so never wrapped
LEAST = 30  # letters of a line of a fact


@cache
def console() -> Console:
    """Open stdout: labels and paths are no markup."""
    from rich.console import Console  # which --help need not wait for

    return Console(markup=False, highlight=False, emoji=False)


def facts(rows: Iterable[tuple[str, str]]) -> None:
    """Show names and values, aligned; values are wrapped on a terminal."""
    rows = list(rows)
    indent = max(len(name) for name, _ in rows) + 4
    for name, value in rows:
        wrapped = console().is_terminal and name not in PLACES
        lines = wrap(
            escaped(value),
            max(console().width, indent + LEAST) if wrapped else sys.maxsize,
            initial_indent=f"  {name}".ljust(indent),
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for text in lines:
            line(text)


def line(text: str = "", style: str | None = None) -> None:
    """Show a line that is never wrapped, nor broken by what is in a name."""
    console().print(escaped(text), style=style, soft_wrap=True)


def say(text: str) -> None:
    """Print a line on stderr, not broken by what is in a name."""
    print(escaped(text), file=sys.stderr, flush=True)


def table(columns: Iterable[tuple[str, Iterable[object]]], more: int = 0) -> None:
    """Show named columns, the last of words and the others of numbers; ``more`` rows are not."""
    cells = [[escaped(str(cell)) for cell in (name, *column)] for name, column in columns]
    *numbers, words = cells
    aligned = [[cell.rjust(max(map(len, column))) for cell in column] for column in numbers]
    head, *rows = (" " + "  ".join(row).rstrip() for row in zip(*aligned, words, strict=True))
    line(head, "bold")
    for row in rows:
        line(row)
    if more:
        line(f"  and {more:,} more")


def escaped(text: str) -> str:
    r"""Write line breaks and other control characters as Python does, like \n."""
    return "".join(repr(c)[1:-1] if unicodedata.category(c) in BREAKING else c for c in text)


def size(number: int) -> str:
    """Write bytes in decimal units, as --memory takes them."""
    from rich.filesize import decimal

    return decimal(number)


def took(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Say what a run took, from the keys for it that every --json has."""
    seconds = summary["seconds"]
    stages = ", ".join(f"{stage} {s:.2f} s" for stage, s in seconds.items() if stage != "total")
    memory = f"{size(summary['peak_rss_bytes'])} at the peak"
    if "predicted_peak_bytes" in summary:
        memory += f", {size(summary['predicted_peak_bytes'])} predicted at most"
    if "budget_bytes" in summary:
        memory += f", {size(summary['budget_bytes'])} allowed"
    time = f"{seconds['total']:.2f} s" + (f" ({stages})" if stages else "")
    return [("time", time), ("memory", memory)]


def factor_facts(factor: Factor) -> list[tuple[str, str]]:
    """Say that scores have not settled, and which features are excluded, if so."""
    rows = []
    if not factor.settled:
        said = (
            f"NOT SETTLED after {counted(factor.passes, 'reads')}: they may be off by "
            f"{factor.score_error:.1g}; give --max-passes {2 * factor.passes}, say"
        )
        rows.append(("scores", said))
    for reason, index in factor.features.excluded.items():
        names = first_few(str(i if factor.labels is None else factor.labels[i]) for i in index)
        rows.append(("excluded", f"{len(index):,} {reason.replace('_', ' ')} ({names})"))
    return rows

"""Show facts and tables on stdout."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal

from kmufs_stream.errors import counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

    from kmufs_stream import Factor

BREAKING = ("Cc", "Zl", "Zp")  # control characters, separators of lines and paragraphs
NAMED = 5  # of a list of features
PLACES = ("output", "anndata")  # facts that are copied
LEAST = 30  # letters of a line of a fact
WIDE = 10_000  # letters of a line, where nobody wraps any


@cache
def console() -> Console:
    """Open stdout: labels and paths are no markup, and off a terminal no line is wrapped."""
    from rich.console import Console  # which --help need not wait for

    made = Console(markup=False, highlight=False, emoji=False)
    if not made.is_terminal:
        made.width = WIDE
    return made


def facts(rows: Iterable[tuple[str, str]]) -> None:
    """Show names and values, aligned; values are wrapped on a terminal."""
    rows = list(rows)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        lines = [value] if name in PLACES else _lines(value, width + 4)
        for head, part in zip_longest([name], lines, fillvalue=""):
            line(f"  {head:<{width}}  {part}")


def prose(text: str) -> None:
    """Show sentences, wrapped on a terminal."""
    for part in _lines(text, 0):
        line(part)


def _lines(text: str, indent: int) -> list[str]:
    if not console().is_terminal:
        return [text]
    room = max(console().width - indent, LEAST)
    return wrap(text, room, break_long_words=False, break_on_hyphens=False) or [text]


def line(text: str = "", style: str | None = None) -> None:
    """Show a line that is never wrapped, nor broken by what is in a name."""
    console().print(escaped(text), style=style, soft_wrap=True)


def say(text: str) -> None:
    """Print a line on stderr, not broken by what is in a name."""
    print(escaped(text), file=sys.stderr, flush=True)


def table(columns: Sequence[tuple[str, bool]], rows: Iterable[Sequence[str]]) -> None:
    """Show a plain table; ``columns`` are names and whether they hold numbers."""
    from rich.table import Table

    made = Table(box=None, pad_edge=True, header_style="bold")
    for name, numeric in columns:
        justify: Literal["left", "right"] = "right" if numeric else "left"
        made.add_column(name, justify=justify, no_wrap=numeric, overflow="fold")
    for row in rows:
        made.add_row(*map(escaped, row))
    if console().is_terminal:
        console().print(made)
        return
    with console().capture() as drawn:
        console().print(made)
    for text in drawn.get().splitlines():
        line(text.rstrip())


def features(
    columns: Sequence[tuple[str, Any]],
    labels: Sequence[object] | None,
    shown: NDArray[np.int64],
    of: int,
) -> None:
    """Show some ``of`` the selected features, a row each.

    ``columns`` are names and numbers, ``shown`` positions among the ``labels`` of all.
    """
    cells = [[str(number) for number in numbers] for _, numbers in columns]
    heads = [(name, True) for name, _ in columns]
    if labels is not None:
        cells.append([str(labels[i]) for i in shown])
        heads.append(("label", False))
    table(heads, zip(*cells, strict=True))
    more(of - len(shown))


def more(left: int) -> None:
    """Say how many more rows a table would have."""
    if left:
        line(f"  and {left:,} more")


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


def few(names: Sequence[str]) -> str:
    """Join the first names of a list, and say how many more there are."""
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def unsettled(factor: Factor) -> list[tuple[str, str]]:
    """Say that block Lanczos ended before the scores settled, if it did, and what to type."""
    if factor.settled:
        return []
    said = (
        f"NOT SETTLED after {counted(factor.passes, 'reads')}: they may be off by "
        f"{factor.score_error:.1g}; give --max-passes {2 * factor.passes}, say"
    )
    return [("scores", said)]


def excluded(factor: Factor) -> str:
    """Say how many features are excluded by reason, and name the first of them."""
    said = []
    for reason, index in factor.features.excluded.items():
        first = [str(i) if factor.labels is None else factor.labels[i] for i in index[:NAMED]]
        more = ", ..." if len(index) > NAMED else ""
        said.append(f"{len(index):,} {reason.replace('_', ' ')} ({', '.join(first)}{more})")
    return "; ".join(said) or "none"

"""Words, tables and JSON on stdout."""

from __future__ import annotations

import json
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal

from kmufs_stream.errors import counted
from kmufs_stream_cli import outputs
from kmufs_stream_cli.typed import NAME, shell_line
from kmufs_stream_cli.wording import ARGUMENTS

if TYPE_CHECKING:
    from rich.console import Console

    from kmufs_stream import Factor

BREAKING = ("Cc", "Zl", "Zp")  # control characters, separators of lines and paragraphs
NAMED = 5  # of a list of features
PLACES = ("output", "anndata")  # facts that are copied
LEAST = 30  # letters of a line of a fact
WIDE = 10_000  # letters of a line, where nobody wraps any


def as_json(document: Mapping[str, Any]) -> None:
    """One strict JSON object."""
    print(json.dumps(document, allow_nan=False))


def console() -> Console:
    """Stdout, with nothing in labels and paths taken for markup, nor cut off a terminal."""
    from rich.console import Console  # which --help need not wait for

    made = Console(markup=False, highlight=False, emoji=False)
    if not made.is_terminal:
        made.width = WIDE
    return made


def facts(out: Console, rows: Iterable[tuple[str, str]]) -> None:
    """Names and values, aligned: between the edges of a terminal; elsewhere a line each."""
    rows = list(rows)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        lines = [value] if name in PLACES else _lines(out, value, width + 4)
        for head, part in zip_longest([name], lines, fillvalue=""):
            line(out, f"  {head:<{width}}  {part}")


def prose(out: Console, text: str) -> None:
    """Sentences, between the edges of a terminal; elsewhere one line."""
    for part in _lines(out, text, 0):
        line(out, part)


def _lines(out: Console, text: str, indent: int) -> list[str]:
    if not out.is_terminal:
        return [text]
    room = max(out.width - indent, LEAST)
    return wrap(text, room, break_long_words=False, break_on_hyphens=False) or [text]


def line(out: Console, text: str = "", style: str | None = None) -> None:
    """A line that is never wrapped, nor broken by what is in a name."""
    out.print(escaped(text), style=style, soft_wrap=True)


def table(out: Console, columns: Sequence[tuple[str, bool]], rows: Iterable[Sequence[str]]) -> None:
    """A plain table; ``columns`` are names and whether they hold numbers."""
    from rich.table import Table

    made = Table(box=None, pad_edge=True, header_style="bold")
    for name, numeric in columns:
        justify: Literal["left", "right"] = "right" if numeric else "left"
        made.add_column(name, justify=justify, no_wrap=numeric, overflow="fold")
    for row in rows:
        made.add_row(*map(escaped, row))
    if out.is_terminal:
        out.print(made)
        return
    with out.capture() as drawn:
        out.print(made)
    for text in drawn.get().splitlines():
        line(out, text.rstrip())


def escaped(text: str) -> str:
    r"""The text with line breaks and other control characters as Python writes them, like \n."""
    return "".join(repr(c)[1:-1] if unicodedata.category(c) in BREAKING else c for c in text)


def took(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Where the time went, and how much memory it was, from what every --json has of them."""
    seconds = summary["seconds"]
    stages = ", ".join(f"{stage} {s:.2f} s" for stage, s in seconds.items() if stage != "total")
    memory = f"{size(summary['peak_rss_bytes'])} at the peak"
    if "predicted_peak_bytes" in summary:
        memory += f", {size(summary['predicted_peak_bytes'])} predicted at most"
    if "budget_bytes" in summary:
        memory += f", {size(summary['budget_bytes'])} allowed"
    time = f"{seconds['total']:.2f} s" + (f" ({stages})" if stages else "")
    return [("time", time), ("memory", memory)]


def next_commands(out: Console, *commands: str, note: str = "") -> None:
    """What to type next: one of these, if any; ``note`` tells what in them is but an example."""
    if not commands:
        return
    line(out)
    line(out, f"Next{note and f' ({note})'}:")
    for command in commands:
        line(out, f"  {command}", "bold")


def opened(store: str, options: Mapping[str, Any] | None = None) -> str:
    """A command that opens a store in Python; ``options`` are for fsspec, where it is far."""
    said = json.dumps(store, ensure_ascii=False)
    if options and "://" in store:
        said += f", storage_options={dict(options)!r}"
    return shell_line([program("python"), "-c", f"import xarray; print(xarray.open_zarr({said}))"])


def report(result: str, stores: list[str] | None = None) -> list[str]:
    """A command that draws a result, where what draws is installed."""
    from kmufs_stream.reporting import lacking

    return [] if lacking() else [command("report", result, storage_option=stores)]


def can_be_typed(source: str) -> bool:
    """Whether data are where they were said to be: not moved, nor arrays, nor far from here."""
    return "://" in source or (bool(source) and Path(source).exists())


def next_plan(out: Console, store: str, features: int, **options: object) -> None:
    """Plan a selection from a store of so many features."""
    asked = command("plan", store, **options, k=fewer(features, 10), h=fewer(features))
    note = f"k clusters and h of {counted(features, 'features')} are examples: give yours"
    next_commands(out, asked, note=note)


def fewer(features: int, most: int = 100) -> int:
    """A number to begin with that leaves most features out."""
    return max(min(most, features // 3), 1)


def size(number: int) -> str:
    """Bytes in decimal units, as --memory takes them."""
    from kmufs_stream.system import memory

    return memory.size(number)


def not_settled(summary: Mapping[str, Any]) -> str:
    """That block Lanczos ended before the scores came to rest, and what to type."""
    reads, error = summary["passes"], summary["score_error"]
    return (
        f"NOT SETTLED after {counted(reads, 'reads')}: they may be off by {error:.1g}; give "
        f"--max-passes {2 * reads}, say"
    )


def excluded(reasons: Mapping[str, Sequence[int]], name: Mapping[int, str]) -> str:
    """Excluded features: how many by reason, and the first of them."""
    said = []
    for reason, index in reasons.items():
        first = ", ".join(name.get(i, str(i)) for i in index[:NAMED])
        more = ", ..." if len(index) > NAMED else ""
        said.append(f"{len(index):,} {reason.replace('_', ' ')} ({first}{more})")
    return "; ".join(said) or "none"


def few(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def names(factor: Factor) -> dict[int, str]:
    """Labels of those excluded features that will be named."""
    if factor.labels is None:
        return {}
    first = [i for index in factor.features.excluded.values() for i in index[:NAMED]]
    return {int(i): factor.labels[i] for i in first}


def program(name: str) -> str:
    """A program of this environment as a shell finds it: by its place where that is not active."""
    called = Path(sys.argv[0])
    there = called.name != NAME or shutil.which(NAME) is not None
    return name if there else str(called.with_name(name))


def command(name: str, data: str | list[str], /, **options: object) -> str:
    """A command as it is typed in a shell, without the options that were not given.

    Where what it would write is there already, it writes elsewhere.
    """
    words = [program(NAME), name, *([data] if isinstance(data, str) else data)]
    if name in outputs.ENDINGS and isinstance(data, str):
        from kmufs_stream.storage.places import free_name

        usual = outputs.default_output(name, data)
        out = free_name(usual)
        if out != usual and name in ARGUMENTS:
            words.append(out)
        elif out != usual:
            options = {**options, "out": out}
    for option, value in options.items():
        for each in value if isinstance(value, list) else [value]:
            if each is not None and each is not False:
                words.append("--" + option.replace("_", "-"))
                words += [] if each is True else [str(each)]
    return shell_line(words)

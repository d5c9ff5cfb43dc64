"""What to type next: whole command lines that work as they stand."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from kmufs_stream_cli.show import line
from kmufs_stream_cli.typed import NAME, shell_line
from kmufs_stream_cli.wording import ARGUMENTS

PACKED = (".zip", ".gz", ".bz2", ".xz", ".zst")
ENDINGS = {  # what a command adds to the name of what it is given
    "apply": ".selected.zarr",
    "convert": ".zarr",
    "decompose": ".factor.zarr",
    "rechunk": ".rechunked.zarr",
    "report": ".report.html",
    "select": ".selected.zarr",
}


def default_output(name: str, data: str) -> str:
    """Where a command writes by default: in the current folder, not beside data elsewhere."""
    stem = Path(data if "://" in data else data.partition("::")[0]).resolve().name
    for packed in PACKED:
        stem = stem.removesuffix(packed)
    return Path(stem).stem + ENDINGS[name]


def command(name: str, *data: str, **options: object) -> str:
    """Write a command as it is typed in a shell, leaving out options that were not given.

    If its output exists already, the command writes elsewhere.
    """
    from kmufs_stream.storage.places import free_name

    words = [_program(), name, *data]
    if name in ENDINGS and len(data) == 1:
        usual = default_output(name, *data)
        out = free_name(usual)
        if out != usual and name in ARGUMENTS:
            words.append(out)
        elif out != usual:
            options["out"] = out
    for option, value in options.items():
        for each in value if isinstance(value, list) else [value]:
            if each is not None and each is not False:
                words.append("--" + option.replace("_", "-"))
                words += [] if each is True else [str(each)]
    return shell_line(words)


def _program() -> str:
    """Name this program so that a shell finds it: by its path if need be."""
    called = Path(sys.argv[0])
    return NAME if called.name != NAME or shutil.which(NAME) else str(called)


def report(*results: str, stores: list[str] | None = None) -> str | None:
    """Write a command that draws results, if the libraries that draw are installed."""
    from kmufs_stream import Report

    return None if Report.lacking() else command("report", *results, storage_option=stores)


def sweep(factor: str, k: int, stores: list[str] | None) -> str:
    """Write a command that tries several numbers of features by a stored factor."""
    return command("sweep", factor, k=k, suggest_h=True, storage_option=stores)


def show_next(typed: str | None, *, note: str = "") -> None:
    """Show a command to type next, if there is one, and what to change in it."""
    if typed is not None:
        line()
        line(f"Next{note and f' ({note})'}: {typed}", "bold")


def show_plan(store: str, features: int, **options: object) -> None:
    """Show how to plan a selection from a store of so many features, just written."""
    k, h = (max(min(most, features // 3), 1) for most in (10, 100))
    show_next(command("plan", store, **options, k=k, h=h), note="with your k and h")

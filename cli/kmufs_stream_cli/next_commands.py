"""What to type next: whole command lines that work as they stand."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kmufs_stream.errors import counted
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


def command(name: str, data: str | list[str], /, **options: object) -> str:
    """Write a command as it is typed in a shell, leaving out options that were not given.

    If its output exists already, the command writes elsewhere.
    """
    from kmufs_stream.storage.places import free_name

    words = [program(NAME), name, *([data] if isinstance(data, str) else data)]
    if name in ENDINGS and isinstance(data, str):
        usual = default_output(name, data)
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


def program(name: str) -> str:
    """Name a program of this environment so that a shell finds it: by its path if need be."""
    called = Path(sys.argv[0])
    there = called.name != NAME or shutil.which(NAME) is not None
    return name if there else str(called.with_name(name))


def open_in_python(store: str, options: Mapping[str, Any] | None = None) -> str:
    """Write a command that opens a store with xarray; ``options`` are for fsspec."""
    said = json.dumps(store, ensure_ascii=False)
    if options and "://" in store:
        said += f", storage_options={dict(options)!r}"
    return shell_line([program("python"), "-c", f"import xarray; print(xarray.open_zarr({said}))"])


def report(result: str, stores: list[str] | None = None) -> list[str]:
    """Write a command that draws a result, if the libraries that draw are installed."""
    from kmufs_stream import Report

    return [] if Report.lacking() else [command("report", result, storage_option=stores)]


def sweep(factor: str, k: int, stores: list[str] | None) -> str:
    """Write a command that tries several numbers of features by a stored factor."""
    return command("sweep", factor, k=k, suggest_h=True, storage_option=stores)


def fewer(features: int, most: int = 100) -> int:
    """A number to begin with that leaves most features out."""
    return max(min(most, features // 3), 1)


def can_be_typed(source: str) -> bool:
    """Whether data are still where they were: not moved, nor arrays in memory."""
    return "://" in source or (bool(source) and Path(source).exists())


def show_next(*commands: str, note: str = "") -> None:
    """Show commands to type next, if any; ``note`` says what in them is an example."""
    if not commands:
        return
    line()
    line(f"Next{note and f' ({note})'}:")
    for each in commands:
        line(f"  {each}", "bold")


def show_plan(store: str, features: int, **options: object) -> None:
    """Show how to plan a selection from a store of so many features, just written."""
    asked = command("plan", store, **options, k=fewer(features, 10), h=fewer(features))
    note = f"k clusters and h of {counted(features, 'features')} are examples: give yours"
    show_next(asked, note=note)

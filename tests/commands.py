"""What a command leaves, and processes of the command line.

As it is typed, or so slow that something can happen meanwhile.
"""

from __future__ import annotations

import functools
import json
import re
import runpy
import shlex
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers import SMALL_BLOCK
from processes import Begun, until

from kmufs_stream import selection
from kmufs_stream.factors import reader
from kmufs_stream.sources.zarr_store import StoredRows
from kmufs_stream.streaming.planning import sizing
from kmufs_stream_cli import main


@dataclass(frozen=True)
class Run:
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The one strict JSON document that stdout holds."""
        assert self.out.count("\n") == 1
        return json.loads(self.out, parse_constant=pytest.fail)

    def ok(self) -> Run:
        """Itself, as it ended well and complained of nothing."""
        assert (self.code, self.err) == (0, ""), self
        return self

    def refused(self) -> Run:
        """Itself, as it was refused, in one place only: on stderr, or in a JSON document."""
        assert self.code == 2, self
        assert not (self.out and self.err), self
        return self

    def words(self) -> str:
        """Stdout with its white space evened out."""
        return " ".join(self.out.split())

    def next(self) -> list[str]:
        """What it says to type next, without the name of the program; empty if nothing."""
        told = re.search(r"^Next(?: \(.*\))?: kmufs-stream (.*)$", self.out, re.M)
        return [] if told is None else shlex.split(told[1])


Cli = Callable[..., Run]


def ended(process: Begun) -> Run:
    """What a process leaves at its end."""
    return Run(process.end(), *process.said())


@functools.cache
def documented() -> dict[str, set[str]]:
    """By command, what docs/output.md says of its --json."""
    page = (Path(__file__).parents[1] / "docs/output.md").read_text()
    told: dict[str, set[str]] = {}
    for section in page.split("\n### ")[1:]:
        heading, _, text = section.partition("\n")
        for command in re.findall(r"`(\w+) --json`", heading):
            told[command] = set(re.findall(r"`(\w+)`", text))
    return told


def typed(arguments: list[str]) -> None:
    """Be ``python -m kmufs_stream_cli`` with some arguments."""
    sys.argv[1:] = arguments
    runpy.run_module("kmufs_stream_cli", run_name="__main__")


class Gate:
    """Two files of an empty folder, by which a process says that it waits, and is let go on."""

    def __init__(self, folder: Path) -> None:
        self.reached, self.opened = folder / "reached", folder / "opened"

    def wait(self) -> None:
        """Wait here until it is opened."""
        self.reached.touch()
        until(self.opened.exists)


def begun(
    pause: float,
    *arguments: object,
    solving: float = 0.0,
    gate: Gate | None = None,
    before: str = "solve",
    **more: Any,
) -> Begun:
    """The command line in many partitions, slowed down.

    Parameters
    ----------
    pause, solving : seconds before each read, and before the solver begins.
    gate : where it waits, ``before`` the solver or a method of rows called in a thread.
    more : for Begun.
    """
    words = [str(a) for a in arguments]
    return Begun(_begun, pause, solving, gate, before, words, **more)


def _begun(
    pause: float, solving: float, gate: Gate | None, before: str, arguments: list[str]
) -> None:
    read, solve = StoredRows._stored, selection.solve

    def read_slowly(self: StoredRows, *where: Any) -> Any:
        time.sleep(pause)
        return read(self, *where)

    def solve_slowly(*given: Any) -> Any:
        time.sleep(solving)
        if gate is not None and before == "solve":
            gate.wait()
        return solve(*given)

    sizing.BLOCK_BYTES = sizing.LARGE_BLOCK_BYTES = SMALL_BLOCK
    reader.CachedRows = lambda rows, limit: rows  # type: ignore[assignment, misc]
    StoredRows._stored = read_slowly  # type: ignore[method-assign]
    selection.solve = solve_slowly
    if gate is not None and before != "solve":
        quick = getattr(StoredRows, before)

        def guarded(self: StoredRows, *where: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                gate.wait()
            return quick(self, *where)

        setattr(StoredRows, before, guarded)
    sys.exit(main(arguments))

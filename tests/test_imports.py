"""Imports go down the rooms of the house, those that only types need included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import kmufs_stream

ROOT = Path(__file__).parents[1]
FILES = {
    ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__"): path
    for base in (ROOT, ROOT / "cli")
    for path in base.glob("kmufs_stream*/**/*.py")
}
GROUND = {"errors", "events", "options", "typing", "version"}
"""Modules at the root that every room may import."""
ROOMS = [
    "system",
    "storage",
    "sources",
    "solvers",
    "streaming.kernels",
    "streaming.planning",
    "streaming",
    "factors.methods",
    "factors",
    "results",
    "reporting",
    "formats",
]
"""From the bottom up: a room imports what stands before it. The public functions import any."""
INNER = {
    "errors.counted",  # words that messages and the screen share
    "errors.first_few",
    "storage.places.free_name",
    "storage.provenance.described",
    "system.allocator.share_one_heap",  # before anything takes memory
}
"""What the command line takes from inside the library."""
BLIND = {"solvers": {"system", "solvers"}}
"""Solvers see arrays, never a store."""


def room_of(module: str) -> str:
    """The innermost room of a module; the module itself where it lies at the root."""
    inner = module.removeprefix("kmufs_stream.")
    inside = [room for room in ROOMS if inner == room or inner.startswith(f"{room}.")]
    return max(inside, key=len, default=inner)


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                yield inner if inner in FILES else node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


IMPORTS = {
    module: set(imported(path)) & FILES.keys() - {module, "kmufs_stream"}
    for module, path in FILES.items()
}


def test_no_circle_between_modules() -> None:
    inner = {module: names for module, names in IMPORTS.items() if module != "kmufs_stream"}
    assert len(list(TopologicalSorter(inner).static_order())) == len(FILES) - 1


@pytest.mark.parametrize("room", [*ROOMS, *sorted(GROUND)])
def test_a_room_imports_the_rooms_below(room: str) -> None:
    below = ROOMS[: ROOMS.index(room) + 1] if room in ROOMS else []
    allowed = BLIND.get(room, {*below}) | GROUND
    for module in FILES:
        if module.startswith("kmufs_stream.") and room_of(module) == room:
            assert {room_of(name) for name in IMPORTS[module]} <= allowed, module


def test_the_command_line_calls_the_public_package() -> None:
    taken = {
        f"{node.module}.{name.name}"
        for module, path in FILES.items()
        if module.startswith("kmufs_stream_cli")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "kmufs_stream"
        for name in node.names
    }
    public = {f"kmufs_stream.{name}" for name in kmufs_stream.__all__}
    assert {name.removeprefix("kmufs_stream.") for name in taken - public} == INNER


def test_the_library_knows_nothing_of_the_command_line() -> None:
    for module, names in IMPORTS.items():
        if not module.startswith("kmufs_stream_cli"):
            assert not any(name.startswith("kmufs_stream_cli") for name in names), module

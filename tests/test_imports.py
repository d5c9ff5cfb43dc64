"""Imports run one way, those written in functions too; and the map of the modules is true."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = {
    ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__"): path
    for base in (ROOT, ROOT / "cli")
    for path in base.glob("kmufs_stream*/**/*.py")
}
PLUMBING = {
    *("address_store", "allocator", "blas", "choices", "errors", "internals", "places", "progress"),
    *("provenance", "version", "zarr_io"),
}
BELOW = {
    "sources": PLUMBING,
    "streaming": PLUMBING | {"sources"},
    "factor": {"errors", "noise", "screening", "streaming"},
    "routes": {"errors", "screening", "streaming", "factor"},
    "solvers": {"blas"},  # what is below sees no store, and these see no more than arrays
    "solving": PLUMBING | {"factor", "solvers"},
}
"""Per layer, all that it may import beside itself."""


def imported(node: ast.AST) -> Iterator[str]:
    """Whatever is imported anywhere below, but for what only types need."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom) and child.module:
            for name in child.names:
                inner = f"{child.module}.{name.name}"
                yield inner if inner in FILES else child.module
        elif isinstance(child, ast.Import):
            yield from (name.name for name in child.names)
        elif not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from imported(child)


IMPORTS = {
    module: set(imported(ast.parse(path.read_text()))) & FILES.keys() - {module}
    for module, path in FILES.items()
}


def test_there_is_no_circle() -> None:
    assert len(list(TopologicalSorter(IMPORTS).static_order())) == len(FILES)


@pytest.mark.parametrize("layer", BELOW)
def test_a_layer_imports_what_is_below_it(layer: str) -> None:
    own = f"kmufs_stream.{layer}"
    inside = {m for m in FILES if m == own or m.startswith(f"{own}.")}
    found = {name for module in inside for name in IMPORTS[module]} - inside
    assert {name.split(".")[1] for name in found} <= BELOW[layer]


def test_the_library_knows_nothing_of_the_command_line() -> None:
    for module, names in IMPORTS.items():
        if not module.startswith("kmufs_stream_cli"):
            assert not any(name.startswith("kmufs_stream_cli") for name in names), module


def test_the_map_of_the_modules_shows_each_and_no_other() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    shown = page.partition("In `kmufs_stream/`")[2].partition("| to add |")[0]
    modules = {module.split(".")[1] for module in FILES if module.startswith("kmufs_stream.")}
    assert set(re.findall(r"`(\w+)/?`", shown)) == modules

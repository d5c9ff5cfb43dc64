"""What is at a place, told to whoever gave it for something else."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import zarr
from upath import UPath
from zarr.abc.store import Store

from kmufs_stream.sources.convertible import is_mixed, kind_of, said_inside
from kmufs_stream.storage.places import Place, is_hdf5, name_of, zarr_root
from kmufs_stream.storage.provenance import APPLICATION, CHECKPOINT_FILE, FACTOR, SELECTION

SWEPT = ("k", "h", "solver", "objective", "optimum", "explained", "mean_correlation", "converged")
"""Columns that what ``sweep --csv`` writes has at least."""
FUNCTIONS = {"plan": "plan_selection"}  # of Python, where they are called otherwise
LONGEST = 10_000  # letters of its first line, of which the rest is not looked at


def recognised(place: Place) -> tuple[str, str]:
    """What it is, to follow "it is", and what to do with that: a sentence.

    Of data nothing is read but metadata; whatever is there, nothing is raised.
    """
    stored = stored_attributes(place)
    kind = None if stored is None else stored.get("format")
    if kind == SELECTION:
        return "a selection, which select wrote", _command("info", place, "tells how it was made")
    if kind == FACTOR:
        assert stored is not None
        k, does = str(stored.get("k")), "chooses features by it"
        chosen = _command("sweep", place, does, "--k", k, "--suggest-h")
        return "a factor, which decompose wrote", chosen
    if kind == APPLICATION:
        assert stored is not None
        took = _command("evaluate", place, "judges it")
        return (
            "what apply wrote",
            f"The selection that it took is {stored.get('selection')}. {took}",
        )
    if stored is not None or (is_hdf5(place) and place.suffix == ".h5ad"):
        shown = _command("plan", place, "shows what would be read of it", "--k", "10", "--h", "10")
        return "data to select from", shown
    if isinstance(place, Path | UPath) and (place / CHECKPOINT_FILE).is_file():
        return "a checkpoint", _command("info", place, "tells which run it belongs to")
    if (
        isinstance(place, Path)
        and place.is_dir()
        and (is_mixed(str(place)) or kind_of(str(place)) is None)
    ):
        return "a folder, and no store", said_inside(place)
    if isinstance(place, Path) and _is_sweep(place):
        return "trials, which sweep wrote", _command("report", place, "shows them")
    if isinstance(place, Path) and kind_of(str(place)) is not None:
        return "a file of another format", _command("convert", place, "makes data of it")
    return "nothing that kmufs-stream reads", "Look for a slip in the path."


def stored_attributes(place: Place) -> Mapping[str, Any] | None:
    """The attributes of a Zarr group or array; None of whatever is none, or damaged."""
    try:
        return dict(zarr.open(zarr_root(place), mode="r").attrs)
    except Exception:  # whatever it is, it is no Zarr store
        return None


def _is_sweep(place: Path) -> bool:
    """Whether sweep wrote it by --csv, or printed it by --json, as its first line tells."""
    try:
        with place.open(encoding="utf-8") as file:
            first = file.readline(LONGEST)
    except (OSError, ValueError):
        return False
    return first.startswith('{"trials":') or set(SWEPT) <= set(next(csv.reader([first]), []))


def _command(command: str, place: Place, does: str, *more: str) -> str:
    """What does something with a place: a command, or for what only Python has its function."""
    if isinstance(place, Store):
        return f"kmufs_stream.{FUNCTIONS.get(command, command)} {does}."
    return f"{shlex.join(['kmufs-stream', command, name_of(place), *more])} {does}."

"""Tell what is stored at a path, and open what this tool wrote in a format that it reads."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import xarray as xr
import zarr
from upath import UPath
from zarr.abc.store import Store

from kmufs_stream.errors import RequestError
from kmufs_stream.sources.convertible import is_mixed, kind_of, said_inside
from kmufs_stream.storage.places import (
    Place,
    PlaceLike,
    check_exists,
    exists,
    is_hdf5,
    name_of,
    place_of,
    zarr_root,
)
from kmufs_stream.storage.provenance import (
    APPLICATION,
    CHECKPOINT,
    CHECKPOINT_FILE,
    FACTOR,
    FORMAT_VERSIONS,
    SELECTION,
)
from kmufs_stream.storage.zarr_io import open_decoded

SWEEP = "kmufs-sweep"  # CSV or JSON without a version
SWEEP_DTYPES: dict[str, type] = {
    "k": int,
    "h": int,
    "solver": str,
    "objective": float,
    "optimum": float,
    "explained": float,
    "mean_correlation": float,
    "converged": bool,
}
"""Columns of a sweep that a report needs; there are more."""
FUNCTIONS = {"plan": "plan_selection"}  # Python's, where the command has another name
FIRST_LINE = 10_000  # letters


class Format(NamedTuple):
    """How messages speak of a format: its noun, the thing, its command, and how to make it anew."""

    noun: str
    thing: str
    command: str
    anew: str


FORMATS = {
    FACTOR: Format("factor", "a factor", "decompose", "Decompose again"),
    SELECTION: Format("selection", "a selection", "select", "Select again"),
    APPLICATION: Format("selection", "an applied selection", "apply", "Apply the selection again"),
}


@dataclass(frozen=True)
class Written:
    """Something that this tool wrote.

    Attributes
    ----------
    format : one of ``FORMAT_VERSIONS``, or ``SWEEP``.
    attributes : what it says of itself.
    """

    place: Place
    format: str
    attributes: dict[str, Any]

    def read(self, group: str | None = None, *, load: bool = False) -> xr.Dataset:
        """Open its root or a group, without indexes, which would load all labels; load it all.

        Raises RequestError where xarray cannot open it.
        """
        try:
            found = open_decoded(
                zarr_root(self.place), group=group, chunks=None, create_default_indexes=False
            )
            return found.load() if load else found
        except Exception as error:
            noun, thing, command, _ = FORMATS[self.format]
            raise RequestError(
                f"not_a_{noun}",
                f"{name_of(self.place)} cannot be read as {thing}: {type(error).__name__}: {error}",
                f"Make it with kmufs-stream {command}.",
            ) from error


def identify(place: Place) -> Written | None:
    """Return what this tool wrote at a place, whatever its version; None for anything else."""
    attributes = _zarr_attributes(place)
    if attributes is not None:
        known = attributes.get("format") in FORMAT_VERSIONS
        return Written(place, attributes["format"], attributes) if known else None
    if isinstance(place, Path | UPath) and (place / CHECKPOINT_FILE).is_file():
        return _checkpoint(place)
    if isinstance(place, Path) and _is_sweep(place):
        return Written(place, SWEEP, {})
    return None


def is_factor(where: PlaceLike, *, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Tell whether a factor is stored at a place, be it damaged or of another version.

    Parameters
    ----------
    where : path, address or Zarr store
        The place.
    storage_options : mapping, optional
        For fsspec, if it is an address.

    Returns
    -------
    bool
        False also if nothing is there.

    Raises
    ------
    RequestError
        The address cannot be reached.
    """
    place = place_of(where, storage_options)
    found = identify(place) if exists(place) else None
    return found is not None and found.format == FACTOR


def open_written(place: Place, *formats: str) -> Written:
    """Open what this tool wrote in one of some formats.

    Raises RequestError where nothing is there, or anything else, or another version wrote it.
    """
    wanted = FORMATS[formats[0]]
    check_exists(place, f"Make it with kmufs-stream {wanted.command}.")
    found = identify(place)
    if found is None or found.format not in formats:
        what, hint = describe(place, found)
        raise RequestError(
            f"not_a_{wanted.noun}",
            f"{name_of(place)} is not {wanted.thing}: it is {what}.",
            f"Give what kmufs-stream {wanted.command} wrote. {hint}",
        )
    version, reads = found.attributes.get("format_version"), FORMAT_VERSIONS[found.format]
    if version != reads:
        _, thing, _, anew = FORMATS[found.format]
        wrote = found.attributes.get("version", "unknown")
        raise RequestError(
            f"{wanted.noun}_format",
            f"{name_of(place)} is {thing} of format {version}, this version reads {reads}.",
            f"{anew}, or use the version that wrote it ({wrote}).",
        )
    return found


def describe(place: Place, found: Written | None) -> tuple[str, str]:
    """Return what is at a place, to follow "it is", and a hint what to do with it.

    Of data only metadata are read; nothing is raised.
    """
    if found is not None:
        return _describe_ours(found)
    if _zarr_attributes(place) is not None or (is_hdf5(place) and place.suffix == ".h5ad"):
        shown = _command("plan", place, "shows what would be read of it", "--k", "10", "--h", "10")
        return "data to select from", shown
    if isinstance(place, Path | UPath) and (place / CHECKPOINT_FILE).is_file():
        return "a damaged checkpoint", "Remove it, and start again."
    kind = kind_of(str(place)) if isinstance(place, Path) else None
    if isinstance(place, Path) and place.is_dir() and (kind is None or is_mixed(str(place))):
        return "a folder, and no store", said_inside(place)
    if kind is not None:
        return "a file of another format", _command("convert", place, "makes data of it")
    return "nothing that kmufs-stream reads", "Look for a slip in the path."


def _describe_ours(found: Written) -> tuple[str, str]:
    place, said = found.place, found.attributes
    if found.format == SELECTION:
        hint = _command("info", place, "tells how it was made")
        return "a selection, which select wrote", hint
    if found.format == FACTOR:
        k, does = str(said.get("k")), "chooses features by it"
        hint = _command("sweep", place, does, "--k", k, "--suggest-h")
        return "a factor, which decompose wrote", hint
    if found.format == APPLICATION:
        hint = _command("evaluate", place, "judges it")
        return "what apply wrote", f"The selection that it took is {said.get('selection')}. {hint}"
    if found.format == CHECKPOINT:
        return "a checkpoint", _command("info", place, "tells which run it belongs to")
    return "trials, which sweep wrote", _command("report", place, "shows them")


def read_trials(path: Path) -> pd.DataFrame:
    """Read what ``sweep --csv`` wrote, or ``sweep --json`` printed: a trial per row.

    Raises RequestError for other tables.
    """
    try:
        if path.suffix.lower() == ".csv":
            table = pd.read_csv(path)
        else:
            table = pd.DataFrame(json.loads(path.read_text(encoding="utf-8"))["trials"])
        lacking = [column for column in SWEEP_DTYPES if column not in table]
        if lacking:
            raise ValueError(f"it has no column {lacking[0]}")
        return table[list(SWEEP_DTYPES)].astype(SWEEP_DTYPES)
    except (ValueError, KeyError, TypeError, UnicodeError) as error:
        said = f"it has no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise RequestError(
            "not_a_sweep",
            f"{path} is not the table of a sweep: {said.rstrip('.')}.",
            "Give what kmufs-stream sweep wrote by --csv, or printed by --json.",
        ) from error


def _zarr_attributes(place: Place) -> dict[str, Any] | None:
    """The attributes of a Zarr group or array; None for anything else, or damaged metadata."""
    try:
        return dict(zarr.open(zarr_root(place), mode="r").attrs)
    except Exception:  # whatever it is, it is no Zarr store
        return None


def _checkpoint(folder: Path | UPath) -> Written | None:
    """The checkpoint in a folder; None where its file is damaged."""
    try:
        said = dict(json.loads((folder / CHECKPOINT_FILE).read_bytes()))
        kind, _, version = said["format"].partition(" ")
        said |= {"format": kind, "format_version": int(version)}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return Written(folder, CHECKPOINT, said) if kind == CHECKPOINT else None


def _is_sweep(path: Path) -> bool:
    """Whether the first line is that of what ``sweep --csv`` writes or ``--json`` prints."""
    try:
        with path.open(encoding="utf-8") as file:
            first = file.readline(FIRST_LINE)
    except (OSError, ValueError):
        return False
    columns = set(next(csv.reader([first]), []))
    return first.startswith('{"trials":') or SWEEP_DTYPES.keys() <= columns


def _command(command: str, place: Place, does: str, *more: str) -> str:
    """A sentence that begins with the command, or with Python's function for a store in memory."""
    if isinstance(place, Store):
        return f"kmufs_stream.{FUNCTIONS.get(command, command)} {does}."
    return f"{shlex.join(['kmufs-stream', command, name_of(place), *more])} {does}."

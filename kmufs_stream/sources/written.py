"""Tell what is stored at a path, and open what this tool wrote in a format that it reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import xarray as xr
import zarr
from upath import UPath

from kmufs_stream.errors import RequestError
from kmufs_stream.sources.convertible import kind_of, said_inside
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
FIRST_LINE = 10_000  # letters


class Format(NamedTuple):
    """How messages speak of a format."""

    noun: str  # in codes of errors
    thing: str
    writer: str  # the command that writes it
    use: str  # a command that takes it


FORMATS = {
    FACTOR: Format("factor", "a factor", "decompose", "sweep chooses features by it"),
    SELECTION: Format("selection", "a selection", "select", "info tells how it was made"),
    APPLICATION: Format("selection", "an applied selection", "apply", "evaluate judges it"),
    CHECKPOINT: Format("checkpoint", "a checkpoint", "an interrupted run", "info tells of which"),
    SWEEP: Format("sweep", "a table of trials", "sweep", "report shows them"),
}


@dataclass(frozen=True)
class Written:
    """Something that this tool wrote."""

    place: Place
    format: str  # a key of FORMATS
    attributes: dict[str, Any]  # what it says of itself

    def read(self, group: str | None = None, *, load: bool = False) -> xr.Dataset:
        """Open its root or a group, and load it all if asked to.

        No index is made, as it would load all labels. Raises RequestError if xarray cannot open it.
        """
        try:
            found = open_decoded(
                zarr_root(self.place), group=group, chunks=None, create_default_indexes=False
            )
            return found.load() if load else found
        except Exception as error:
            known = FORMATS[self.format]
            raise RequestError(
                f"not_a_{known.noun}",
                f"{name_of(self.place)} cannot be read as {known.thing}: {type(error).__name__}: "
                f"{error}",
                f"Make it with kmufs-stream {known.writer}.",
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

    Raises RequestError if nothing is there, or anything else, or another version of the format.
    """
    wanted = FORMATS[formats[0]]
    check_exists(place, f"Make it with kmufs-stream {wanted.writer}.")
    found = identify(place)
    if found is None or found.format not in formats:
        what, hint = describe(place, found)
        raise RequestError(
            f"not_a_{wanted.noun}",
            f"{name_of(place)} is not {wanted.thing}: it is {what}.",
            f"Give what kmufs-stream {wanted.writer} wrote. {hint}",
        )
    version, reads = found.attributes.get("format_version"), FORMAT_VERSIONS[found.format]
    if version != reads:
        known = FORMATS[found.format]
        wrote = found.attributes.get("version", "unknown")
        raise RequestError(
            f"{wanted.noun}_format",
            f"{name_of(place)} is {known.thing} of format {version}, this version reads {reads}.",
            f"Make it again with {known.writer}, or use the version that wrote it ({wrote}).",
        )
    return found


def describe(place: Place, found: Written | None) -> tuple[str, str]:
    """Return what is stored at a place, to follow "it is", and a hint how to use it.

    Reads only metadata of data; raises nothing.
    """
    if found is not None:
        known = FORMATS[found.format]
        return f"{known.thing}, which {known.writer} wrote", f"kmufs-stream {known.use}."
    if _zarr_attributes(place) is not None or (is_hdf5(place) and place.suffix == ".h5ad"):
        return "data to select from", "kmufs-stream plan shows what would be read of it."
    if isinstance(place, Path | UPath) and (place / CHECKPOINT_FILE).is_file():
        return "a damaged checkpoint", "Remove it, and start again."
    if isinstance(place, Path) and kind_of(str(place)) is not None:
        return "a file of another format", "kmufs-stream convert makes data of it."
    if isinstance(place, Path) and place.is_dir():
        return "a folder, and no store", said_inside(place)
    return "nothing that kmufs-stream reads", "Look for a slip in the path."


def read_trials(path: Path) -> pd.DataFrame:
    """Read what ``sweep --csv`` wrote, or ``sweep --json`` printed: a trial per row.

    Raises RequestError for other tables.
    """
    try:
        if path.suffix.lower() == ".csv":
            table = pd.read_csv(path)
        else:
            table = pd.DataFrame(json.loads(path.read_text(encoding="utf-8"))["trials"])
        return table[list(SWEEP_DTYPES)].astype(SWEEP_DTYPES)
    except (ValueError, KeyError, TypeError, UnicodeError) as error:
        said = " ".join(str(error).split())
        raise RequestError(
            "not_a_sweep",
            f"{path} is not the table of a sweep: {said.rstrip('.')}.",
            "Give what kmufs-stream sweep wrote by --csv, or printed by --json.",
        ) from error


def _zarr_attributes(place: Place) -> dict[str, Any] | None:
    """Read the attributes of a Zarr group or array; None for anything else, or damaged metadata."""
    try:
        return dict(zarr.open(zarr_root(place), mode="r").attrs)
    except Exception:  # whatever it is, it is no Zarr store
        return None


def _checkpoint(folder: Path | UPath) -> Written | None:
    """Read the checkpoint in a folder; None if its file is damaged."""
    try:
        said = dict(json.loads((folder / CHECKPOINT_FILE).read_bytes()))
        kind, _, version = said["format"].partition(" ")
        said |= {"format": kind, "format_version": int(version)}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return Written(folder, CHECKPOINT, said) if kind == CHECKPOINT else None


def _is_sweep(path: Path) -> bool:
    """Whether ``sweep --csv`` wrote a file, or ``sweep --json`` printed it, by its first line."""
    try:
        with path.open(encoding="utf-8") as file:
            first = file.readline(FIRST_LINE)
    except (OSError, ValueError):
        return False
    columns = first.strip().split(",")
    return first.startswith('{"trials":') or SWEEP_DTYPES.keys() <= {*columns}

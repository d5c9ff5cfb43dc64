"""Kinds of files that are not read as they are, but that ``kmufs-stream convert`` turns."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path

from kmufs_stream.errors import KmufsError, Placeholder, RequestError, Text, listed
from kmufs_stream.storage.places import free_name, is_zarr

SHOWN = 5  # names
STORES = (".zarr", ".zarr.zip", ".h5ad")
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
INSIDE = "::"  # parts a file from the path of what is meant inside it
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".npy": "npy",
    ".npz": "npy",
    ".nc": "netcdf",
    ".nc4": "netcdf",
    ".cdf": "netcdf",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".mat": "mat",
    ".mtx": "mtx",
}


def kind_of(path: str) -> str | None:
    """The format of a convertible file or folder by its name, None for anything else."""
    place = Path(path.partition(INSIDE)[0])
    if place.is_dir():
        if is_zarr(place):
            return None
        if any(place.glob("matrix.mtx*")):
            return "mtx"
        return "parquet" if next(place.rglob("*.parquet"), None) else None
    suffixes = [s for s in place.suffixes if s not in COMPRESSED]
    return SUFFIXES.get(suffixes[-1].lower()) if suffixes else None


def data_inside(folder: Path) -> list[str]:
    """The names of the stores in a folder, and then of the files there that can be converted."""
    stores: list[str] = []
    files: list[str] = []
    with contextlib.suppress(OSError, KmufsError):  # where nobody may look there is nothing to give
        for child in sorted(folder.iterdir()):
            if child.name.endswith(STORES) or (child.is_dir() and is_zarr(child)):
                stores.append(child.name)
            elif child.is_file() and kind_of(str(child)) is not None:
                files.append(child.name)
    return stores + files


def is_mixed(path: str) -> bool:
    """Whether it is a folder that holds other data than parts of one Parquet table."""
    folder = Path(path)
    if not folder.is_dir() or kind_of(path) == "mtx":
        return False
    return any(kind_of(str(folder / name)) != "parquet" for name in data_inside(folder))


def said_inside(folder: Path) -> str:
    """What to give in place of a folder: a sentence."""
    names = data_inside(folder)
    if not names:
        return "The folder holds no store, and no file that can be converted: look for a slip."
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return f"Give one of what is in it: {listed(names[:SHOWN])}{more}."


def refuse_convertible(path: str) -> None:
    """Raise RequestError with the command to type, where the path leads to such data."""
    if is_mixed(path):
        return
    kind = kind_of(path)
    if kind is None or not Path(path.partition(INSIDE)[0]).exists():
        return
    name = Path(path.partition(INSIDE)[0]).resolve()
    stem = Path(name.stem if name.suffix in COMPRESSED else name).stem
    there = Path(f"{stem}.zarr").exists()
    command = ["kmufs-stream", "convert", path, *[free_name(f"{stem}.converted.zarr")] * there]
    remedy = f"First type: {shlex.join(command)}"
    if there:
        made = f"If {stem}.zarr, which is here, was made of it, give that."
        remedy = f"{made} Else first type: {shlex.join(command)}"
    if kind in ("csv", "parquet"):
        columns = Text(
            "Columns of numbers that are no features: {index_column}, {coordinates}.",
            coordinates=Placeholder("NAME"),
        )
        remedy = columns + " " + remedy
    raise RequestError("not_zarr", f"{path} is not a Zarr store, but can be made into one.", remedy)

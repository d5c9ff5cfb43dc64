"""Kinds of files that are not read as they are, but that ``kmufs-stream convert`` turns."""

from __future__ import annotations

import shlex
from pathlib import Path

from kmufs_stream.errors import RequestError
from kmufs_stream.places import is_zarr

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
    suffixes = [s for s in place.suffixes if s not in (".gz", ".bz2", ".xz", ".zst")]
    return SUFFIXES.get(suffixes[-1].lower()) if suffixes else None


def refuse_convertible(path: str) -> None:
    """Raise RequestError with the command to type, where the path leads to such data."""
    kind = kind_of(path)
    if kind is None or not Path(path.partition(INSIDE)[0]).exists():
        return
    command = shlex.join(["kmufs-stream", "convert", path])
    raise RequestError(
        "not_zarr",
        f"{path} is not a Zarr store, but can be made into one.",
        f"First type: {command}",
    )

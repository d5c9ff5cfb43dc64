"""Recognise files that ``kmufs-stream convert`` makes Zarr stores of."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path

from kmufs_stream.errors import KmufsError, RequestError, Text, first_few
from kmufs_stream.storage.places import is_zarr

STORES = (".zarr", ".zarr.zip", ".h5ad")
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
INSIDE = "::"  # between a file and a path inside it
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
    """Return the format of a convertible file or folder, judged by its name, or None."""
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
    """List the stores in a folder, then the files that can be converted."""
    stores: list[str] = []
    files: list[str] = []
    with contextlib.suppress(OSError, KmufsError):  # a folder that may not be read
        for child in sorted(folder.iterdir()):
            if child.name.endswith(STORES) or (child.is_dir() and is_zarr(child)):
                stores.append(child.name)
            elif child.is_file() and kind_of(str(child)) is not None:
                files.append(child.name)
    return stores + files


def said_inside(folder: Path) -> str:
    """Suggest, in a sentence, what to give instead of a folder."""
    names = data_inside(folder)
    if not names:
        return "The folder holds no store and no file that can be converted; check the path."
    return f"Give one of what is in it: {first_few(names)}."


def refuse_convertible(path: str) -> None:
    """Raise RequestError for convertible data, with the command that converts them."""
    kind, place = kind_of(path), Path(path.partition(INSIDE)[0])
    if kind is None or not place.exists():
        return
    hint = f"First type: {shlex.join(['kmufs-stream', 'convert', path])}"
    if kind in ("csv", "parquet"):
        hint = Text(
            "Columns of numbers that are not features: {index_column}, {coordinates}. {}",
            hint,
        )
    raise RequestError("not_zarr", f"{path} is not a Zarr store, but can be made into one.", hint)

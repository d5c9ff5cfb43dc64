"""Convert files of other formats to Zarr stores."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kmufs_stream.errors import RequestError, Text
from kmufs_stream.events import SILENT, Progress
from kmufs_stream.formats.blocks import ForeignTable, reading, write_blocks
from kmufs_stream.formats.hdf5 import is_netcdf, open_hdf5, open_mat
from kmufs_stream.formats.mtx import write_mtx
from kmufs_stream.formats.netcdf import write_netcdf
from kmufs_stream.formats.npy import open_npy
from kmufs_stream.sources.casting import parse_dtype
from kmufs_stream.sources.convertible import INSIDE, SUFFIXES, kind_of
from kmufs_stream.sources.zarr_store import tables_in
from kmufs_stream.storage.output import check_output, new_zarr
from kmufs_stream.storage.places import Place, PlaceLike, name_of, place_of
from kmufs_stream.streaming.planning.plan import memory_budget
from kmufs_stream.system.memory import peak_memory
from kmufs_stream.version import __version__

COLUMNS = ("csv", "parquet")
ARRAYS = {"npy": open_npy, "mat": open_mat, "hdf5": open_hdf5}


@dataclass(frozen=True, repr=False)
class Conversion:
    """Result of :func:`kmufs_stream.convert`.

    Attributes
    ----------
    output : path, address or Zarr store
        Where it was written.
    format : str
        Format of the input.
    sizes : dict of str to int
        Sizes of the dimensions, by name.
    seconds : float
        Wall-clock seconds.
    columns : dict of str to str
        Of a text or Parquet table: the columns that describe the samples, by the names of the
        coordinates that they became.
    features : tuple of str
        Of such a table: the columns that became features.
    missing : dict of str to int, or None
        Numbers of missing values, of samples and features that miss some, and of features without
        any value; None for NetCDF and 10x, where they are not counted.
    notes : tuple of str
        Warnings, a line each: columns that became features and look as if they described samples,
        columns that were left out or share a name, how text was read.
    tables : dict of str to dict
        Of NetCDF: the variables that may be the table, the likeliest first, with the sizes of their
        dimensions.
    """

    output: Place
    format: str
    sizes: dict[str, int]
    seconds: float
    columns: dict[str, str] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    missing: dict[str, int] | None = None
    notes: tuple[str, ...] = ()
    tables: dict[str, dict[str, int]] = field(default_factory=dict)

    def __repr__(self) -> str:
        sizes = " x ".join(f"{number:,} {dim}" for dim, number in self.sizes.items())
        return f"<Conversion: {self.format}, {sizes}, to {name_of(self.output)}>"

    def summary(self) -> dict[str, Any]:
        """Return the same in plain JSON types; docs/output.md lists the keys."""
        return {
            "output": name_of(self.output),
            "format": self.format,
            "sizes": self.sizes,
            "coordinates": self.columns,
            "missing": self.missing,
            "notes": list(self.notes),
            "seconds": {"total": self.seconds},
            "peak_rss_bytes": peak_memory(),
            "version": __version__,
        }


def convert(
    source: str | os.PathLike[str],
    out: PlaceLike,
    *,
    index_column: str | None = None,
    coordinates: str | Sequence[str] = (),
    dtype: str | None = None,
    memory: str | int | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress = SILENT,
) -> Conversion:
    """Convert a file of another format to a Zarr store that :func:`kmufs_stream.select` reads.

    Parameters
    ----------
    source : path
        ``.csv``, ``.tsv``, ``.parquet`` (a file or a folder of them), ``.npy``, ``.npz``, NetCDF
        (NetCDF-4 as ``.h5``, too), HDF5, ``.mat``, or a 10x folder with ``matrix.mtx``.
        ``FILE::NAME`` is the array NAME inside an archive, ``FILE.h5::/PATH`` a dataset,
        ``FILE.nc::GROUP`` a group.
    out : path, address or empty Zarr store
        Where to write: labels of features and names of samples as coordinates ``feature`` and
        ``sample``; NetCDF with all its variables; 10x folders as sparse AnnData.
    index_column : str, optional
        Column of a text or Parquet table that names the samples.
    coordinates : str or sequence of str, optional
        Columns of numbers of such a table that describe the samples and are no features. Columns of
        text, times and categories always are coordinates of the samples.
    dtype : str, optional
        Dtype to store the values in, such as ``float32``; by default their own. Floating point
        rounds them, any other dtype has to hold them exactly.
    memory, overwrite, storage_options, progress
        See :func:`kmufs_stream.decompose`.

    Returns
    -------
    Conversion
        What was written.

    Raises
    ------
    RequestError
        The source is of no such format, damaged, no table of numbers, holds several tables or a
        value that does not fit the dtype; a library is missing, the budget is too small, the output
        must not be written.
    BrokenError
        Writing failed.

    Notes
    -----
    Reads the file once (text twice where ``coordinates`` are given), in blocks of some MB, except
    old MATLAB files and arrays in Fortran order within ``.npz``, which are read whole.
    """
    began = time.perf_counter()
    path, _, inside = os.fspath(source).partition(INSIDE)
    coordinates = [coordinates] if isinstance(coordinates, str) else coordinates
    kind = _format_of(path, inside)
    if inside and kind in (*COLUMNS, "mtx"):
        raise RequestError(
            "bad_option",
            f"{path} holds one table: there is no {inside!r} inside.",
            f"Leave out {INSIDE}{inside}.",
        )
    if (index_column is not None or coordinates) and kind not in COLUMNS:
        raise RequestError(
            "bad_option",
            f"{path} has no columns that could describe samples.",
            Text("Leave out {index_column} and {coordinates}; they are for .csv and .parquet."),
        )
    if dtype is not None and kind == "netcdf":
        raise RequestError(
            "bad_option",
            f"{path} is copied as it is stored, all its variables.",
            Text("Leave out {dtype}."),
        )
    wanted = None if dtype is None else parse_dtype(dtype)
    budget, target = memory_budget(memory), place_of(out, storage_options)
    check_output(target, [Path(path)], overwrite=overwrite, parameter="out")
    found: dict[str, Any] = {}
    with new_zarr(target, overwrite=overwrite) as folder:
        if kind == "netcdf":
            sizes = write_netcdf(folder, path, inside, budget, progress)
        elif kind == "mtx":
            sizes = write_mtx(folder, path, wanted, budget, progress)
        else:
            with reading(path):
                if kind in COLUMNS:
                    table = _open_columns(kind)(path, index_column, coordinates, wanted)
                else:
                    table = ARRAYS[kind](path, inside, budget)
            stored = wanted or table.dtype.newbyteorder("=")
            sizes, missing, notes = write_blocks(folder, table, stored, budget, progress)
            found = {
                "columns": {name: c.column for name, c in table.coordinates.items()},
                "features": () if table.labels is None else tuple(table.labels),
                "missing": missing,
                "notes": notes,
            }
    if kind == "netcdf":
        found = {"tables": tables_in(target)}
    return Conversion(target, kind, sizes, time.perf_counter() - began, **found)


def _open_columns(kind: str) -> Callable[..., ForeignTable]:
    """Import what reads tables of columns. Raises ImportError if pyarrow is missing."""
    import pyarrow  # noqa: F401

    from kmufs_stream.formats.csv import open_csv
    from kmufs_stream.formats.parquet import open_parquet

    return {"csv": open_csv, "parquet": open_parquet}[kind]


def _format_of(path: str, inside: str) -> str:
    """Recognise the format. Raises RequestError if there is no file, or none of a known format."""
    if not Path(path).exists():
        raise RequestError("not_found", f"{path} does not exist.", "Give the path of a file.")
    kind = kind_of(path)
    if kind is None:
        raise RequestError(
            "unknown_format",
            f"{path} is of no format that can be converted.",
            "Known are 10x folders, folders of .parquet, and " + ", ".join(SUFFIXES) + "; Zarr "
            "stores and .h5ad need no conversion.",
        )
    return "netcdf" if kind == "hdf5" and is_netcdf(path, inside) else kind

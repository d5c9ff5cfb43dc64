"""Files of other formats, turned into Zarr stores."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from zarr.abc.store import Store

from kmufs_stream.errors import KmufsError, RequestError, Text
from kmufs_stream.events import SILENT, Progress
from kmufs_stream.formats.blocks import Incoming, unreadable, write_blocks
from kmufs_stream.formats.csv import open_csv
from kmufs_stream.formats.hdf5 import is_netcdf, open_hdf5, open_mat
from kmufs_stream.formats.mtx import write_mtx
from kmufs_stream.formats.netcdf import write_netcdf
from kmufs_stream.formats.npy import open_npy
from kmufs_stream.formats.parquet import open_parquet
from kmufs_stream.sources.casting import parse_dtype
from kmufs_stream.sources.convertible import INSIDE, SUFFIXES, kind_of
from kmufs_stream.sources.zarr_store import tables_in
from kmufs_stream.storage.output import check_output, new_zarr
from kmufs_stream.storage.places import Place, PlaceLike, name_of, place_of
from kmufs_stream.streaming.planning.plan import memory_budget
from kmufs_stream.system.memory import peak_memory
from kmufs_stream.version import __version__

INDEXED = {"csv": open_csv, "parquet": open_parquet}
ARRAYS: dict[str, Callable[[str, str, int], Incoming]] = {
    "npy": open_npy,
    "mat": open_mat,
    "hdf5": lambda path, inside, budget: open_hdf5(path, inside),  # never read whole
}


@dataclass(frozen=True, repr=False)
class Conversion:
    """What :func:`kmufs_stream.convert` wrote.

    Attributes
    ----------
    output : path, address or Zarr store
        Where.
    format : str
        What the input was.
    sizes : dict of str to int
        Of its dimensions, by name.
    seconds : float
        Wall-clock seconds.
    columns : dict of str to str
        Of a text or Parquet table: the columns that describe the samples, by the names of the
        coordinates they became.
    features : tuple of str
        Of such a table: the columns that became features.
    missing : dict of str to int, or None
        Values, and the samples and features that miss some, features without any value; None where
        they were not looked at (NetCDF, 10x).
    tables : dict of str to dict
        Of NetCDF: the variables that may be the table, the likeliest first, with the sizes of their
        dimensions.
    notes : tuple of str
        A line each, of what may not be as the table's owner thinks: columns that are features and
        look as if they described samples, or are none, or share a name; how text was read.
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
        """The same in plain JSON types; the keys are listed in docs/output.md."""
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
    """Write a file of another format as a Zarr store that :func:`kmufs_stream.select` reads.

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
        To store the values in, such as ``float32``; their own by default. Floating point rounds
        them, anything else has to hold them exactly.
    memory : str or int, optional
        Most memory to use, such as ``2GB``; half of what is available by default.
    overwrite : bool, default False
        Replace what is there; see :func:`kmufs_stream.select`.
    storage_options : mapping, optional
        For fsspec, where ``out`` is an address.
    progress : callable, optional
        Told of what happens; see :func:`kmufs_stream.select`.

    Returns
    -------
    Conversion
        What was written.

    Raises
    ------
    RequestError
        Not such a file, damaged, not numbers, several tables inside, a library is missing, a value
        that does not fit the dtype, a budget too small, an output that must not be written.
    BrokenError
        Writing fails.

    Notes
    -----
    Reads the file once (text twice where ``coordinates`` are given), in blocks of some MB, but for
    old MATLAB files and arrays in Fortran order within ``.npz``: these are read whole.
    """
    began = time.perf_counter()
    given, target = os.fspath(source), place_of(out, storage_options)
    coordinates = [coordinates] if isinstance(coordinates, str) else coordinates
    path, _, inside = given.partition(INSIDE)
    kind = kind_of(given)
    if not Path(path).exists():
        raise RequestError("not_found", f"{path} does not exist.", "Give the path of a file.")
    if kind is None:
        raise RequestError(
            "unknown_format",
            f"{path} is of no format that can be converted.",
            "Known are 10x folders, folders of .parquet, and " + ", ".join(SUFFIXES) + "; Zarr "
            "stores and .h5ad need no conversion.",
        )
    if kind == "hdf5" and is_netcdf(path, inside):
        kind = "netcdf"
    if inside and kind in (*INDEXED, "mtx"):
        raise RequestError(
            "bad_option",
            f"{path} holds one table: there is no {inside!r} inside.",
            f"Leave out {INSIDE}{inside}.",
        )
    if (index_column is not None or coordinates) and kind not in INDEXED:
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
    budget = memory_budget(memory)
    check_output(target, [Path(path)], overwrite=overwrite, parameter="out")
    columns: dict[str, str] = {}
    features: tuple[str, ...] = ()
    missing: dict[str, int] | None = None
    notes: tuple[str, ...] = ()
    with new_zarr(target, overwrite=overwrite) as folder:
        if kind == "netcdf":
            sizes = write_netcdf(folder, path, inside, budget, progress)
        elif kind == "mtx":
            sizes = _tenx(folder, path, wanted, budget, progress)
        else:
            table = _open(kind, path, inside, index_column, coordinates, wanted, budget)
            written = write_blocks(folder, table, wanted or table.dtype, budget, progress)
            sizes, gaps, notes = written.sizes, written.gaps, written.notes
            missing = {
                "values": gaps.values,
                "samples": gaps.samples,
                "features": int(np.count_nonzero(gaps.of_feature)),
                "features_without_any": int(np.sum(gaps.of_feature == next(iter(sizes.values())))),
            }
            columns = {name: c.column for name, c in table.coordinates.items()}
            features = () if table.labels is None else tuple(table.labels)
    tables = tables_in(target) if kind == "netcdf" else {}
    seconds = time.perf_counter() - began
    return Conversion(target, kind, sizes, seconds, columns, features, missing, notes, tables)


def _tenx(
    folder: Store, path: str, dtype: np.dtype[Any] | None, budget: int, progress: Progress
) -> dict[str, int]:
    try:
        return write_mtx(folder, path, dtype, budget, progress)
    except KmufsError:
        raise
    except (EOFError, ValueError, zlib.error) as error:  # not OSError, which writing raises too
        raise unreadable(path, error) from error


def _open(
    kind: str,
    path: str,
    inside: str,
    index_column: str | None,
    coordinates: Sequence[str],
    wanted: np.dtype[Any] | None,
    budget: int,
) -> Incoming:
    if kind in INDEXED:
        opened = partial(INDEXED[kind], path, index_column, coordinates, wanted)
    else:
        opened = partial(ARRAYS[kind], path, inside, budget)
    try:
        return opened()
    except (KmufsError, MemoryError):
        raise
    except Exception as error:
        raise unreadable(path, error) from error

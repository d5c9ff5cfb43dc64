"""Files of other formats, turned into Zarr stores."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zarr.abc.store import Store

from kmufs_stream.errors import KmufsError, RequestError
from kmufs_stream.formats.csv import open_csv
from kmufs_stream.formats.hdf5 import open_hdf5, open_mat
from kmufs_stream.formats.incoming import Incoming, unreadable, write_blocks
from kmufs_stream.formats.mtx import write_mtx
from kmufs_stream.formats.netcdf import write_netcdf
from kmufs_stream.formats.npy import open_npy
from kmufs_stream.formats.parquet import open_parquet
from kmufs_stream.output import check_output, new_zarr
from kmufs_stream.places import Place, PlaceLike, name_of, place_of
from kmufs_stream.progress import SILENT, Progress
from kmufs_stream.sources.convertible import INSIDE, SUFFIXES, kind_of
from kmufs_stream.streaming.memory import peak_memory
from kmufs_stream.version import __version__

INDEXED = {"csv": open_csv, "parquet": open_parquet}
ARRAYS = {"npy": open_npy, "hdf5": open_hdf5, "mat": open_mat}


@dataclass(frozen=True)
class Conversion:
    """What was written.

    Attributes
    ----------
    format : what the input was.
    sizes : of its dimensions, by name.
    """

    output: Place
    format: str
    sizes: dict[str, int]
    seconds: float

    def summary(self) -> dict[str, Any]:
        """The same in plain JSON types; the keys are listed in docs/output.md."""
        return {
            "output": name_of(self.output),
            "format": self.format,
            "sizes": self.sizes,
            "seconds": {"total": self.seconds},
            "peak_rss_bytes": peak_memory(),
            "version": __version__,
        }


def convert(
    source: str | os.PathLike[str],
    out: PlaceLike,
    *,
    index_column: str | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress = SILENT,
) -> Conversion:
    """Write a file of another format as a Zarr store that :func:`kmufs_stream.select` reads.

    Parameters
    ----------
    source : ``.csv``, ``.tsv``, ``.parquet`` (a file or a folder of them), ``.npy``, ``.npz``,
        NetCDF, HDF5, ``.mat``, or a 10x folder with ``matrix.mtx``. ``FILE::NAME`` is the array
        NAME inside an archive, ``FILE.h5::/PATH`` a dataset, ``FILE.nc::GROUP`` a group.
    out : store to write: labels of features and names of samples as coordinates ``feature`` and
        ``sample``; NetCDF with all its variables; 10x folders as sparse AnnData.
    index_column : column of a text or Parquet table that names the samples.
    storage_options : for fsspec, where ``out`` is an address.

    Raises
    ------
    RequestError : not such a file, damaged, not numbers, several tables inside, a library is
        missing, an output that must not be written.
    BrokenError : writing fails.

    Reads the file once, in blocks of some MB, but for old MATLAB files and arrays in Fortran
    order within ``.npz``: these are read whole.
    """
    began = time.perf_counter()
    given, target = os.fspath(source), place_of(out, storage_options)
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
    if index_column is not None and kind not in INDEXED:
        raise RequestError(
            "bad_option",
            f"{path} has no columns to name samples by.",
            "Leave out --index-column; it is for .csv and .parquet.",
        )
    check_output(target, [Path(path)], overwrite=overwrite)
    with new_zarr(target, overwrite=overwrite) as folder:
        if kind == "netcdf":
            sizes = write_netcdf(folder, path, inside, progress)
        elif kind == "mtx":
            sizes = _tenx(folder, path, progress)
        else:
            sizes = write_blocks(folder, _open(kind, path, inside, index_column), progress)
    return Conversion(target, kind, sizes, time.perf_counter() - began)


def _tenx(folder: Store, path: str, progress: Progress) -> dict[str, int]:
    try:
        return write_mtx(folder, path, progress)
    except KmufsError:
        raise
    except (EOFError, ValueError, zlib.error) as error:  # not OSError, which writing raises too
        raise unreadable(path, error) from error


def _open(kind: str, path: str, inside: str, index_column: str | None) -> Incoming:
    try:
        if kind in INDEXED:
            return INDEXED[kind](path, index_column)
        return ARRAYS[kind](path, inside)
    except (KmufsError, MemoryError):
        raise
    except Exception as error:
        raise unreadable(path, error) from error

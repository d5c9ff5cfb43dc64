"""Read arrays in HDF5 files, also from many threads and processes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.errors import RequestError, missing_library
from kmufs_stream.storage.chunks import readable

if TYPE_CHECKING:
    import h5py


class HDF5Array:
    """An HDF5 dataset, opened again in each process. h5py lets one thread read at a time."""

    def __init__(self, dataset: h5py.Dataset) -> None:
        self._path, self._key = str(dataset.file.filename), str(dataset.name)
        self._dataset: h5py.Dataset | None = dataset
        self.shape: tuple[int, ...] = dataset.shape
        self.dtype: np.dtype[Any] = dataset.dtype
        self.chunks: tuple[int, ...] = dataset.chunks or (1, *dataset.shape[1:])

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_dataset": None}

    def __getitem__(self, region: Any) -> NDArray[Any]:
        if self._dataset is None:
            import h5py

            self._dataset = h5py.File(self._path, "r")[self._key]
        return np.asarray(self._dataset[region])

    def inventory(self) -> list[str]:
        """Shape and dtype, and the file's size and time of change."""
        stat = Path(self._path).stat()
        return [f"{self.shape} {self.dtype.str}", f"{self._key} {stat.st_size} {stat.st_mtime_ns}"]

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Read rows of a two-dimensional dataset; see Rows."""
        with readable(f"rows {start}..{stop - 1} of {self._path}:{self._key}"):
            return self[start:stop]

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        return self.read(start, stop)[:, columns]


def without_anndata(path: object) -> RequestError:
    return missing_library(f"Reading {path}, which is AnnData,", "anndata")


def open_hdf5(path: str) -> h5py.File:
    """Open a file for reading. Raises RequestError if it is damaged or h5py is not installed."""
    try:
        import h5py
    except ImportError as error:
        raise without_anndata(path) from error
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise RequestError(
            "bad_metadata",
            f"{path} cannot be opened as HDF5: {error}",
            "The file is damaged; write it again.",
        ) from error

"""Read dimension names, coordinates and attributes from groups of a Zarr store."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import xarray as xr
import zarr
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core.indexing import (
    ExplicitIndexer,
    IndexingSupport,
    LazilyIndexedArray,
    explicit_indexing_adapter,
)

from kmufs_stream.errors import BrokenError
from kmufs_stream.storage.chunks import cells, damaged_chunk
from kmufs_stream.storage.integrity import check_filters
from kmufs_stream.storage.retrying import CheckedStore, through
from kmufs_stream.storage.zarr_io import with_coordinates


class StoredDataset:
    """Dimension names, attributes and coordinates of the arrays of a Zarr group.

    Everything is encoded and lazy. Of a group whose arrays have no dimension names, only the
    attributes are read.

    Parameters
    ----------
    group : it inherits coordinates of the groups above it. None for an array without a group.
    """

    def __init__(self, group: zarr.Group | None = None) -> None:
        self.arrays: dict[str, zarr.Array[Any]] = {}
        self.own, self._above = xr.Dataset(), []
        if group is not None:
            self.arrays = dict(sorted(group.arrays()))
            inside = PurePosixPath(group.path)
            paths = [str(path) if path.name else "" for path in inside.parents]
            above = [zarr.open_group(group.store, path=path, mode="r") for path in paths]
            self.own, self._above = _open(group), [_open(each) for each in above]

    def dims(self, array: zarr.Array[Any]) -> tuple[str, ...] | None:
        """Return the names of an array's dimensions, or None if the store has none."""
        if array.basename in self.own.variables:
            return tuple(map(str, self.own[array.basename].dims))
        names: Any = array.attrs.get("_ARRAY_DIMENSIONS")
        if array.metadata.zarr_format == 3:
            names = array.metadata.dimension_names
        if not names or None in names or len(set(names)) != array.ndim:
            return None
        return tuple(map(str, names))

    def attrs(self, array: zarr.Array[Any]) -> dict[str, Any]:
        if array.basename in self.own.variables:
            return dict(self.own[array.basename].attrs)
        return {k: v for k, v in array.attrs.items() if k != "_ARRAY_DIMENSIONS"}

    def coordinates(self, name: str | None, sizes: Mapping[str, int]) -> xr.Dataset:
        """Return the coordinates of a variable, and the attributes of the group.

        Parameters
        ----------
        name : of the variable; None for all coordinates along its dimensions.
        sizes : of its dimensions.
        """
        found: dict[Any, xr.Variable] = {}
        for dataset in (self.own, *self._above):
            whole = dataset[name] if name in dataset.variables else dataset
            for coordinate, array in whole.coords.items():
                fits = all(sizes.get(str(d)) == n for d, n in array.sizes.items())
                if fits and coordinate not in found:
                    found[coordinate] = array.variable
        frame = xr.Dataset(attrs=self.own.attrs)
        return frame.assign_coords(xr.Coordinates(found, indexes={})).drop_encoding()


def _open(group: zarr.Group) -> xr.Dataset:
    arrays = dict(group.arrays())
    store = CheckedStore(group.store, arrays.values())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # unconsolidated metadata, say
            opened: xr.Dataset = xr.open_zarr(
                store,
                group=group.path or None,
                chunks=None,
                decode_times=False,
                mask_and_scale=False,
                concat_characters=False,
                create_default_indexes=False,
            )
    except (KeyError, ValueError):
        return xr.Dataset(attrs=dict(group.attrs))
    opened = with_coordinates(opened)
    for name, variable in opened.variables.items():
        values = _NamedChunks(variable.copy(deep=False), through(arrays[str(name)], store))
        variable.data = LazilyIndexedArray(values)
    return opened


class _NamedChunks(BackendArray):
    """The values of a variable; errors name the chunk that cannot be read."""

    def __init__(self, variable: xr.Variable, array: zarr.Array[Any]) -> None:
        self.shape, self.dtype = variable.shape, variable.dtype
        self._variable, self._array = variable, array

    def __getitem__(self, key: ExplicitIndexer) -> Any:
        return explicit_indexing_adapter(key, self.shape, IndexingSupport.OUTER, self._read)

    def _read(self, region: tuple[Any, ...]) -> NDArray[Any]:
        check_filters(self._array)
        try:
            return np.asarray(self._variable[region].values)
        except BrokenError:
            raise
        except Exception:
            found = damaged_chunk(self._array, cells(self._array))
            if found is None:
                raise
            raise found from None


def numbered(array: zarr.Array[Any]) -> tuple[str, ...]:
    """Names for dimensions without any."""
    return tuple(f"dim_{i}" for i in range(array.ndim))


def check_text(labels: NDArray[Any] | None, name: str) -> None:
    """Raise ValueError for text that is not Unicode: damaged names would fail later."""
    if labels is None or labels.dtype.kind not in "OUT":
        return
    for i in range(len(labels)):
        try:
            str(labels[i]).encode("utf-8").decode("utf-8")
        except UnicodeError as error:
            raise ValueError(f"number {i} of {name!r} is not text: {error}") from error


def features_described(frame: xr.Dataset, feature_dim: str) -> xr.Dataset:
    """Load the coordinates of features, and scalar ones, into memory."""
    few = {name: c.load() for name, c in frame.coords.items() if {*c.dims} <= {feature_dim}}
    for name, coordinate in few.items():
        check_text(coordinate.values.ravel(), str(name))
    return frame.assign_coords(few)

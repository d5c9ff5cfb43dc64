"""Groups of a Zarr store as xarray sees them: dimension names, coordinates, attributes."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
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

from kmufs_stream.errors import BrokenError, KmufsError
from kmufs_stream.storage.chunks import cells, damaged_chunk
from kmufs_stream.storage.integrity import CheckedStore, check_filters, checks_of, through
from kmufs_stream.storage.zarr_io import with_coordinates


def open_datasets(group: zarr.Group) -> list[xr.Dataset]:
    """The group and those above it, whose coordinates it inherits; encoded and not loaded.

    Where arrays of a group have no dimension names it is no dataset, and only its attributes
    are there.
    """
    inside = PurePosixPath(group.path) if group.path else None
    above = [] if inside is None else [str(p) for p in inside.parents if str(p) != "."] + [""]
    return [_open(zarr.open_group(group.store, path=p, mode="r")) for p in [group.path, *above]]


def _open(group: zarr.Group) -> xr.Dataset:
    arrays = dict(group.arrays())
    store = CheckedStore(group.store, checks_of(arrays.values()))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # unconsolidated metadata: nothing a user can act on
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
        told = _Told(variable.copy(deep=False), through(arrays[str(name)], store))
        variable.data = LazilyIndexedArray(told)
    return opened


class _Told(BackendArray):
    """The values of a variable as they are; a chunk that cannot be read is told by its name."""

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


def dimension_names(array: zarr.Array[Any], datasets: list[xr.Dataset]) -> tuple[str, ...] | None:
    """The names of an array's dimensions, where the store gives them."""
    if datasets and array.basename in datasets[0].variables:
        return tuple(map(str, datasets[0][array.basename].dims))
    names: Any = array.attrs.get("_ARRAY_DIMENSIONS")
    if array.metadata.zarr_format == 3:
        names = array.metadata.dimension_names
    if not names or None in names or len(set(names)) != array.ndim:
        return None
    return tuple(map(str, names))


def check_text(labels: NDArray[Any] | None, name: str) -> None:
    """Raise ValueError for text that is none: damaged labels may be read and fail later."""
    if labels is None or labels.dtype.kind not in "OUT":
        return
    for i in range(len(labels)):
        try:
            str(labels[i]).encode("utf-8").decode("utf-8")
        except UnicodeError as error:
            raise ValueError(f"number {i} of {name!r} is no text: {error}") from error


@contextlib.contextmanager
def coordinates_read(source: str) -> Iterator[None]:
    """Say of whatever fails inside that it was a coordinate."""
    try:
        yield
    except KmufsError:
        raise
    except Exception as error:
        raise BrokenError(
            "corrupt_coordinate",
            f"A coordinate in {source} cannot be read: {type(error).__name__}: {error}",
            "Restore it from the data's origin, or take it out of the store.",
        ) from error


def coordinates(
    datasets: list[xr.Dataset], name: str | None, sizes: Mapping[str, int]
) -> xr.Dataset:
    """The coordinates of a variable, or of all along its dimensions, with the group's attributes.

    Parameters
    ----------
    name : the variable, or None.
    sizes : its dimensions; what lies along others is left out.
    """
    if not datasets:
        return xr.Dataset()
    found: dict[Any, xr.Variable] = {}
    for dataset in datasets:
        whole = dataset if name is None or name not in dataset.variables else dataset[name]
        for coordinate, array in whole.coords.items():
            fits = all(sizes.get(str(d)) == n for d, n in array.sizes.items())
            if fits and coordinate not in found:
                found[coordinate] = array.variable
    frame = xr.Dataset(attrs=datasets[0].attrs)
    return frame.assign_coords(xr.Coordinates(found, indexes={})).drop_encoding()


def features_described(frame: xr.Dataset, feature_dim: str) -> xr.Dataset:
    """The coordinates with those of features, and of all, in memory: read once, here."""
    few = {name: c.load() for name, c in frame.coords.items() if {*c.dims} <= {feature_dim}}
    for name, coordinate in few.items():
        check_text(coordinate.values.ravel(), str(name))
    return frame.assign_coords(few)


def attributes(array: zarr.Array[Any], datasets: list[xr.Dataset]) -> dict[str, Any]:
    """Attributes of an array, encoded as stored."""
    if datasets and array.basename in datasets[0].variables:
        return dict(datasets[0][array.basename].attrs)
    return {k: v for k, v in array.attrs.items() if k not in ("_ARRAY_DIMENSIONS",)}

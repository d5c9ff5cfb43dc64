"""Zarr stores as a matrix: a bare array, a group, or what xarray wrote; formats 2 and 3."""

from __future__ import annotations

import difflib
import itertools
import warnings
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
import zarr.core.sync
from numpy.typing import NDArray

from kmufs_stream.errors import BrokenError, RequestError
from kmufs_stream.sources.matrix import (
    Matrix,
    check_table,
    describe,
    feature_labels,
    is_numeric,
    orient,
)
from kmufs_stream.sources.sturdy import RETRIES, sturdy

CF_PACKING = ("scale_factor", "add_offset", "missing_value", "_FillValue", "_Unsigned")
BARE_DIMS = ("sample", "feature")


@dataclass(frozen=True)
class StoredRows:
    """Rows of a Zarr array, read through zarr directly and decoded by xarray where packed."""

    array: zarr.Array[Any]
    transposed: bool
    packing: dict[str, Any]

    def read(self, start: int, stop: int) -> NDArray[Any]:
        values = self._stored(start, stop, slice(None))
        if not self.packing:
            return values
        packed = xr.Dataset({"x": (("sample", "feature"), values, self.packing)})
        decoded = xr.decode_cf(packed, decode_times=False, decode_coords=False)
        values = decoded["x"].values
        return values

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        return self._stored(start, stop, columns)

    def _stored(self, start: int, stop: int, columns: Any) -> NDArray[Any]:
        rows = slice(start, stop)
        try:
            if self.transposed:
                return np.asarray(self.array.oindex[columns, rows]).T
            if isinstance(columns, slice):
                return np.asarray(self.array[rows])
            return np.asarray(self.array.oindex[rows, columns])
        except BrokenError:
            raise
        except Exception as error:
            raise self._broken(start, stop, error) from error

    def _broken(self, start: int, stop: int, error: Exception) -> BrokenError:
        """Name the chunk behind a failed read, by reading the cells of the region one by one."""
        sample_axis = int(self.transposed)
        where = f"rows {start}..{stop - 1}"
        for cell, key in _cells(self.array):
            if cell[sample_axis].stop <= start or cell[sample_axis].start >= stop:
                continue
            try:
                self.array[cell]
            except Exception as cause:
                where, error = f"chunk {key}", cause
                break
        return BrokenError(
            "corrupt_chunk",
            f"{where} of {_place(self.array)} cannot be read: {type(error).__name__}: {error}",
            "Restore that chunk from the data's origin (or write the store again), then rerun.",
        )


def open_store(
    path: str,
    *,
    variable: str | None = None,
    group: str | None = None,
    sample_dim: str | None = None,
    feature_dim: str | None = None,
    fill_missing_chunks: bool = False,
    retries: int = RETRIES,
) -> Matrix:
    """Open a Zarr store on disk as a matrix; nothing but metadata and small coordinates is read.

    Raises RequestError for whatever is not a 2-d numeric variable of a readable Zarr store.
    """
    if "://" in path:
        raise RequestError(
            "not_local",
            f"{path} is an address, not a folder on this machine.",
            "Stores elsewhere are planned; until then copy it here and give its path.",
        )
    if not Path(path).exists():
        raise RequestError(
            "not_found", f"{path} does not exist.", "Give the path of a Zarr store (a folder)."
        )
    node = _open_node(path, group)
    if isinstance(node, zarr.Array) and _stands_in_dataset(node, path):
        parent = Path(path).resolve().parent
        return open_store(
            str(parent),
            variable=Path(path).resolve().name,
            sample_dim=sample_dim,
            feature_dim=feature_dim,
            fill_missing_chunks=fill_missing_chunks,
            retries=retries,
        )
    if isinstance(node, zarr.Array):
        if variable is not None:
            raise RequestError(
                "unknown_variable",
                f"{path} is a single Zarr array, it has no variable {variable!r}.",
                "Leave out --variable.",
            )
        return _matrix(path, None, node, sample_dim, feature_dim, fill_missing_chunks, retries)
    array = _choose(path, node, variable)
    return _matrix(path, node, array, sample_dim, feature_dim, fill_missing_chunks, retries)


def open_array(
    array: zarr.Array[Any],
    *,
    sample_dim: str | None = None,
    feature_dim: str | None = None,
    fill_missing_chunks: bool = False,
    retries: int = RETRIES,
) -> Matrix:
    """An open Zarr array as a matrix without labels."""
    return _matrix(
        _place(array), None, array, sample_dim, feature_dim, fill_missing_chunks, retries
    )


def _stands_in_dataset(array: zarr.Array[Any], path: str) -> bool:
    """Whether the path leads into a store that xarray wrote: its coordinates stand beside it."""
    return _named_dims(array) is not None and _is_zarr(str(Path(path).resolve().parent))


def _open_node(path: str, group: str | None) -> zarr.Array[Any] | zarr.Group:
    where = f"{path} (group {group!r})" if group else path
    try:
        return zarr.open(path, path=group or "", mode="r")
    except FileNotFoundError:
        if group is not None and _is_zarr(path):
            raise RequestError(
                "unknown_group",
                f"{path} has no group {group!r}.",
                "Groups there: " + (", ".join(_groups(path)) or "none") + ".",
            ) from None
        raise RequestError(
            "not_zarr",
            f"{path} is not a Zarr store: it holds no zarr.json, .zarray or .zgroup.",
            "Give the folder that holds one of these files.",
        ) from None
    except Exception as error:
        raise RequestError(
            "bad_metadata",
            f"The Zarr metadata of {where} cannot be read: {type(error).__name__}: {error}",
            "The metadata is damaged or of an unknown kind; write the store again.",
        ) from error


def _is_zarr(path: str) -> bool:
    return any((Path(path) / name).exists() for name in ("zarr.json", ".zgroup", ".zarray"))


def _groups(path: str) -> list[str]:
    root = zarr.open(path, mode="r")
    if isinstance(root, zarr.Array):
        return []
    return sorted(name for name, node in root.members(max_depth=None) if _is_group(node))


def _is_group(node: object) -> bool:
    return isinstance(node, zarr.Group)


def _choose(path: str, group: zarr.Group, variable: str | None) -> zarr.Array[Any]:
    """The variable asked for, or the only 2-d numeric one."""
    try:
        arrays = dict(sorted(group.arrays()))
    except Exception as error:
        raise RequestError(
            "bad_metadata",
            f"The Zarr metadata of {path} cannot be read: {type(error).__name__}: {error}",
            "The metadata is damaged or of an unknown kind; write the store again.",
        ) from error
    if variable is not None:
        if variable not in arrays:
            close = difflib.get_close_matches(variable, arrays, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise RequestError(
                "unknown_variable",
                f"{path} has no variable {variable!r}.{hint}",
                "Variables there: " + (_listing(arrays) or "none") + ".",
            )
        return arrays[variable]
    candidates = {n: a for n, a in arrays.items() if a.ndim == 2 and is_numeric(a.dtype)}
    if len(candidates) == 1:
        return next(iter(candidates.values()))
    if candidates:
        raise RequestError(
            "ambiguous_variable",
            f"{path} holds {len(candidates)} tables: {_listing(candidates)}.",
            f"Choose one with --variable, for instance --variable {next(iter(candidates))}.",
        )
    if arrays:
        if len(arrays) == 1:
            return next(iter(arrays.values()))  # refused below, with the reason
        raise RequestError(
            "no_table",
            f"{path} holds no 2-d numeric variable; it holds {_listing(arrays)}.",
            "A samples x features table is needed. Stacking variables of more dimensions is "
            "planned; until then write a stacked 2-d variable, or choose one with --variable.",
        )
    below = {n: a for n, a in group.members(max_depth=None) if isinstance(a, zarr.Array)}
    if below:
        inside = next((n for n, a in below.items() if a.ndim == 2), next(iter(below)))
        raise RequestError(
            "no_table",
            f"{path} holds no array at its top; deeper there are {_listing(below)}.",
            f"Choose a group, for instance --group {inside.rpartition('/')[0]}.",
        )
    raise RequestError(
        "empty_group", f"{path} is an empty Zarr group.", "Give a store that holds a 2-d variable."
    )


def _listing(arrays: dict[str, zarr.Array[Any]]) -> str:
    return ", ".join(f"{n} {a.shape} {a.dtype}" for n, a in arrays.items())


def _place(array: zarr.Array[Any]) -> str:
    store = str(array.store).removeprefix("file://")
    return f"{store}/{array.path}" if array.path else store


def _matrix(
    source: str,
    group: zarr.Group | None,
    array: zarr.Array[Any],
    sample_dim: str | None,
    feature_dim: str | None,
    fill_missing_chunks: bool,
    retries: int,
) -> Matrix:
    name = array.basename or "data"
    check_table(name, source, array.shape, np.dtype(array.dtype))
    dims = _dimension_names(array)
    sample_dim, feature_dim, transposed = orient(dims, sample_dim, feature_dim, name)
    frame, attrs = _frame(group, array, {sample_dim, feature_dim})
    read = sturdy(array, retries=retries, missing_is_fill=fill_missing_chunks)
    rows = StoredRows(read, transposed, _packing(array, attrs))
    grid = array.chunks[::-1] if transposed else array.chunks
    unit = array.shards or array.chunks
    n, p = array.shape[::-1] if transposed else array.shape
    return Matrix(
        rows=rows,
        shape=(n, p),
        dtype=rows.read(0, 0).dtype,
        stored_dtype=np.dtype(array.dtype),
        chunk_rows=grid[0],
        chunk_columns=grid[1],
        shard_rows=unit[1] if transposed else unit[0],
        name=name,
        sample_dim=sample_dim,
        feature_dim=feature_dim,
        transposed=transposed,
        frame=frame,
        attrs=attrs,
        labels=feature_labels(frame, feature_dim),
        source=source,
        zarr_format=array.metadata.zarr_format,
        in_memory=False,
        encoded=True,
        inventory=ArrayInventory(array, fill_missing_chunks),
    )


def _dimension_names(array: zarr.Array[Any]) -> tuple[str, str]:
    return _named_dims(array) or BARE_DIMS


def _named_dims(array: zarr.Array[Any]) -> tuple[str, str] | None:
    """The two dimension names, where the store gives them."""
    names: Any = array.attrs.get("_ARRAY_DIMENSIONS")
    if array.metadata.zarr_format == 3:
        names = array.metadata.dimension_names
    if not names or len(names) != 2 or None in names or names[0] == names[1]:
        return None
    return (str(names[0]), str(names[1]))


def _frame(
    group: zarr.Group | None, array: zarr.Array[Any], dims: set[str]
) -> tuple[xr.Dataset, dict[str, Any]]:
    """Coordinates of the array, encoded as stored and not loaded; and the array's attributes."""
    bare = {k: v for k, v in array.attrs.items() if k != "_ARRAY_DIMENSIONS"}
    if group is None:
        return xr.Dataset(), bare
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # unconsolidated metadata: nothing a user can act on
            stored = xr.open_zarr(
                group.store,
                group=group.path or None,
                chunks=None,
                decode_times=False,
                mask_and_scale=False,
                concat_characters=False,
                create_default_indexes=False,
            )
    except (KeyError, ValueError):
        # Arrays without dimension names stand beside this one: not a dataset, so no coordinates.
        return xr.Dataset(attrs=dict(group.attrs)), bare
    variable = stored[array.basename]
    coordinates = {c: v.variable for c, v in variable.coords.items() if set(v.dims) <= dims}
    frame = xr.Dataset(attrs=stored.attrs).assign_coords(xr.Coordinates(coordinates, indexes={}))
    return frame.drop_encoding(), dict(variable.attrs)


def _packing(array: zarr.Array[Any], attrs: dict[str, Any]) -> dict[str, Any]:
    """The CF attributes under which stored numbers differ from the values they stand for.

    In format 2 xarray keeps ``_FillValue`` as the array's fill value, where 0 may be nothing but
    Zarr's default: it then marks missing values only in packed data.
    """
    packing = {key: attrs[key] for key in CF_PACKING if key in attrs}
    packed = "scale_factor" in packing or "add_offset" in packing
    only_fill = array.metadata.zarr_format == 2 and "_FillValue" not in array.attrs
    if only_fill and not packed and not array.fill_value:
        packing.pop("_FillValue", None)
    return {k: v for k, v in packing.items() if not (isinstance(v, float | np.floating) and v != v)}


@dataclass(frozen=True)
class ArrayInventory:
    """Lists an array's metadata and chunks; refuses an array whose chunks are not all there."""

    array: zarr.Array[Any]
    fill_missing_chunks: bool

    def __call__(self) -> list[str]:
        stored = _stored_keys(self.array)
        if not self.fill_missing_chunks:
            missing = [key for _, key in _cells(self.array) if key not in stored]
            if missing:
                raise BrokenError(
                    "missing_chunk",
                    f"chunk {missing[0]} of {_place(self.array)} is not there "
                    f"({len(missing)} missing in all); Zarr would read {self.array.fill_value} "
                    "instead.",
                    "Restore what is missing; or, if it was left out because it holds nothing but "
                    "that value, say --fill-missing-chunks.",
                )
        chunks = [f"{key} {stored[key]}" for key in sorted(stored)]
        return [describe(self.array.metadata.to_dict()), *chunks]


def _cells(array: zarr.Array[Any]) -> Iterator[tuple[tuple[slice, ...], str]]:
    """Every stored object of the array (chunk, or shard): its region and its key."""
    unit = array.shards or array.chunks
    counts = [-(-extent // step) for extent, step in zip(array.shape, unit, strict=True)]
    for cell in itertools.product(*map(range, counts)):
        region = tuple(slice(i * s, (i + 1) * s) for i, s in zip(cell, unit, strict=True))
        yield region, array.metadata.encode_chunk_key(cell)


def _stored_keys(array: zarr.Array[Any]) -> dict[str, str]:
    """Keys of the stored chunks, with size and time of change where the store is a folder."""
    store = array.store
    if isinstance(store, zarr.storage.LocalStore):
        root = Path(store.root, array.path)
        files = (f for f in root.rglob("*") if f.is_file())
        found = {f.relative_to(root).as_posix(): f.stat() for f in files}
        keys = {key: f"{s.st_size} {s.st_mtime_ns}" for key, s in found.items()}
    else:
        prefix = f"{array.path}/" if array.path else ""
        listed = zarr.core.sync.sync(_collect(store.list_prefix(prefix)))
        keys = {key.removeprefix(prefix): "" for key in listed}
    metadata = {"zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"}
    return {key: what for key, what in keys.items() if key not in metadata}


async def _collect(keys: AsyncIterator[str]) -> list[str]:
    return [key async for key in keys]

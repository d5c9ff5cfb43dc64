"""Find what is stored at a path, and open it once."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import zarr

from kmufs_stream.errors import RequestError, did_you_mean, listed
from kmufs_stream.sources.convertible import refuse_convertible, said_inside
from kmufs_stream.sources.hdf5_rows import open_hdf5
from kmufs_stream.storage.places import (
    Place,
    PlaceLike,
    check_exists,
    is_hdf5,
    is_zarr,
    name_of,
    place_of,
    zarr_root,
)


class Node(NamedTuple):
    """A group or an array of a Zarr store, or a group of an HDF5 file."""

    place: Place  # the store that holds it
    name: str  # of the place, for people
    node: Any  # zarr.Array, zarr.Group or h5py.Group

    @property
    def is_zarr(self) -> bool:
        return isinstance(self.node, zarr.Array | zarr.Group)

    @property
    def is_anndata(self) -> bool:
        try:
            return holds_anndata(self.node)
        except Exception:  # damaged metadata: to open it as any store tells what is wrong
            return False


def find_node(
    data: PlaceLike, group: str | None = None, storage_options: Mapping[str, Any] | None = None
) -> Node:
    """Open a group, or the root, of what is stored at a path or an address, or in a store.

    Raises RequestError if nothing is there, or what cannot be opened or has to be converted first.
    """
    place = place_of(data, storage_options)
    if isinstance(place, Path) and not is_zarr(place):
        refuse_convertible(os.fspath(place))
    check_exists(place, "Give the path or address of a Zarr store, or an AnnData file (.h5ad).")
    if is_hdf5(place):
        return _open_hdf5(place, group)
    try:
        return Node(place, name_of(place), _open_zarr(place, group or ""))
    except Exception as error:
        raise _unopened(place, group, error) from error


def _open_zarr(place: Place, path: str) -> zarr.Array[Any] | zarr.Group:
    root = zarr_root(place)
    try:
        return zarr.open(root, path=path, mode="r")
    except ValueError:  # perhaps an array beside has a dtype that zarr does not know
        with suppress(Exception):
            return zarr.open_group(root, path=path, mode="r", use_consolidated=False)
        raise


def _open_hdf5(path: Path, group: str | None) -> Node:
    file = open_hdf5(str(path))
    node = file.get(group or "/")
    if holds_anndata(node):
        return Node(path, name_of(path), node)
    objects: list[str] = []  # as MuData has several
    file.visit(lambda name: objects.append(name) if holds_anndata(file[name]) else None)
    file.close()
    raise RequestError(
        "not_anndata",
        f"{path} holds no AnnData object{f' in group {group!r}' if group else ''}: it needs obs, "
        "var and X.",
        f"Objects there: {listed(objects)}. Write one with anndata (write_h5ad); what is named "
        ".h5 instead, kmufs-stream convert takes.",
    )


def _unopened(place: Place, group: str | None, error: Exception) -> RequestError:
    """Say why zarr could not open a group of a place."""
    path = name_of(place)
    if isinstance(error, zipfile.BadZipFile):
        return RequestError(
            "not_zarr",
            f"{path} is a file, and neither AnnData (HDF5) nor a zipped Zarr store.",
            "Give the folder of a Zarr store, or a store zipped as .zarr.zip; kmufs-stream convert "
            "makes one of other formats.",
        )
    if not isinstance(error, FileNotFoundError):
        return bad_metadata(f"{path} (group {group!r})" if group else path, error)
    if group:
        there = _groups(find_node(place).node)
        return RequestError(
            "unknown_group",
            f"{path} has no group {group!r}.",
            f"{did_you_mean(group, there)}Groups there: {listed(there)}.",
        )
    return RequestError(
        "not_zarr",
        f"{path} is not a Zarr store: it holds no zarr.json, .zarray or .zgroup.",
        said_inside(place)
        if isinstance(place, Path) and place.is_dir()
        else "Give the address below which they are; files (.zip, .h5ad) are read from folders of "
        "this machine alone.",
    )


def _groups(root: zarr.Array[Any] | zarr.Group) -> list[str]:
    if isinstance(root, zarr.Array):
        return []
    members = root.members(max_depth=None)
    return sorted(name for name, node in members if isinstance(node, zarr.Group))


def bad_metadata(where: str, error: Exception) -> RequestError:
    return RequestError(
        "bad_metadata",
        f"The metadata of {where} cannot be read: {type(error).__name__}: {error}",
        "The metadata is damaged or of an unknown kind; write the store again.",
    )


def holds_anndata(node: Any) -> bool:
    """Whether a node is a group with tables of cells and genes, and values."""
    if node is None or is_array(node):
        return False
    named = node.attrs.get("encoding-type") == "anndata" or "X" in node
    return bool(named and all(name in node and _is_table(node[name]) for name in ("obs", "var")))


def _is_table(node: Any) -> bool:
    """Whether a node is a group of columns, or old records; selections have plain arrays."""
    return not is_array(node) or node.dtype.names is not None


def is_array(node: Any) -> bool:
    return hasattr(node, "dtype")

"""Bare datasets of HDF5 files, and MATLAB files, of which the newer ones are HDF5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.io

from kmufs_stream.errors import missing_library
from kmufs_stream.formats.blocks import (
    BLOCKS,
    CHUNK_BYTES,
    Incoming,
    array_blocks,
    check_fits,
    holds_sparse,
    native,
    one_of,
)
from kmufs_stream.sources.convertible import INSIDE
from kmufs_stream.storage.places import is_hdf5


def open_hdf5(path: str, inside: str) -> Incoming:
    """A dataset of an HDF5 file: the one at ``inside``, or the only table there is."""
    tables = _tables(path)
    shapes = {name: dataset.shape for name, dataset in tables.items()}
    dataset = tables[one_of(path, shapes, inside and "/" + inside.strip("/"), INSIDE)]
    return Incoming(path, dataset.shape[1:], native(dataset.dtype), array_blocks(dataset))


def is_netcdf(path: str, inside: str) -> bool:
    """Whether a file, and its group ``inside``, is NetCDF-4, whatever the file is called.

    Such as say so, and those whose datasets all have scales for their dimensions.
    """
    try:
        import h5py

        file = h5py.File(path, "r")
    except (ImportError, OSError):
        return False  # told by whatever reads it
    with file:
        group = file.get(inside or "/")
        if not isinstance(group, h5py.Group):
            return False
        datasets = [node for node in group.values() if isinstance(node, h5py.Dataset)]
        return "_NCProperties" in file.attrs or (
            any(d.is_scale for d in datasets)
            and all(d.is_scale or all(map(len, d.dims)) for d in datasets)
        )


def open_mat(path: str, inside: str, budget: int) -> Incoming:
    """A dense matrix of a MATLAB file: version 7.3 in blocks, older ones whole, where they fit."""
    if is_hdf5(Path(path)):
        # MATLAB stores by columns: HDF5 sees the dimensions the other way round.
        tables = _tables(path)
        # What begins with # holds the contents of cells.
        shapes = {n[1:]: d.shape[::-1] for n, d in tables.items() if not n.startswith("/#")}
        dataset = tables["/" + one_of(path, shapes, inside, INSIDE)]
        blocks = array_blocks(dataset, columns_first=True)
        return Incoming(path, dataset.shape[-2::-1], native(dataset.dtype), blocks)
    stored = {name: (shape, kind) for name, shape, kind in scipy.io.whosmat(path)}
    known = {
        name: shape
        for name, (shape, kind) in stored.items()
        if len(shape) >= 2 and kind not in ("char", "cell", "struct", "sparse")
    }
    sparse = [name for name, (_, kind) in stored.items() if kind == "sparse"]
    if sparse and (inside in sparse or not (inside or known)):
        name = inside or sparse[0]
        raise holds_sparse(path, name, f"scipy.io.loadmat({path!r})[{name!r}]")
    name = one_of(path, known, inside, INSIDE)
    needed = 16 * int(np.prod(known[name], dtype=np.int64))
    check_fits(
        path,
        needed + BLOCKS * CHUNK_BYTES,
        budget,
        "MATLAB's -v7.3 is read in blocks; older files are not.",
    )
    array = scipy.io.loadmat(path, variable_names=[name])[name]
    dtype = native(array.dtype)
    return Incoming(path, array.shape[1:], dtype, array_blocks(array), held=needed)


def _tables(path: str) -> dict[str, Any]:
    """All datasets of two dimensions or more, by path."""
    try:
        import h5py
    except ImportError as error:
        raise missing_library(f"Reading {path}", "h5py") from error
    found: dict[str, Any] = {}

    def note(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset) and len(node.shape or ()) >= 2:
            found["/" + name] = node

    h5py.File(path, "r").visititems(note)
    return found

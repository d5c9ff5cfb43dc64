"""Bare datasets of HDF5 files, and MATLAB files, of which the newer ones are HDF5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.io

from kmufs_stream.formats.blocks import (
    BLOCKS,
    CHUNK_BYTES,
    ForeignTable,
    array_blocks,
    check_fits,
    choose_table,
    holds_sparse,
)
from kmufs_stream.storage.places import is_hdf5


def open_hdf5(path: str, inside: str, budget: int) -> ForeignTable:
    """Open the dataset at ``inside``, or the only table there is."""
    datasets = _datasets(path)
    shapes = {name: dataset.shape for name, dataset in datasets.items()}
    dataset = datasets[choose_table(path, shapes, inside and "/" + inside.strip("/"))]
    return ForeignTable(path, dataset.shape[1:], dataset.dtype, array_blocks(dataset))


def is_netcdf(path: str, inside: str) -> bool:
    """Whether a file, and its group ``inside``, is NetCDF-4, whatever the file is called.

    It is if the file says so, or if all datasets have dimension scales.
    """
    try:
        import h5py

        with h5py.File(path, "r") as file:
            group = file.get(inside or "/")
            if not isinstance(group, h5py.Group):
                return False
            datasets = [node for node in group.values() if isinstance(node, h5py.Dataset)]
            return "_NCProperties" in file.attrs or (
                any(d.is_scale for d in datasets)
                and all(d.is_scale or all(map(len, d.dims)) for d in datasets)
            )
    except (ImportError, OSError, KeyError, RuntimeError):
        return False  # missing or damaged: reported when it is read


def open_mat(path: str, inside: str, budget: int) -> ForeignTable:
    """Open a dense matrix of a MATLAB file; versions before 7.3 are read whole, if they fit."""
    if is_hdf5(Path(path)):
        # MATLAB stores by columns: HDF5 sees the dimensions the other way round.
        datasets = _datasets(path)
        # Names that begin with # hold the contents of cells.
        shapes = {n[1:]: d.shape[::-1] for n, d in datasets.items() if not n.startswith("/#")}
        dataset = datasets["/" + choose_table(path, shapes, inside)]
        blocks = array_blocks(dataset, columns_first=True)
        return ForeignTable(path, dataset.shape[-2::-1], dataset.dtype, blocks)
    variables = scipy.io.whosmat(path)
    dense = {
        name: shape
        for name, shape, kind in variables
        if len(shape) >= 2 and kind not in ("char", "cell", "struct", "sparse")
    }
    sparse = [name for name, _, kind in variables if kind == "sparse"]
    if sparse and (inside in sparse or not (inside or dense)):
        name = inside or sparse[0]
        raise holds_sparse(path, name, f"scipy.io.loadmat({path!r})[{name!r}]")
    name = choose_table(path, dense, inside)
    held = 16 * int(np.prod(dense[name], dtype=np.int64))
    hint = "MATLAB's -v7.3 is read in blocks; older files are not."
    check_fits(f"Converting {path}", held + BLOCKS * CHUNK_BYTES, budget, hint)
    array = scipy.io.loadmat(path, variable_names=[name])[name]
    return ForeignTable(path, array.shape[1:], array.dtype, array_blocks(array), held=held)


def _datasets(path: str) -> dict[str, Any]:
    """Find all datasets of two dimensions or more, by path."""
    import h5py

    found: dict[str, Any] = {}

    def note(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset) and len(node.shape or ()) >= 2:
            found["/" + name] = node

    h5py.File(path, "r").visititems(note)
    return found

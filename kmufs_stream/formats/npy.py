"""NumPy's .npy and .npz."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kmufs_stream.formats.blocks import (
    BLOCKS,
    CHUNK_BYTES,
    Block,
    Incoming,
    array_blocks,
    check_fits,
    holds_sparse,
    native,
    one_of,
)
from kmufs_stream.sources.convertible import INSIDE

SPARSE = {"data", "indices", "indptr", "format"}  # as scipy.sparse.save_npz names them


def open_npy(path: str, inside: str, budget: int) -> Incoming:
    """An array file, mapped; or one array of an archive, unpacked as it is read.

    An archive's array in Fortran order has to be read whole.
    """
    with Path(path).open("rb") as file:
        if file.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX:
            file.seek(0)
            shape, _, dtype = _read_head(file)
            return Incoming(path, shape[1:], native(dtype), partial(_mapped, path))
    with zipfile.ZipFile(path) as archive:
        heads = {
            name.removesuffix(".npy"): _head(archive, name)
            for name in archive.namelist()
            if name.endswith(".npy")
        }
    if not inside and heads.keys() >= SPARSE:
        raise holds_sparse(path, "", f"scipy.sparse.load_npz({path!r})")
    tables = {name: shape for name, (shape, _, _) in heads.items() if len(shape) >= 2}
    name = one_of(path, tables, inside, INSIDE)
    shape, fortran, dtype = heads[name]
    blocks: Callable[[int], Iterator[Block]] = partial(_unpacked, path, name)
    needed = 0
    if fortran:
        needed = 2 * int(np.prod(shape)) * dtype.itemsize
        remedy = "In C order it is read in blocks: np.savez(file, np.ascontiguousarray(x))."
        check_fits(path, needed + BLOCKS * CHUNK_BYTES, budget, remedy)
        with np.load(path) as archive_arrays:
            blocks = array_blocks(archive_arrays[name])
    return Incoming(path, shape[1:], native(dtype), blocks, held=needed)


def _head(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    with archive.open(name) as member:
        return _read_head(member)


def _read_head(member: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    if np.lib.format.read_magic(member) == (1, 0):
        return np.lib.format.read_array_header_1_0(member)
    return np.lib.format.read_array_header_2_0(member)


def _mapped(path: str, rows: int) -> Iterator[Block]:
    # Mapped anew for each block: pages that were read count as memory while they are mapped.
    for a in range(0, len(np.lib.format.open_memmap(path, mode="r")), rows):
        yield np.array(np.lib.format.open_memmap(path, mode="r")[a : a + rows]), {}


def _unpacked(path: str, name: str, rows: int) -> Iterator[Block]:
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as member:
        shape, _, dtype = _read_head(member)
        row = int(np.prod(shape[1:])) * dtype.itemsize
        for a in range(0, shape[0], rows):
            count = min(rows, shape[0] - a)
            values = np.frombuffer(member.read(count * row), dtype)
            yield values.reshape(count, *shape[1:]), {}

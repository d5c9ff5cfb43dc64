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
    VALUES,
    Block,
    ForeignTable,
    array_blocks,
    check_fits,
    choose_table,
    holds_sparse,
)

SPARSE = {"data", "indices", "indptr", "format"}  # as scipy.sparse.save_npz names them


def open_npy(path: str, inside: str, budget: int) -> ForeignTable:
    """Open an array file, or one array of an archive, which is unpacked as it is read.

    An archive's array in Fortran order has to be read whole.
    """
    with Path(path).open("rb") as file:
        if file.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX:
            file.seek(0)
            shape, _, dtype = _read_header(file)
            return ForeignTable(path, shape[1:], dtype, partial(_mapped, path))
    headers = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".npy"):
                with archive.open(name) as member:
                    headers[name.removesuffix(".npy")] = _read_header(member)
    if not inside and headers.keys() >= SPARSE:
        raise holds_sparse(path, "", f"scipy.sparse.load_npz({path!r})")
    shapes = {name: shape for name, (shape, _, _) in headers.items() if len(shape) >= 2}
    name = choose_table(path, shapes, inside)
    shape, fortran, dtype = headers[name]
    blocks: Callable[[int], Iterator[Block]] = partial(_unpacked, path, name)
    held = 0
    if fortran:
        held = 2 * int(np.prod(shape)) * dtype.itemsize
        hint = "In C order it is read in blocks: np.savez(file, np.ascontiguousarray(x))."
        check_fits(f"Converting {path}", held + BLOCKS * CHUNK_BYTES, budget, hint)
        with np.load(path) as arrays:
            blocks = array_blocks(arrays[name])
    return ForeignTable(path, shape[1:], dtype, blocks, held=held)


def _read_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read an array's shape, whether it is in Fortran order, and its dtype."""
    if np.lib.format.read_magic(file) == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    return np.lib.format.read_array_header_2_0(file)


def _mapped(path: str, rows: int) -> Iterator[Block]:
    # Mapped anew for each block: pages that were read count as memory while they are mapped.
    for a in range(0, len(np.lib.format.open_memmap(path, mode="r")), rows):
        yield {VALUES: np.array(np.lib.format.open_memmap(path, mode="r")[a : a + rows])}


def _unpacked(path: str, name: str, rows: int) -> Iterator[Block]:
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as member:
        shape, _, dtype = _read_header(member)
        row = int(np.prod(shape[1:])) * dtype.itemsize
        for a in range(0, shape[0], rows):
            count = min(rows, shape[0] - a)
            values = np.frombuffer(member.read(count * row), dtype)
            yield {VALUES: values.reshape(count, *shape[1:])}

"""Stores to measure on: noise plus ten planted clusters, dense as float32 or sparse as AnnData."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import zarr

FOLDER = Path(tempfile.gettempdir()) / "kmufs-bench"
CLUSTERS = 10
CHUNK_BYTES = 4_000_000
DONE = "complete"
GROUP = 20  # features of which each sample of a sparse store has one: 5 percent
CHUNK_ENTRIES = 500_000


def make_store(
    folder: Path, rows: int, features: int, *, seed: int = 0, chunk_bytes: int = CHUNK_BYTES
) -> Path:
    """The store of that shape in ``folder``: made in bounded memory, or reused where it is whole.

    A fifth of the features tells the clusters apart, with strengths from 0.3 to 1.5 of the noise.
    Chunk i follows from (seed, i) alone, so the values do not depend on the order of writing.
    """
    path = folder / f"{rows}x{features}-{chunk_bytes}-{seed}.zarr"
    if path.exists() and zarr.open_array(path, mode="r").attrs.get(DONE):
        return path
    folder.mkdir(parents=True, exist_ok=True)
    chunk_rows = max(min(chunk_bytes // (4 * features), rows), 1)
    array = zarr.create_array(
        path,
        shape=(rows, features),
        chunks=(chunk_rows, features),
        dtype="float32",
        compressors=zarr.codecs.ZstdCodec(level=3),
        overwrite=True,
    )
    rng = np.random.default_rng(seed)
    strength = np.zeros(features)
    telling = rng.choice(features, max(features // 5, 1), replace=False)
    strength[telling] = np.linspace(0.3, 1.5, len(telling))
    centres = (rng.standard_normal((CLUSTERS, features)) * strength).astype(np.float32)
    mean = (3 * rng.standard_normal(features)).astype(np.float32)
    scale = np.exp(rng.standard_normal(features)).astype(np.float32)

    def write(start: int, stop: int, rng: np.random.Generator) -> None:
        values = rng.standard_normal((stop - start, features), dtype=np.float32)
        values += centres[rng.integers(0, CLUSTERS, stop - start)]
        values *= scale
        values += mean
        array[start:stop] = values

    _write_chunks(write, rows, chunk_rows, seed)
    array.attrs[DONE] = True
    return path


def make_sparse_store(folder: Path, rows: int, features: int, *, seed: int = 0) -> Path:
    """An AnnData store with a CSR X in ``folder``: made in bounded memory, or reused.

    Of every GROUP features a sample has one; in a fifth of the groups its cluster prefers one of
    them, by 10 to 60 percent. Chunk i follows from (seed, i) alone.
    """
    from anndata.io import write_elem

    path = folder / f"sparse-{rows}x{features}-{seed}.zarr"
    if path.exists() and zarr.open_group(path, mode="r").attrs.get(DONE):
        return path
    folder.mkdir(parents=True, exist_ok=True)
    groups = features // GROUP
    chunk_rows = min(max(CHUNK_ENTRIES // groups, 1), rows)
    root = zarr.open_group(path, mode="w")
    root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what later versions of anndata will do
        write_elem(root, "obs", pd.DataFrame(index=[f"cell {i}" for i in range(rows)]))
        write_elem(root, "var", pd.DataFrame(index=[f"gene {i}" for i in range(features)]))
    X = root.create_group("X")
    shape = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [rows, features]}
    X.attrs.update(shape)
    X.create_array("indptr", data=np.arange(rows + 1) * groups)
    form: Any = {"shape": (rows * groups,), "chunks": (chunk_rows * groups,)}
    form["compressors"] = zarr.codecs.BloscCodec(cname="lz4")
    data = X.create_array("data", dtype="float32", **form)
    indices = X.create_array("indices", dtype="int32", **form)
    rng = np.random.default_rng(seed)
    strength = np.zeros(groups)
    telling = rng.choice(groups, max(groups // 5, 1), replace=False)
    strength[telling] = np.linspace(0.1, 0.6, len(telling))
    preferred = rng.integers(0, GROUP, (CLUSTERS, groups))

    def write(start: int, stop: int, rng: np.random.Generator) -> None:
        n, entries = stop - start, slice(start * groups, stop * groups)
        columns = rng.integers(0, GROUP, (n, groups))
        likes = rng.random((n, groups)) < strength
        columns = np.where(likes, preferred[rng.integers(0, CLUSTERS, n)], columns)
        columns += np.arange(groups) * GROUP
        indices[entries] = columns.astype(np.int32).ravel()
        counts = 1 + rng.poisson(0.7, (n, groups))
        data[entries] = np.log1p(counts).astype(np.float32).ravel()

    _write_chunks(write, rows, chunk_rows, seed)
    root.attrs[DONE] = True
    return path


def _write_chunks(
    write: Callable[[int, int, np.random.Generator], None], rows: int, chunk_rows: int, seed: int
) -> None:
    def write_chunk(chunk: int) -> None:
        start = chunk * chunk_rows
        stop = min(start + chunk_rows, rows)
        write(start, stop, np.random.default_rng([seed, chunk]))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(write_chunk, range(-(-rows // chunk_rows))):
            pass


def stored_bytes(path: Path) -> int:
    """Bytes of a store's files."""
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file())

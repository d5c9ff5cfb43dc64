"""Stores to measure on: noise plus ten planted clusters, float32, zstd.

python tests/benchmarks/stores.py --rows 1000000 --features 500
"""

from __future__ import annotations

import argparse
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

FOLDER = Path(tempfile.gettempdir()) / "kmufs-bench"
CLUSTERS = 10
CHUNK_BYTES = 4_000_000
DONE = "complete"


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
    write = partial(_write_chunk, array, centres, mean, scale, seed)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(write, range(-(-rows // chunk_rows))):
            pass
    array.attrs[DONE] = True
    return path


def _write_chunk(
    array: zarr.Array[Any],
    centres: NDArray[np.float32],
    mean: NDArray[np.float32],
    scale: NDArray[np.float32],
    seed: int,
    chunk: int,
) -> None:
    rows = array.chunks[0]
    start, stop = chunk * rows, min((chunk + 1) * rows, array.shape[0])
    rng = np.random.default_rng([seed, chunk])
    values = rng.standard_normal((stop - start, len(mean)), dtype=np.float32)
    values += centres[rng.integers(0, len(centres), stop - start)]
    values *= scale
    values += mean
    array[start:stop] = values


def stored_bytes(path: Path) -> int:
    """Bytes of a store's files."""
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file())


def main() -> None:
    """Make one store and say where it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=500)
    parser.add_argument("--chunk-bytes", type=int, default=CHUNK_BYTES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    asked = parser.parse_args()
    path = make_store(
        asked.folder, asked.rows, asked.features, seed=asked.seed, chunk_bytes=asked.chunk_bytes
    )
    decoded = 4 * asked.rows * asked.features
    print(f"{path}: {decoded / 1e9:.2f} GB, {stored_bytes(path) / decoded:.2f} of it stored")


if __name__ == "__main__":
    main()

"""Sparse data as AnnData in Zarr: memory under a budget, time against reading alone.

python tests/benchmarks/sparse_data.py
python tests/benchmarks/sparse_data.py --rows 50000 --features 2000 --repeats 1
"""

from __future__ import annotations

import os
import statistics
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import zarr
from limits import arguments, fresh, machine, median, reading, show
from numpy.typing import NDArray
from stores import CLUSTERS, DONE

GROUP = 20  # features of which each sample has one: 5 percent
CHUNK_ENTRIES = 500_000


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
    for name, dtype in (("data", "float32"), ("indices", "int32")):
        X.create_array(
            name,
            shape=(rows * groups,),
            chunks=(chunk_rows * groups,),
            dtype=dtype,
            compressors=zarr.codecs.BloscCodec(cname="lz4"),
        )
    rng = np.random.default_rng(seed)
    strength = np.zeros(groups)
    telling = rng.choice(groups, max(groups // 5, 1), replace=False)
    strength[telling] = np.linspace(0.1, 0.6, len(telling))
    preferred = rng.integers(0, GROUP, (CLUSTERS, groups))
    write = partial(_write_chunk, X, chunk_rows, strength, preferred, seed)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(write, range(-(-rows // chunk_rows))):
            pass
    root.attrs[DONE] = True
    return path


def _write_chunk(
    X: zarr.Group,
    chunk_rows: int,
    strength: NDArray[np.float64],
    preferred: NDArray[np.int64],
    seed: int,
    chunk: int,
) -> None:
    groups = len(strength)
    data, indices = X["data"], X["indices"]
    start, stop = chunk * chunk_rows * groups, (chunk + 1) * chunk_rows * groups
    rows = (min(stop, data.shape[0]) - start) // groups
    rng = np.random.default_rng([seed, chunk])
    columns = rng.integers(0, GROUP, (rows, groups))
    likes = rng.random((rows, groups)) < strength
    columns = np.where(likes, preferred[rng.integers(0, CLUSTERS, rows)], columns)
    columns += np.arange(groups) * GROUP
    indices[start:stop] = columns.astype(np.int32).ravel()
    counts = 1 + rng.poisson(0.7, (rows, groups))
    data[start:stop] = np.log1p(counts).astype(np.float32).ravel()


def selecting(store: str, options: dict[str, Any], out: str) -> dict[str, Any]:
    """The whole of `select`."""
    from kmufs_stream import select

    done = select(store, **options, out=out, overwrite=True)
    return {
        **vars(done.seconds),
        "passes": done.passes,
        "method": done.factor.method,
        "settled": done.factor.settled,
        "predicted": done.plan.peak,
        "cached": done.plan.cached_rows,
    }


def main() -> None:
    """Print one row."""
    asked = arguments(__doc__, rows=500_000, features=20_000, memory="2GB")
    store = make_sparse_store(asked.folder, asked.rows, asked.features)
    out = asked.folder / "sparse-selected.zarr"
    options = {"k": asked.k, "h": asked.h, "memory": asked.memory, "solver": "exact"}
    reads, runs = [], []
    for _ in range(asked.repeats):
        reads.append(fresh(reading, store=store, options=options))
        runs.append(fresh(selecting, store=store, options=options, out=out))
    ratios = [
        run.result["read"] / (run.result["passes"] * read.result["seconds"])
        for run, read in zip(runs, reads, strict=True)
    ]
    last = runs[-1].result
    entries = asked.rows * (asked.features // GROUP)
    columns = ["store", "entries", "memory", "method", "threads", "read s", "reads", "in reads s"]
    columns += ["/ (reads x read)", "factor s", "write s", "total s", "peak GB", "predicted GB"]
    row: list[Any] = [f"{asked.rows} x {asked.features}", f"{entries:,}", asked.memory]
    row += [last["method"], int(median(reads, "threads")), median(reads, "seconds")]
    row += [last["passes"], median(runs, "read"), statistics.median(ratios)]
    row += [median(runs, "factor"), median(runs, "write"), median(runs, "total")]
    row += [max(run.peak for run in runs) / 1e9, last["predicted"] / 1e9]
    show(f"Sparse, 5 percent ({machine()})", columns, [row])
    cached = f"{last['cached']:,} rows cached between reads"
    print(cached + ("" if last["settled"] else "; NOT SETTLED"))


if __name__ == "__main__":
    main()

"""Tables, questions and budgets drawn at random, and the memory that they take."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import zarr


def keeps_its_word(seed: int, folder: Path) -> None:
    """Measured peak <= predicted <= budget, for the whole process of a command drawn by a seed."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(str(rng.choice(["f4", "f8", "i2", "u1"])))
    p = int(2 ** rng.uniform(4, 11.5))
    n = max(int(2 ** rng.uniform(24, 27.5)) // (p * dtype.itemsize), 100)
    store, columns = folder / "x.zarr", max(p // int(rng.choice([1, 1, 3])), 1)
    rows = max(min(int(2 ** rng.uniform(14, 23)) // (columns * dtype.itemsize), n), 1)
    rows = max(rows, n * -(-p // columns) // 3000)  # no more files than that
    stored = zarr.create_array(
        store,
        shape=(n, p),
        chunks=(rows, columns),
        shards=(rows * 4, columns) if rng.random() < 0.3 else None,
        dtype=dtype,
        compressors=rng.choice(np.array([None, zarr.codecs.ZstdCodec()], object)),
    )
    step = max(rows * 4, 10_000_000 // p // rows * rows)
    for start in range(0, n, step):
        stored[start : start + step] = rng.integers(0, 99, (min(step, n - start), p)).astype(dtype)
    command = [sys.executable, "-m", "kmufs_stream_cli", "select", str(store), "--json"]
    command += ["--out", str(folder / "out.zarr"), "--k", str(int(rng.integers(1, 9)))]
    command += ["--h", str(int(rng.integers(1, min(p, 60) + 1)))]
    command += ["--method", str(rng.choice(["auto", "auto", "lanczos", "tsqr"]))]
    command += ["--threads", str(rng.choice([1, 2, 4])), "--max-passes", "3"]
    for megabytes in [*rng.uniform(360, 700, 4).astype(int).tolist(), 3000]:
        ran = subprocess.run(
            [*command, "--memory", f"{megabytes}MB"], capture_output=True, text=True, check=False
        )
        result = json.loads(ran.stdout)
        if ran.returncode == 0:
            break
        assert result["error"]["code"] == "does_not_fit", ran.stderr
    assert ran.returncode == 0, command
    budget = 10**6 * megabytes
    assert result["peak_rss_bytes"] <= result["predicted_peak_bytes"] <= budget, command

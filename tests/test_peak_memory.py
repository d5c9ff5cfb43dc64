"""The memory of a whole process against what the plan promised."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

SCRIPT = """
import json, sys
from pathlib import Path
from kmufs_stream import select
chosen = select(sys.argv[1], 8, 40, out=sys.argv[2], memory=sys.argv[3], threads=2)
status = Path("/proc/self/status").read_text()
peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
print(json.dumps({"peak": peak, **chosen.summary(), "budget": chosen.plan.budget}))
"""


def write_noise(path: Path, n: int, p: int, chunk_rows: int) -> None:
    """Clusters in noise that does not compress, written a chunk at a time."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(8, p)).astype(np.float32) * np.linspace(0, 2, p, dtype=np.float32)
    stored = zarr.create_array(
        path, shape=(n, p), chunks=(chunk_rows, p), dtype="f4", compressors=None
    )
    for a in range(0, n, chunk_rows):
        rows = min(chunk_rows, n - a)
        noise = rng.standard_normal((rows, p), dtype=np.float32)
        stored[a : a + rows] = noise + centres[rng.integers(8, size=rows)]


def check(folder: Path, n: int, p: int, chunk_rows: int, memory: str, budget: int) -> None:
    write_noise(folder / "x.zarr", n, p, chunk_rows)
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder / "x.zarr"), str(folder / "out.zarr"), memory],
        check=True,
        capture_output=True,
        text=True,
    )
    result = json.loads(ran.stdout)
    assert result["budget"] == budget
    assert result["peak"] < result["predicted_peak_bytes"] <= budget
    assert result["peak_rss_bytes"] <= result["peak"]
    assert result["passes"] == 1
    assert result["samples"] == n
    with_data = zarr.open_array(folder / "out.zarr", path="data", mode="r")
    source = zarr.open_array(folder / "x.zarr", mode="r")
    assert with_data.shape == (n, 40)
    for row in (0, n // 2, n - 1):
        np.testing.assert_array_equal(with_data[row], source[row][result["selected"]])


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_store_larger_than_the_room_for_data(tmp_path: Path) -> None:
    # 450 MB, of which the interpreter takes some 200: the 300 MB of data would not fit.
    check(tmp_path, 375_000, 200, 2500, "450MB", 450_000_000)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_four_gigabytes_in_one(tmp_path: Path) -> None:
    check(tmp_path, 2_000_000, 500, 5000, "1GB", 10**9)

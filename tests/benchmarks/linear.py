"""Time against the number of rows: a straight line plus a constant.

python tests/benchmarks/linear.py
python tests/benchmarks/linear.py --scale 0.1
"""

from __future__ import annotations

import statistics

import numpy as np
from limits import arguments, fresh, machine, median, reading, select_process, show, syrk
from numpy.typing import NDArray
from stores import make_store

MILLIONS = (0.25, 0.5, 1, 2, 4)


def main() -> None:
    """Print the times, then the fits of the factor stage and of the whole process."""
    asked = arguments(__doc__, features=200, solver="admm")
    choice = [f"--{name}={getattr(asked, name)}" for name in ("k", "h", "solver")]
    options = {"k": asked.k, "h": asked.h}
    rows, stage, wall = [], [], []
    for n in [int(m * 1e6 * asked.scale) for m in MILLIONS]:
        store = make_store(asked.folder, n, asked.features)
        read = fresh(reading, store=store, options=options)
        product = fresh(syrk, store=store, options=options)
        out = ["--out", str(asked.folder / "linear-out.zarr"), "--overwrite", "--selection-only"]
        runs = [select_process(store, *choice, *out) for _ in range(asked.repeats)]
        spent = [run.result["seconds"] for run in runs]
        stage.append(statistics.median(s["read"] + s["factor"] for s in spent))
        wall.append(median(runs))
        speed = [read.result["rate"], product.result["rate"]]
        alone = read.result["seconds"] + product.result["seconds"]
        rows.append([n, *speed, alone, stage[-1], median(runs, "seconds", "solve"), wall[-1]])
    columns = ["rows", "read GB/s", "BLAS GF/s", "read + syrk s", "factor s", "solver s", "wall s"]
    show(f"select --selection-only, {asked.features} features ({machine()})", columns, rows)
    counts = np.array([row[0] for row in rows], float)
    fits = [["factor stage", *straight(counts, stage)], ["whole process", *straight(counts, wall)]]
    show("Straight lines", ["time of", "s per million rows", "intercept s", "r^2"], fits)


def straight(n: NDArray[np.float64], seconds: list[float]) -> tuple[float, float, float]:
    """Slope per million rows, intercept and r^2 of the least-squares line."""
    slope, intercept = np.polyfit(n, seconds, 1)
    return float(slope * 1e6), float(intercept), float(np.corrcoef(n, seconds)[0, 1] ** 2)


if __name__ == "__main__":
    main()

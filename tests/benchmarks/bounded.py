"""A store many times larger than the memory that the process may take.

python tests/benchmarks/bounded.py
python tests/benchmarks/bounded.py --rows 6000000 --memory 500MB
"""

from __future__ import annotations

import shutil

from limits import arguments, fresh, machine, median, reading, select_process, show
from stores import make_store


def main() -> None:
    """Print the stages of one `select`, with its subset written, and its peak memory."""
    asked = arguments(__doc__, rows=2_000_000, features=500, memory="1GB", solver="admm")
    store = make_store(asked.folder, asked.rows, asked.features)
    out = asked.folder / "bounded-out.zarr"
    options = {"k": asked.k, "h": asked.h, "memory": asked.memory}
    choice = [f"--{name}={getattr(asked, name)}" for name in ("k", "h", "solver", "memory")]
    reads, selects = [], []
    for _ in range(asked.repeats):
        reads.append(fresh(reading, store=store, options=options))
        selects.append(select_process(store, *choice, "--out", str(out), "--overwrite"))
    shutil.rmtree(out)
    stages = [median(selects, "seconds", s) for s in ("read", "factor", "solve", "write", "total")]
    peak = max(run.peak for run in selects)
    predicted = median(selects, "predicted_peak_bytes")
    columns = ["store", "memory", "threads", "read GB/s", "read s", "pass s", "pass/read"]
    columns += ["eigen s", "solver s", "write s", "total s", "wall s", "reads", "peak MB"]
    columns += ["predicted MB"]
    alone = median(reads, "seconds")
    row = [f"{asked.rows} x {asked.features}", asked.memory, int(median(reads, "threads"))]
    row += [median(reads, "rate"), alone, stages[0], stages[0] / alone, *stages[1:]]
    row += [median(selects), int(median(selects, "passes")), peak / 1e6, predicted / 1e6]
    show(f"select under --memory {asked.memory} ({machine()})", columns, [row])


if __name__ == "__main__":
    main()

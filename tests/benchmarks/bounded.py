"""A store many times larger than the memory that the process may take, dense or sparse.

python tests/benchmarks/bounded.py
python tests/benchmarks/bounded.py --rows 6000000 --memory 500MB
python tests/benchmarks/bounded.py --kind sparse --rows 500000 --features 20000 --memory 2GB

Sparse: AnnData, CSR at 5 percent. Reading alone takes the plan's blocks, once.
"""

from __future__ import annotations

import argparse
import shutil
from functools import partial
from pathlib import Path

from limits import (
    Finished,
    Runs,
    arguments,
    command_line,
    fresh,
    machine,
    over_repeats,
    reading,
    show,
    side_by_side,
)
from stores import make_sparse_store, make_store


def measure(asked: argparse.Namespace, store: Path, *choice: str) -> Runs:
    """Print the stages of ``select``, with its subset written, and its peak memory."""
    out = asked.folder / "bounded-out.zarr"
    options = {name: getattr(asked, name) for name in ("k", "h", "memory", "method")}
    words = [f"--{name}={value}" for name, value in options.items()]
    words += [f"--solver={asked.solver}", *choice]
    runs = side_by_side(
        asked.repeats,
        {
            "read": partial(fresh, reading, store=store, options=options),
            "select": partial(
                command_line, "select", store, *words, "--out", out, "--overwrite", "--json"
            ),
        },
    )
    shutil.rmtree(out)
    read, select = runs.values()
    row: dict[str, object] = {
        "store": f"{asked.rows} x {asked.features}",
        "method": select[-1]["method"],
        "threads": int(read.median("threads")),
        "read GB/s": read.median("rate"),
        "read s": read.median("seconds"),
        "reads": int(select.median("passes")),
        "/ (reads x read)": over_repeats(runs, _per_read),
    }
    for stage in ("read", "factor", "solve", "write", "total"):
        row[f"{stage} s"] = select.median("seconds", stage)
    row |= {"wall s": select.median(), "peak MB": 1000 * select.peak}
    row["predicted MB"] = select.median("predicted_peak_bytes") / 1e6
    show(f"select under --memory {asked.memory} ({machine()})", [row])
    return select


def _per_read(run: dict[str, Finished]) -> float:
    """The stage of reading, of all passes, over as many reads alone."""
    seconds, passes = run["select"]["seconds"]["read"], run["select"]["passes"]
    return float(seconds / (passes * run["read"]["seconds"]))


def main() -> None:
    asked = arguments(
        __doc__,
        rows=2_000_000,
        features=500,
        memory="1GB",
        solver="admm",
        method="auto",
        kind="dense",
    )
    make = {"dense": make_store, "sparse": make_sparse_store}[asked.kind]
    measure(asked, make(asked.folder, asked.rows, asked.features))


if __name__ == "__main__":
    main()

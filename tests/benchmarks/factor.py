"""The factor stage against reading alone plus the float32 products of the same blocks alone.

python tests/benchmarks/factor.py
python tests/benchmarks/factor.py --shapes 50000x500 --repeats 1

Of three shapes or more, straight lines of time against rows, too:

python tests/benchmarks/factor.py --shapes 250000x200,500000x200,1000000x200,2000000x200,4000000x200
"""

from __future__ import annotations

from functools import partial

import numpy as np
from limits import (
    Finished,
    arguments,
    command_line,
    factor,
    fresh,
    machine,
    machine_limits,
    over_repeats,
    reading,
    show,
    side_by_side,
)
from stores import make_store


def main() -> None:
    asked = arguments(__doc__, shapes="1000000x500,200000x2000", solver="admm")
    out = ("--out", asked.folder / "factor-out.zarr", "--overwrite", "--selection-only", "--json")
    choice = [f"--{name}={getattr(asked, name)}" for name in ("k", "h", "solver")]
    options = {"k": asked.k, "h": asked.h}
    stages, whole, counts = list[dict[str, object]](), list[dict[str, object]](), list[int]()
    for shape in asked.shapes.split(","):
        rows, features = map(int, shape.split("x"))
        rows = int(rows * asked.scale)
        store = make_store(asked.folder, rows, features)
        fresh(reading, store=store, options=options)  # what is in the page cache stays there
        runs = side_by_side(
            asked.repeats,
            {
                **machine_limits(store, options),
                "factor": partial(fresh, factor, store=store, options=options),
                "select": partial(command_line, "select", store, *choice, *out),
                "help": partial(command_line, "--help"),
            },
        )
        read, products, made, select, started = runs.values()
        stages.append(
            {
                "store": f"{rows} x {features}",
                "read GB/s": read.median("rate"),
                "BLAS GF/s": products.median("rate"),
                "read s": read.median("seconds"),
                "syrk s": products.median("seconds"),
                "pass s": made.median("pass"),
                "eigen s": made.median("eigen"),
                "factor s": made.median("seconds"),
                "factor/(read+syrk)": over_repeats(runs, lambda run: _against(run, "seconds")),
                "the same in CPU": over_repeats(runs, lambda run: _against(run, "cpu")),
                "peak GB": made.peak,
            }
        )
        factored = select.median("seconds", "read") + select.median("seconds", "factor")
        whole.append(
            {
                "store": f"{rows} x {features}",
                "wall s": select.median(),
                "factor s": factored,
                "solver s": select.median("seconds", "solve"),
                "write s": select.median("seconds", "write"),
                "start-up s": over_repeats(runs, _start_up),
                "beside factor s": select.median() - factored,
                "--help s": started.median(),
            }
        )
        counts.append(rows)
    show(f"Factor stage ({machine()})", stages)
    show("select --selection-only, the whole process", whole)
    if len(counts) > 2:
        lines = {"factor stage": stages, "whole process": whole}
        keys = ("factor s", "wall s")
        fits = [
            {"time of": name, **straight(counts, [row[key] for row in rows])}
            for (name, rows), key in zip(lines.items(), keys, strict=True)
        ]
        show("Straight lines", fits)


def _against(run: dict[str, Finished], key: str) -> float:
    return float(run["factor"][key] / (run["read"][key] + run["syrk"][key]))


def _start_up(run: dict[str, Finished]) -> float:
    return float(run["select"].wall - run["select"]["seconds"]["total"])


def straight(rows: list[int], seconds: list[object]) -> dict[str, object]:
    """The least-squares line of seconds against rows, and how well it fits."""
    times = np.array(seconds, float)
    slope, intercept = np.polyfit(rows, times, 1)
    fit = float(np.corrcoef(rows, times)[0, 1] ** 2)
    return {"s per million rows": float(slope * 1e6), "intercept s": float(intercept), "r^2": fit}


if __name__ == "__main__":
    main()

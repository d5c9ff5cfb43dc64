"""The factor stage against reading alone plus the float32 products of the same blocks alone.

python tests/benchmarks/factor.py
python tests/benchmarks/factor.py --shapes 50000x500 --repeats 1
"""

from __future__ import annotations

import statistics

from limits import (
    arguments,
    factor,
    fresh,
    machine,
    median,
    reading,
    select_process,
    show,
    startup_seconds,
    syrk,
)
from stores import make_store


def main() -> None:
    """Print one row per shape; each number is the median over fresh processes."""
    asked = arguments(__doc__, shapes="1000000x500,200000x2000", solver="admm")
    limits, whole = [], []
    for shape in asked.shapes.split(","):
        rows, features = map(int, shape.split("x"))
        rows = int(rows * asked.scale)
        store = make_store(asked.folder, rows, features)
        options = {"k": asked.k, "h": asked.h}
        fresh(reading, store=store, options=options)  # what is in the page cache stays there
        reads, products, factors, selects = [], [], [], []
        for _ in range(asked.repeats):
            reads.append(fresh(reading, store=store, options=options))
            products.append(fresh(syrk, store=store, options=options))
            factors.append(fresh(factor, store=store, options=options))
            choice = [f"--{name}={getattr(asked, name)}" for name in ("k", "h", "solver")]
            out = asked.folder / "factor-out.zarr"
            written = ["--out", str(out), "--overwrite", "--selection-only"]
            selects.append(select_process(store, *choice, *written))
        triples = list(zip(factors, reads, products, strict=True))
        ratios = {
            key: statistics.median(
                f.result[key] / (r.result[key] + p.result[key]) for f, r, p in triples
            )
            for key in ("seconds", "cpu")
        }
        row = [f"{rows} x {features}", median(reads, "rate"), median(products, "rate")]
        row += [median(reads, "seconds"), median(products, "seconds"), median(factors, "pass")]
        row += [median(factors, "eigen"), median(factors, "seconds"), *ratios.values()]
        limits.append([*row, median(factors, "peak_rss_bytes") / 1e9])
        stage = median(selects, "seconds", "read") + median(selects, "seconds", "factor")
        whole.append(
            [
                f"{rows} x {features}",
                median(selects),
                stage,
                median(selects, "seconds", "solve"),
                median(selects, "seconds", "write"),
                statistics.median(s.wall - s.result["seconds"]["total"] for s in selects),
                median(selects) - stage,
                statistics.median(startup_seconds() for _ in range(asked.repeats)),
            ]
        )
    columns = ["store", "read GB/s", "BLAS GF/s", "read s", "syrk s", "pass s", "eigen s"]
    columns += ["factor s", "factor/(read+syrk)", "the same in CPU", "peak GB"]
    show(f"Factor stage ({machine()})", columns, limits)
    columns = [
        "store",
        "wall s",
        "factor s",
        "solver s",
        "write s",
        "start-up s",
        "beside factor s",
    ]
    show("select --selection-only, the whole process", [*columns, "--help s"], whole)


if __name__ == "__main__":
    main()

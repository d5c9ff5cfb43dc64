"""The price of the tall-skinny QR against the Gram matrix.

python tests/benchmarks/tsqr.py
python tests/benchmarks/tsqr.py --scale 0.1 --repeats 1
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
from limits import Work, arguments, fresh, machine, median, reading, show, syrk
from stores import make_store


def decomposed(store: str, k: int, method: str, precision: str) -> dict[str, Any]:
    """The singular values and the seconds of `decompose` by one method."""
    from kmufs_stream import decompose

    with Work() as work:
        factor = decompose(store, k, method=method, precision=precision)
    return {**vars(work), "singular_values": factor.singular_values.tolist()}


def main() -> None:
    """Print seconds of each, their ratio, and how far their singular values lie apart."""
    asked = arguments(__doc__, rows=400_000, features=500)
    store = make_store(asked.folder, asked.rows, asked.features)
    options = {"k": asked.k, "h": asked.h}
    read, product = (fresh(task, store=store, options=options) for task in (reading, syrk))
    routes = [("gram", "float32"), ("gram", "float64"), ("tsqr", "float64")]
    runs: dict[tuple[str, str], list[Any]] = {route: [] for route in routes}
    for _ in range(asked.repeats):
        for method, precision in routes:
            done = fresh(decomposed, store=store, k=asked.k, method=method, precision=precision)
            runs[method, precision].append(done)
    exact = np.array(runs["tsqr", "float64"][0].result["singular_values"])
    base = runs["gram", "float32"]
    rows = []
    for route, done in runs.items():
        found = np.array(done[0].result["singular_values"])
        ratios = [
            a.result["seconds"] / b.result["seconds"] for a, b in zip(done, base, strict=True)
        ]
        rows.append(
            [
                *route,
                median(done, "seconds"),
                statistics.median(ratios),
                max(run.peak for run in done) / 1e9,
                float(np.abs(found / exact - 1).max()),
            ]
        )
    speed = f"read {read.result['rate']:.2f} GB/s, BLAS {product.result['rate']:.0f} GF/s"
    columns = ["method", "precision", "seconds", "/ gram float32", "peak GB", "against tsqr"]
    show(f"{asked.rows} x {asked.features}, {speed} ({machine()})", columns, rows)


if __name__ == "__main__":
    main()

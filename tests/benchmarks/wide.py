"""Wide data by block Lanczos: reads, time against reading, memory, and the right answer.

python tests/benchmarks/wide.py
python tests/benchmarks/wide.py --rows 6000 --features 3000 --repeats 1 --memory 1GB
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
from bounded import measure
from limits import Finished, arguments, fresh, planned, show
from numpy.typing import NDArray
from stores import make_store

BLOCK = 64  # vectors at a time, of which k are wanted
SETTLED = 1e-7
STEPS = 40  # each reads the store once


def reference(store: str, k: int, found: str) -> dict[str, Any]:
    """The scores in float64, by SciPy's LOBPCG."""
    from scipy.sparse.linalg import LinearOperator, lobpcg

    matrix, plan = planned(store, {"k": k, "h": 1})
    n, p = matrix.shape
    starts = list(chain.from_iterable(plan.partitions))

    def blocks() -> Any:
        for start in starts:
            values = matrix.rows.read(start, min(start + plan.block_rows, n))
            yield values.astype(np.float64)

    mean = sum(block.sum(axis=0) for block in blocks()) / n
    std = np.sqrt(sum(np.square(block - mean).sum(axis=0) for block in blocks()) / n)

    def correlation_times(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        scaled = vectors / std[:, None]
        product, total = np.zeros((p, vectors.shape[1])), np.zeros(vectors.shape[1])
        for block in blocks():
            projected = block @ scaled - mean @ scaled
            product += block.T @ projected
            total += projected.sum(axis=0)
        return (product - np.outer(mean, total)) / std[:, None] / n

    correlation = LinearOperator(
        (p, p), matvec=correlation_times, matmat=correlation_times, dtype=np.float64
    )
    start = np.random.default_rng(1).standard_normal((p, min(BLOCK, p // 5)))
    values, vectors, norms = lobpcg(
        correlation, start, tol=SETTLED, maxiter=STEPS, retResidualNormsHistory=True
    )
    leading = np.argsort(-values)[:k]
    np.save(found, vectors[:, leading] ** 2 @ values[leading])
    return {"residual": float(np.asarray(norms[-1])[leading].max())}


def main() -> None:
    more = {"memory": "2GB", "tol": 1e-3, "method": "lanczos", "solver": "exact"}
    asked = arguments(__doc__, rows=60_000, features=20_000, **more)
    store = make_store(asked.folder, asked.rows, asked.features)
    exact = store.with_suffix(f".scores-{asked.k}.npy")
    if not exact.exists():
        done = fresh(reference, store=store, k=asked.k, found=exact)
        print(f"residual of the reference: {done['residual']:.1e}")
    last = measure(asked, store, f"--tol={asked.tol}")[-1]
    show("Its answer", [answer(last, np.load(exact), asked.h, asked.tol)])


def answer(run: Finished, right: NDArray[np.float64], h: int, tol: float) -> dict[str, object]:
    """What was said of the answer; its error; and how many features of it are wrong.

    Those within the tolerance of the cutoff aside.
    """
    chosen, cutoff = run["selected"], np.sort(right)[-h]
    best = np.argsort(-right, kind="stable")[:h].tolist()
    differ = np.array(sorted(set(chosen) ^ set(best)), int)
    return {
        "settled": run["settled"],
        "score error": run["score_error"],
        "true error": float(np.abs(right[chosen] - run["scores"]).max()),
        "ambiguous": len(run["ambiguous"]),
        "wrong": int((np.abs(right[differ] - cutoff) > tol).sum()),
    }


if __name__ == "__main__":
    main()

"""Wide data by block Lanczos: reads, time against reading, memory, and the right answer.

python tests/benchmarks/wide.py
python tests/benchmarks/wide.py --rows 6000 --features 3000 --repeats 1 --memory 1GB
"""

from __future__ import annotations

import statistics
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from limits import arguments, blas_rate, fresh, machine, median, planned, reading, show
from numpy.typing import NDArray
from stores import make_store

BLOCK = 64
SETTLED = 1e-7
STEPS = 40


def selecting(store: str, options: dict[str, Any], tol: float, found: str) -> dict[str, Any]:
    """The factor stage of `select` by Lanczos, and the scores."""
    from kmufs_stream import LanczosOptions, select
    from kmufs_stream.solvers.scores import feature_scores

    done = select(store, **options, solver="exact", lanczos=LanczosOptions(tol=tol))
    factor = done.factor
    scores = np.zeros(len(factor.features.mean))
    scores[factor.features.usable] = feature_scores(
        factor.components, factor.eigenvalues, options["k"]
    )
    np.save(found, scores)
    return {
        "seconds": done.seconds.read + done.seconds.factor,
        "read": done.seconds.read,
        "passes": factor.passes,
        "settled": factor.settled,
        "score_error": factor.score_error,
        "residual": float(factor.residuals[options["k"] - 1]),
        "ambiguous": int(np.size(done.ambiguous)),
    }


def reference(store: str, k: int, found: str) -> dict[str, Any]:
    """The scores by float64 block Lanczos, until they change by less than 1e-7."""
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

    rng = np.random.default_rng(1)
    newest = np.linalg.qr(rng.standard_normal((p, min(BLOCK, p))))[0]
    basis, images = np.empty((p, 0)), np.empty((p, 0))
    scores, change = np.zeros(p), np.inf
    for _ in range(STEPS):
        basis = np.hstack([basis, newest])
        images = np.hstack([images, correlation_times(newest)])
        values, mix = np.linalg.eigh(basis.T @ images)
        leading = basis @ mix[:, -k:]
        before, scores = scores, leading**2 @ values[-k:]
        change = float(np.abs(scores - before).max())
        if change < SETTLED or basis.shape[1] + BLOCK > p:
            break
        newest = images[:, -newest.shape[1] :].copy()
        for _ in range(2):
            newest -= basis @ (basis.T @ newest)
            newest = np.linalg.qr(newest)[0]
    np.save(found, scores)
    return {"change": change}


def main() -> None:
    """Print one row."""
    asked = arguments(__doc__, rows=60_000, features=20_000, memory="2GB", tol=1e-3)
    store = make_store(asked.folder, asked.rows, asked.features)
    exact = store.with_suffix(f".scores-{asked.k}.npy")
    if not exact.exists():
        done = fresh(reference, store=store, k=asked.k, found=exact)
        print(f"reference scores changed by {done.result['change']:.1e} in the last step")
    found = asked.folder / "wide-found.npy"
    options = {"k": asked.k, "h": asked.h, "memory": asked.memory, "method": "lanczos"}
    reads, runs = [], []
    for _ in range(asked.repeats):
        reads.append(fresh(reading, store=store, options=options))
        runs.append(fresh(selecting, store=store, options=options, tol=asked.tol, found=found))
    missed, largest = _compare(exact, found, asked.h, asked.tol)
    found.unlink()
    ratios = [
        run.result["seconds"] / (run.result["passes"] * read.result["seconds"])
        for run, read in zip(runs, reads, strict=True)
    ]
    peak = max(run.peak for run in runs) / 1e9
    products = fresh(blas_rate, threads=int(median(reads, "threads"))).result["rate"]
    last = runs[-1].result
    columns = ["store", "memory", "threads", "read GB/s", "read s", "factor s", "in reads s"]
    columns += ["reads", "/ (reads x read)", "peak GB"]
    row = [f"{asked.rows} x {asked.features}", asked.memory, int(median(reads, "threads"))]
    row += [median(reads, "rate"), median(reads, "seconds"), median(runs, "seconds")]
    row += [median(runs, "read"), int(median(runs, "passes")), statistics.median(ratios), peak]
    show(f"Block Lanczos, BLAS {products:.0f} GF/s ({machine()})", columns, [row])
    columns = ["settled", "score error", "true error", "residual k", "ambiguous", "wrong"]
    row = [last["settled"], last["score_error"], largest, last["residual"]]
    show("Its answer", columns, [[*row, last["ambiguous"], missed]])


def _compare(exact: Path, found: Path, h: int, tol: float) -> tuple[int, float]:
    """Features chosen wrongly, those within the tolerance of the cutoff aside; their error."""
    right, ours = np.load(exact), np.load(found)
    cutoff = np.sort(right)[-h]
    sets = [set(np.argsort(-scores, kind="stable")[:h].tolist()) for scores in (right, ours)]
    wrong = [i for i in sets[0] ^ sets[1] if abs(right[i] - cutoff) > tol]
    chosen = sorted(sets[0] | sets[1])
    return len(wrong), float(np.abs(right - ours)[chosen].max())


if __name__ == "__main__":
    main()

"""The ADMM against plain SVD polar steps, and many questions to one factor.

python tests/benchmarks/solver.py
python tests/benchmarks/solver.py --iterations 10 --repeats 1
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from limits import Work, arguments, fresh, machine, median, reading, show, syrk
from numpy.typing import NDArray
from stores import make_store

Float = NDArray[np.float64]
KS, HS = (2, 4, 6, 8, 10), (10, 20, 40, 60, 80, 100)


def components(p: int, k: int, seed: int = 0) -> tuple[Float, Float]:
    """P_k and falling eigenvalues such as clusters give: few features carry most of it."""
    rng = np.random.default_rng(seed)
    weight = np.exp(rng.standard_normal((p, 1)))
    basis, _ = np.linalg.qr(weight * rng.standard_normal((p, k)))
    # No feature's score exceeds 1, as in a correlation matrix.
    values = np.linspace(2.0, 1.0, k)
    values /= float((basis**2 @ values).max())
    return basis, values


def solving(p: int, k: int, h: int, iterations: int) -> dict[str, Any]:
    """The ADMM with all cores, at most so many iterations."""
    from kmufs_stream.solvers.admm import admm
    from kmufs_stream.system import blas

    basis, values = components(p, k)
    with blas.all_cores(), Work() as work:
        found = admm(basis, values, h, tolerance=1e-12, max_iter=iterations)
    ratio = found.solver_objective / float(np.sort(basis**2 @ values)[-h:].sum())
    return {
        **vars(work),
        "iterations": found.iterations,
        "converged": found.converged,
        "ratio": ratio,
    }


def polar_step(p: int, k: int, h: int) -> dict[str, Any]:
    """One polar step as the formula says it, H = P S Q^T, U = P Q^T, by SciPy with all cores."""
    import scipy.linalg

    from kmufs_stream.system import blas

    basis, values = components(p, k)
    rng = np.random.default_rng(1)
    matrix = basis @ (values[:, None] * rng.standard_normal((k, h)))
    matrix += 1e-3 * rng.standard_normal((p, h))
    with blas.all_cores(), Work() as work:
        left, _, right = scipy.linalg.svd(matrix, full_matrices=False, check_finite=False)
        left @ right
    return vars(work)


def choosing(solver: str, p: int, k: int, h: int, kept: bool) -> dict[str, Any]:
    """One of the solvers that use correlations, from the matrix or from the factor alone."""
    from kmufs_stream.solvers.consensus import consensus
    from kmufs_stream.solvers.correlations import factor_rows
    from kmufs_stream.solvers.css import css
    from kmufs_stream.solvers.joint import joint
    from kmufs_stream.system import blas

    basis, values = components(p, 2 * k + 1)
    rows = factor_rows(basis, values)
    if kept:
        matrix = np.empty((p, p))
        for start in range(0, p, 1000):
            index = np.arange(start, min(start + 1000, p))
            matrix[index] = rows(index)
        rows = matrix.__getitem__
    m = min(20_000, 64_000_000 // p)  # as many rows as a factor keeps of float32

    def sample() -> Iterator[Float]:
        rng = np.random.default_rng(2)
        size = max(2**20 // p, 1)
        for start in range(0, m, size):
            yield rng.standard_normal((min(size, m - start), p))

    with blas.all_cores(), Work() as work:
        if solver == "consensus":
            consensus(basis[:, :k], values[:k], rows, sample, h, tolerance=1e-12)
        else:
            run = {"css": css, "joint": joint}[solver]
            run(basis[:, :k], values[:k], rows, h, tolerance=1e-12)
    return vars(work)


def questions(store: str) -> dict[str, Any]:
    """Thirty (k, h) pairs from one factor, by `exact`: of the solver alone, and of `sweep`."""
    from kmufs_stream import decompose, sweep
    from kmufs_stream.factors.solving import solve
    from kmufs_stream.options import AdmmOptions

    factor = decompose(store, max(KS))
    sweep(factor, [2], [2], solvers=["exact"])  # imports on first use
    began = time.perf_counter()
    for k in KS:
        for h in HS:
            solve(factor, k, h, "exact", AdmmOptions())
    alone = time.perf_counter() - began
    with Work() as work:
        sweep(factor, KS, HS, solvers=["exact"])
    return {**vars(work), "alone": alone}


def main() -> None:
    """Print the iteration's ratio, the whole solve, and the thirty questions."""
    asked = arguments(__doc__, iterations=100, rows=200_000, features=500)
    shape = {"p": 20_000, "k": 10, "h": 300}
    steps, runs, whole, many = [], [], [], []
    store = make_store(asked.folder, asked.rows, asked.features)
    for _ in range(asked.repeats):
        steps.append(fresh(polar_step, **shape))
        runs.append(fresh(solving, **shape, iterations=asked.iterations))
        whole.append(fresh(solving, p=2000, k=10, h=100, iterations=3000))
        many.append(fresh(questions, store=store))
    step = median(steps, "seconds")
    each = statistics.median(run.result["seconds"] / run.result["iterations"] for run in runs)
    speed = [
        fresh(task, store=store, options={"k": 10, "h": 100}).result["rate"]
        for task in (reading, syrk)
    ]
    done = whole[0].result
    stored = 4 * asked.rows * asked.features
    rows = [
        ["20000 x 300: SVD polar step", step, ""],
        ["20000 x 300: ADMM iteration", each, f"{each / step:.2f} of the step"],
        [
            "2000 x 100: whole solve",
            median(whole, "seconds"),
            f"{done['iterations']} iterations, converged {done['converged']}, "
            f"{done['ratio']:.4f} of the optimum",
        ],
        ["30 questions: exact solver", median(many, "alone"), "no read"],
        [
            "30 questions: sweep(factor)",
            median(many, "seconds"),
            f"{median(many, 'read_bytes') / stored:.2f} of the data read",
        ],
    ]
    for solver in ("css", "joint", "consensus"):
        for p in (2000, 20_000):
            for kept in (True, False):
                runs = [
                    fresh(choosing, solver=solver, p=p, k=10, h=300, kept=kept)
                    for _ in range(asked.repeats)
                ]
                where = "from the Gram matrix" if kept else "from the factor alone"
                rows.append([f"{solver}, {p} x 300", median(runs, "seconds"), where])
    title = f"Solvers, read {speed[0]:.2f} GB/s, BLAS {speed[1]:.0f} GF/s ({machine('scipy')})"
    show(title, ["what", "seconds", "note"], rows)


if __name__ == "__main__":
    main()

"""The ADMM against plain SVD polar steps, and the solvers that use correlations.

python tests/benchmarks/solver.py
python tests/benchmarks/solver.py --iterations 10 --repeats 1
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from limits import Work, arguments, fresh, machine, machine_limits, show, side_by_side, speed
from numpy.typing import NDArray
from stores import make_store

Float = NDArray[np.float64]


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
    return {
        **vars(work),
        "each": work.seconds / found.iterations,
        "iterations": found.iterations,
        "converged": found.converged,
        "ratio": found.solver_objective / float(np.sort(basis**2 @ values)[-h:].sum()),
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

    run: Any = {"css": css, "joint": joint, "consensus": consensus}[solver]
    given = (rows, sample) if solver == "consensus" else (rows,)
    with blas.all_cores(), Work() as work:
        run(basis[:, :k], values[:k], *given, h, tolerance=1e-12)
    return vars(work)


def main() -> None:
    """Print the iteration's ratio, the whole solve, and the other solvers."""
    asked = arguments(__doc__, iterations=100, rows=200_000, features=500, wide=20_000)
    shape = {"p": asked.wide, "k": 10, "h": 300}
    store = make_store(asked.folder, asked.rows, asked.features)
    tasks = machine_limits(store, {"k": 10, "h": 100})
    tasks["step"] = partial(fresh, polar_step, **shape)
    tasks["admm"] = partial(fresh, solving, **shape, iterations=asked.iterations)
    many = 30 * asked.iterations
    tasks["whole"] = partial(fresh, solving, p=2000, k=10, h=100, iterations=many)
    for solver in ("css", "joint", "consensus"):
        for p in (2000, asked.wide):
            for kept, source in ((True, "the Gram matrix"), (False, "the factor alone")):
                name = f"{solver}, {p} x 300, from {source}"
                tasks[name] = partial(fresh, choosing, solver=solver, p=p, k=10, h=300, kept=kept)
    runs = side_by_side(asked.repeats, tasks)
    step, admm, whole = (runs[name] for name in ("step", "admm", "whole"))
    relative = admm.median("each") / step.median("seconds")
    end = f"{whole[0]['iterations']} iterations, converged {whole[0]['converged']}, "
    end += f"{whole[0]['ratio']:.4f} of the optimum"
    rows = [
        (f"{asked.wide} x 300: SVD polar step", step.median("seconds"), ""),
        (f"{asked.wide} x 300: ADMM iteration", admm.median("each"), f"{relative:.2f} of the step"),
        ("2000 x 100: whole solve", whole.median("seconds"), end),
    ]
    rows += [(name, runs[name].median("seconds"), "") for name in list(tasks)[5:]]
    table = [dict(zip(("what", "seconds", "note"), row, strict=True)) for row in rows]
    show(f"Solvers, {speed(runs)} ({machine('scipy')})", table)


if __name__ == "__main__":
    main()

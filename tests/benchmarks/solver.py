"""The ADMM against plain SVD polar steps, and a whole solve.

python tests/benchmarks/solver.py
python tests/benchmarks/solver.py --iterations 10 --repeats 1
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from limits import Work, arguments, fresh, machine, show, side_by_side
from numpy.typing import NDArray

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


def main() -> None:
    asked = arguments(__doc__, iterations=100, features=20_000)
    shape = {"p": asked.features, "k": 10, "h": 300}
    small = {"p": 2000, "k": 10, "h": 100}
    runs = side_by_side(
        asked.repeats,
        {
            "step": partial(fresh, polar_step, **shape),
            "admm": partial(fresh, solving, **shape, iterations=asked.iterations),
            "whole": partial(fresh, solving, **small, iterations=30 * asked.iterations),
        },
    )
    step, admm, whole = runs.values()
    relative = admm.median("each") / step.median("seconds")
    end = f"{whole[0]['iterations']} iterations, converged {whole[0]['converged']}, "
    end += f"{whole[0]['ratio']:.4f} of the optimum"
    rows = [
        (f"{asked.features} x 300: SVD polar step", step.median("seconds"), ""),
        (f"{asked.features} x 300: ADMM iteration", admm.median("each"), f"{relative:.2f} of it"),
        ("2000 x 100: whole solve", whole.median("seconds"), end),
    ]
    table = [dict(zip(("what", "seconds", "note"), row, strict=True)) for row in rows]
    show(f"Solvers ({machine('scipy')})", table)


if __name__ == "__main__":
    main()

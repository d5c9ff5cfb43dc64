"""The closed-form optimum."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from kmufs_stream.solvers.exact import exact


def test_no_subset_is_better() -> None:
    rng = np.random.default_rng(3)
    P = np.linalg.qr(rng.standard_normal((9, 3)))[0]
    lam = np.array([4.0, 2.0, 1.0])
    A = (P * lam) @ P.T
    best = max(combinations(range(9), 4), key=lambda rows: A[rows, rows].sum())
    solution = exact(P, lam, 4, tolerance=0.0)
    assert tuple(solution.selected) == best
    assert solution.selected.dtype == np.int64
    assert solution.solver_objective == pytest.approx(A[best, best].sum(), rel=1e-13)
    assert (solution.iterations, solution.converged) == (0, True)
    assert solution.primal_residuals is None
    assert dict(solution.history) == {}
    assert exact(P, lam, 9, tolerance=0.0).solver_objective == pytest.approx(7.0, rel=1e-13)


def test_duplicates_go_to_the_lower_index_whatever_the_last_bit_says() -> None:
    row = np.array([0.3, 0.2])
    P = np.array([[0.1, 0.1], row, row * (1 + 1e-15), row * (1 - 1e-15), [0.0, 0.1]])
    assert exact(P, np.array([2.0, 1.0]), 2, tolerance=1e-12).selected.tolist() == [1, 2]


@pytest.mark.parametrize("h", [0, 5])
def test_h_outside_the_features_is_refused(h: int) -> None:
    with pytest.raises(ValueError, match=f"h is {h}"):
        exact(np.eye(4), np.ones(4), h, tolerance=0.0)

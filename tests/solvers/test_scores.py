"""Feature scores, their order, and the closed-form optimum."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kmufs_stream.solvers.exact import exact
from kmufs_stream.solvers.scores import feature_scores, ranking


def test_scores_are_the_diagonal_of_a() -> None:
    rng = np.random.default_rng(1)
    P = np.linalg.qr(rng.standard_normal((12, 5)))[0]
    lam = np.array([5.0, 3.0, 2.0, 1.0, 0.5])
    A = P[:, :3] @ np.diag(lam[:3]) @ P[:, :3].T
    np.testing.assert_allclose(feature_scores(P, lam, 3), np.diag(A), rtol=1e-13)


def test_what_has_no_scores_or_order_is_refused() -> None:
    for eigenvalues, k, message in ((5, 0, "k is 0"), (5, 6, "k is 6"), (4, 2, "eigenvalues")):
        with pytest.raises(ValueError, match=message):
            feature_scores(np.eye(5), np.ones(eigenvalues), k)
    for scores in ([0.1, np.nan], [[0.1, 0.2]]):
        with pytest.raises(ValueError, match="finite"):
            ranking(np.array(scores), 0.0)
    with pytest.raises(ValueError, match="tolerance"):
        ranking(np.ones(1), np.nan)


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=60),
    st.sampled_from([0, 1, 2, 5]),
)
def test_ranking_is_the_plain_walk(values: list[int], tolerance: int) -> None:
    left = sorted(range(len(values)), key=lambda i: (-values[i], i))
    expected: list[int] = []
    while left:
        anchor = values[left[0]]
        run = [i for i in left if anchor - values[i] <= tolerance]
        expected += sorted(run)
        left = [i for i in left if i not in run]
    assert ranking(np.array(values, dtype=float), float(tolerance)).tolist() == expected


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
    # Each is within 1 of the next; runs are anchored at 10 and 8.5: {10, 9.25}, {8.5, 7.75}.
    assert ranking(np.array([7.75, 8.5, 9.25, 10.0]), 1.0).tolist() == [2, 3, 0, 1]


@pytest.mark.parametrize("h", [0, 5])
def test_h_outside_the_features_is_refused(h: int) -> None:
    with pytest.raises(ValueError, match=f"h is {h}"):
        exact(np.eye(4), np.ones(4), h, tolerance=0.0)

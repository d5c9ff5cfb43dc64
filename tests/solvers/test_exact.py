"""The closed-form optimum."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from kmufs_stream.solvers.exact import exact
from kmufs_stream.solvers.scores import feature_scores, ranking
from tests.solvers.real_factors import CASES, REFERENCE, factors


@pytest.mark.parametrize(("name", "h"), CASES)
def test_published_reference_values(name: str, h: int) -> None:
    P, lam, kept = factors(name)
    features, k, largest, optimum, five = REFERENCE[name]
    assert (kept.size, lam.size) == (features, k)
    assert lam[0] == pytest.approx(largest, abs=1e-6)
    solution = exact(P, lam, h, tolerance=1e-12)
    assert solution.solver_objective == pytest.approx(optimum[h], abs=1e-6)
    assert kept[ranking(feature_scores(P, lam, k), 1e-12)[:5]].tolist() == five
    assert np.isin(five, kept[solution.selected]).all()


def test_no_subset_is_better() -> None:
    rng = np.random.default_rng(3)
    P = np.linalg.qr(rng.standard_normal((9, 3)))[0]
    lam = np.array([4.0, 2.0, 1.0])
    A = (P * lam) @ P.T
    best = max(combinations(range(9), 4), key=lambda rows: A[rows, rows].sum())
    solution = exact(P, lam, 4, tolerance=0.0)
    assert tuple(solution.selected) == best
    assert solution.solver_objective == pytest.approx(A[best, best].sum(), rel=1e-13)


def test_figures_of_a_closed_form() -> None:
    solution = exact(np.eye(4)[:, :2], np.array([2.0, 1.0]), 1, tolerance=0.0)
    assert solution.selected.dtype == np.int64
    assert (solution.iterations, solution.converged) == (0, True)
    assert solution.primal_residuals is None
    assert dict(solution.history) == {}


def test_duplicates_go_to_the_lower_index_whatever_the_last_bit_says() -> None:
    row = np.array([0.3, 0.2])
    P = np.array([[0.1, 0.1], row, row * (1 + 1e-15), row * (1 - 1e-15), [0.0, 0.1]])
    assert exact(P, np.array([2.0, 1.0]), 2, tolerance=1e-12).selected.tolist() == [1, 2]


def test_the_objective_grows_with_h_and_ends_at_the_trace() -> None:
    P = np.linalg.qr(np.random.default_rng(4).standard_normal((20, 3)))[0]
    lam = np.array([4.0, 2.0, 1.0])
    values = [exact(P, lam, h, tolerance=0.0).solver_objective for h in range(1, 21)]
    steps = np.diff(values)
    assert (steps >= 0).all()
    assert (np.diff(steps) <= 1e-15).all()
    assert values[-1] == pytest.approx(lam.sum(), rel=1e-13)


@pytest.mark.parametrize("h", [0, 5])
def test_h_outside_the_features_is_refused(h: int) -> None:
    with pytest.raises(ValueError, match=f"h is {h}"):
        exact(np.eye(4), np.ones(4), h, tolerance=0.0)

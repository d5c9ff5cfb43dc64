"""Feature scores and their order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kmufs_stream.solvers.scores import feature_scores, ranking


def test_scores_are_the_diagonal_of_a() -> None:
    rng = np.random.default_rng(1)
    P = np.linalg.qr(rng.standard_normal((12, 5)))[0]
    lam = np.array([5.0, 3.0, 2.0, 1.0, 0.5])
    A = P[:, :3] @ np.diag(lam[:3]) @ P[:, :3].T
    np.testing.assert_allclose(feature_scores(P, lam, 3), np.diag(A), rtol=1e-13)


@pytest.mark.parametrize("k", [0, 6])
def test_k_outside_the_components_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"k is {k}"):
        feature_scores(np.eye(5), np.ones(5), k)


def test_eigenvalues_must_match_the_components() -> None:
    with pytest.raises(ValueError, match="eigenvalues"):
        feature_scores(np.eye(5), np.ones(4), 2)


@pytest.mark.parametrize(
    ("scores", "tolerance", "order"),
    [
        ([0.2, 0.9, 0.2, 0.9, 0.5], 0.0, [1, 3, 4, 0, 2]),
        ([0.5, 0.9, 0.9 + 4e-13, 0.5 + 9e-13], 1e-12, [1, 2, 0, 3]),
        ([0.5, 0.9, 0.9 + 4e-13, 0.5 + 9e-13], 1e-13, [2, 1, 3, 0]),
        # Each is within 1 of the next; runs are anchored at 10 and 8.5: {10, 9.25}, {8.5, 7.75}.
        ([7.75, 8.5, 9.25, 10.0], 1.0, [2, 3, 0, 1]),
        ([1.0, 1.5], 0.5, [0, 1]),  # the bound is included
    ],
)
def test_scores_within_the_tolerance_tie(
    scores: list[float], tolerance: float, order: list[int]
) -> None:
    assert ranking(np.array(scores), tolerance).tolist() == order


@pytest.mark.parametrize("scores", [[0.1, np.nan], [np.inf, 0.0], [[0.1, 0.2]]])
def test_scores_that_cannot_be_ranked_are_refused(scores: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        ranking(np.array(scores), 0.0)


@pytest.mark.parametrize("tolerance", [-1.0, np.nan])
def test_a_tolerance_must_not_be_negative(tolerance: float) -> None:
    with pytest.raises(ValueError, match="tolerance"):
        ranking(np.array([1.0]), tolerance)


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

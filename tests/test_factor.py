"""What a factor keeps and says of itself."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from helpers import planted

from kmufs_stream import RequestError, decompose
from kmufs_stream.factor import components_for, orient_columns, score_tolerance


def test_variance_beyond_double_precision_is_refused() -> None:
    X = planted(2000, 3)
    X[:, 2] = 0.0
    X[0, 2] = 1e-200  # in a row that the probe does not see
    with pytest.raises(RequestError, match="feature 2") as caught:
        decompose(X, 1)
    assert caught.value.code == "range"


def test_largest_numbers_are_standardised() -> None:
    X = planted(100, 3)
    X[:, 2] = np.resize([1.7e308, -1.7e308], 100)
    np.testing.assert_allclose(decompose(X, 1).features.std[2], 1.7e308)


def test_columns_are_oriented_by_their_largest_entry() -> None:
    vectors = np.array([[0.1, -0.9], [-0.8, 0.3]])
    np.testing.assert_array_equal(orient_columns(vectors), [[-0.1, 0.9], [0.8, -0.3]])


@pytest.mark.parametrize(
    ("k", "usable", "kept"), [(3, 100, 7), (3, 5, 5), (1, 1, 1), (50, 101, 101)]
)
def test_components_kept(k: int, usable: int, kept: int) -> None:
    assert components_for(k, usable) == kept


def test_ties() -> None:
    assert score_tolerance("float64") == 1e-12
    assert score_tolerance("float32") == 1e-6


def test_rank_counts_what_stands_above_rounding() -> None:
    factor = decompose(planted(200, 6), 2)
    assert factor.rank == 5
    n = factor.features.samples
    low = dataclasses.replace(
        factor, singular_values=np.sqrt(n * np.array([3, 1, 1e-3, 1e-20, 0.0]))
    )
    assert low.rank == 3
    np.testing.assert_allclose(low.eigenvalues, [3, 1, 1e-3, 1e-20, 0])

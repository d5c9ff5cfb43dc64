"""Lloyd steps and cluster sums against whole-array NumPy."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from cluster_rows import Whole, cut
from hypothesis import given, settings
from hypothesis import strategies as st

from kmufs_stream.streaming.kernels import lloyd
from kmufs_stream.streaming.kernels.lloyd import Clusters, Lloyd, Standard
from kmufs_stream.streaming.passes import run_pass


def example(seed: int, n: int, p: int, dtype: str) -> tuple[np.ndarray, Standard, np.ndarray]:
    """Return rows, means and deviations (the last feature is constant), and standardised rows."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 50, size=(n, p)).astype(dtype)
    X[:, -1] = 7
    std = X.astype(float).std(axis=0)
    standard = Standard(X.astype(float).mean(axis=0), std)
    Z = (X - standard.mean) / np.where(std > 0, std, 1.0)
    return X, standard, Z


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 99),
    n=st.integers(2, 60),
    rows=st.integers(1, 20),
    blocks=st.integers(1, 4),
    dtype=st.sampled_from(["f8", "f4", "u1", "i8"]),
)
def test_a_step_is_that_of_the_whole_table(
    seed: int, n: int, rows: int, blocks: int, dtype: str
) -> None:
    X, standard, Z = example(seed, n, 5, dtype)
    centres = np.random.default_rng(seed + 1).normal(size=(3, 4, 5))
    with mock.patch.object(lloyd, "SLAB_ROWS", 7):  # rows are worked on in slabs
        state = run_pass(Lloyd(standard, centres), Whole(X), cut(n, rows, blocks), threads=2)
    for i in range(3):
        distances = ((Z[:, None] - centres[i]) ** 2).sum(axis=2)
        nearest = distances.argmin(axis=1)
        assert state.counts[i].tolist() == np.bincount(nearest, minlength=4).tolist()
        sums = np.array([Z[nearest == c].sum(axis=0) for c in range(4)])
        np.testing.assert_allclose(state.sums[i], sums, atol=1e-10)
        np.testing.assert_allclose(state.cost[i], distances.min(axis=1).sum(), rtol=1e-10)


@pytest.mark.parametrize("rows", [1, 7, 50])
def test_clusters_sum_all_features_and_count_classes(rows: int) -> None:
    X, standard, Z = example(0, 50, 6, "f4")
    rng = np.random.default_rng(2)
    columns = np.array([1, 4])
    centres = rng.normal(size=(3, 2))
    codes = rng.integers(-1, 4, size=50).astype(np.int32)
    kernel = Clusters(standard, columns, centres, codes, 4)
    state = run_pass(kernel, Whole(X), cut(50, rows, 2), threads=2)
    nearest = ((Z[:, None, columns] - centres) ** 2).sum(axis=2).argmin(axis=1)
    for c in range(3):
        assert state.counts[c] == (nearest == c).sum()
        np.testing.assert_allclose(state.sums[c], Z[nearest == c].sum(axis=0), atol=1e-12)
        for d in range(4):
            assert state.contingency[c, d] == ((nearest == c) & (codes == d)).sum()
    np.testing.assert_allclose(state.squares, (Z**2).sum(axis=0), atol=1e-10)
    without = Clusters(standard, columns, centres, None, 0)
    assert run_pass(without, Whole(X), [range(0, 50, 50)], threads=1).contingency.size == 0

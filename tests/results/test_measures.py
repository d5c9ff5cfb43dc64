"""Measures against scikit-learn and by their definitions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from kmufs_stream.results.measures import (
    agreement,
    between_clusters,
    effective_rank,
    mean_correlation,
)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 999), st.integers(1, 60), st.integers(1, 4), st.integers(1, 5))
def test_agreement_is_that_of_scikit_learn(seed: int, n: int, k: int, c: int) -> None:
    rng = np.random.default_rng(seed)
    clusters, classes = rng.integers(k, size=n), rng.integers(c, size=n)
    table = np.bincount(clusters * c + classes, minlength=k * c).reshape(k, c)
    found = agreement(table)
    square = np.zeros((5, 5), int)
    square[:k, :c] = table
    best = max(sum(square[i, j] for i, j in enumerate(m)) for m in itertools.permutations(range(5)))
    assert found.accuracy == best / n
    assert found.nmi == pytest.approx(
        metrics.normalized_mutual_info_score(classes, clusters), abs=1e-9
    )
    assert found.ari == pytest.approx(metrics.adjusted_rand_score(classes, clusters), abs=1e-9)
    assert (found.samples, found.classes) == (n, len(set(classes)))


def test_agreement_without_samples() -> None:
    with pytest.raises(ValueError, match="no samples"):
        agreement(np.zeros((3, 2), np.int64))


def test_between_clusters_is_what_the_means_explain() -> None:
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(80, 5))
    Z -= Z.mean(axis=0)
    clusters = rng.integers(3, size=80)
    counts = np.array([(clusters == c).sum() for c in range(4)])  # the last one is empty
    sums = np.array([Z[clusters == c].sum(axis=0) for c in range(4)])
    means = np.array([Z[clusters == c].mean(axis=0) for c in range(3)])
    within = ((Z - means[clusters]) ** 2).sum(axis=0)
    np.testing.assert_allclose(between_clusters(counts, sums) + within, (Z**2).sum(axis=0))


def test_redundancy_of_copies_and_of_strangers() -> None:
    copies, strangers = np.ones((5, 5)), np.eye(5)
    copies[0, 1:] = copies[1:, 0] = -1
    assert mean_correlation(copies) == pytest.approx(1)
    assert effective_rank(copies) == pytest.approx(1)
    assert mean_correlation(strangers) == 0
    assert effective_rank(strangers) == pytest.approx(5)
    assert mean_correlation(np.ones((1, 1))) == 0
    assert effective_rank(np.ones((1, 1))) == pytest.approx(1)
    pair = np.array([[1, 0.5], [0.5, 1]])
    assert mean_correlation(pair) == pytest.approx(0.5)
    assert effective_rank(pair) == pytest.approx(0.75**-0.75 * 0.25**-0.25)

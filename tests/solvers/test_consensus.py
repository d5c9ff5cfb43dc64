"""Alignment with an ensemble of clusterings, against its definition."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.cluster import KMeans

from kmufs_stream.solvers.consensus import (
    Blocks,
    cluster_counts,
    consensus,
    consensus_bytes,
    ensemble,
)
from kmufs_stream.solvers.solution import Solution
from kmufs_stream.system import blas
from tests.solvers.oracles import spectral_embedding, traced_peak

Array = npt.NDArray[np.float64]


def in_blocks(Z: Array, rows: int) -> Blocks:
    def blocks() -> Iterator[Array]:
        for start in range(0, len(Z), rows):
            yield Z[start : start + rows].copy()

    return blocks


@cache
def planted(copies: int = 1) -> tuple[Array, Array, Array]:
    """Make three clusters separated by features 0 and 1 (with copies), noise, and outliers.

    Returns standardised rows, and their leading components and eigenvalues.
    """
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    centres = np.array([[-2.0, 0.0], [2.0, -2.0], [2.0, 2.0]])[y]
    signal = np.repeat(centres, copies, axis=1) + 0.3 * rng.standard_normal((600, 2 * copies))
    tail = np.where(np.arange(600)[:, None] < 4, 40.0, 0.0) + rng.standard_normal((600, 3))
    X = np.hstack([signal, rng.standard_normal((600, 6)), tail])
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    _, s, Pt = np.linalg.svd(Z, full_matrices=False)
    return Z, np.ascontiguousarray(Pt[:7].T), s[:7] ** 2 / len(Z)


def solve(
    k: int, h: int, copies: int = 1, blocks: int = 600, rows: Array | None = None
) -> Solution:
    """Choose h features of the clusters, by a sample of rows in blocks of so many."""
    Z, P, values = planted(copies)
    C = Z.T @ Z / len(Z)
    sample = in_blocks(Z if rows is None else rows, blocks)
    return consensus(P[:, :k], values[:k], C.__getitem__, sample, h, tolerance=1e-12)


def kernels(Z: Array, P: Array, values: Array, k: int) -> tuple[Array, Array]:
    """Return the clipped rows and the mean centred kernel of the clusterings."""
    clipped = np.clip(Z, -2.5, 2.5)
    kernel = np.zeros((len(Z), len(Z)))
    scores = clipped @ P[:, :k] / np.sqrt(values[:k])
    vectors = spectral_embedding(scores, 2 * k)
    order = np.argsort(scores[:, 0])
    labels = np.empty(len(Z), np.int64)
    for seed, count in enumerate(cluster_counts(k)):
        points = vectors[order, :count]
        points = points / np.linalg.norm(points, axis=1, keepdims=True)
        labels[order] = KMeans(count, n_init=1, random_state=seed).fit(points).labels_
        Y = (labels[:, None] == np.unique(labels)).astype(float)
        Y /= np.linalg.norm(Y, axis=0)
        Y -= Y.mean(axis=0)
        kernel += Y @ Y.T / len(cluster_counts(k))
    return clipped, kernel


def test_variances_between_clusters_are_inner_products_with_the_mean_kernel() -> None:
    Z, P, values = planted()
    clipped, kernel = kernels(Z, P, values, 3)
    found = ensemble(P[:, :3], values[:3], in_blocks(Z, 600))
    expected = np.einsum("ni,nm,mi->i", clipped, kernel, clipped) / len(Z)
    np.testing.assert_allclose(found.between, expected, rtol=1e-9, atol=1e-12)
    assert found.length == pytest.approx(np.linalg.norm(kernel), rel=1e-9)


def test_each_step_aligns_the_kernels_best() -> None:
    Z, P, values = planted(copies=2)
    clipped, kernel = kernels(Z, P, values, 3)
    C = Z.T @ Z / len(Z)
    gain = np.einsum("ni,nm,mi->i", clipped, kernel, clipped) / len(Z)
    chosen: list[int] = []
    for _ in range(6):
        tried = {
            i: gain[[*chosen, i]].sum() / np.linalg.norm(C[np.ix_([*chosen, i], [*chosen, i])])
            for i in range(Z.shape[1])
            if i not in chosen
        }
        chosen.append(max(tried, key=lambda i: tried[i]))
    found = solve(3, 6, copies=2)
    assert found.selected.tolist() == sorted(chosen)
    value = gain[chosen].sum() / np.linalg.norm(C[np.ix_(chosen, chosen)])
    value /= np.linalg.norm(kernel)
    assert found.solver_objective == pytest.approx(value, rel=1e-9)
    assert 0 < found.solver_objective < 1
    assert found.history["solver_objective"][-1] == found.solver_objective
    assert found.iterations == len(found.history["solver_objective"]) == 6


def test_chooses_features_that_separate_clusters_in_different_directions_first() -> None:
    two = solve(3, 2, copies=4).selected
    assert two[0] < 4 <= two[1] < 8
    assert solve(3, 8, copies=4).selected.tolist() == list(range(8))


def test_blocks_and_repeated_rows_do_not_matter() -> None:
    first = solve(3, 9, copies=3)
    for size in (1, 37):
        again = solve(3, 9, copies=3, blocks=size)
        assert again.selected.tolist() == first.selected.tolist()
        assert again.solver_objective == pytest.approx(first.solver_objective, rel=1e-12)
    thrice = solve(3, 5, copies=3, rows=np.repeat(planted(3)[0], 3, axis=0))
    assert thrice.selected.tolist() == solve(3, 5, copies=3).selected.tolist()
    history = first.history["solver_objective"]
    assert solve(3, 9, copies=3).history["solver_objective"].tobytes() == history.tobytes()


def test_orders_and_threads_of_blas_do_not_matter_where_there_are_no_clusters() -> None:
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((600, 13))
    _, s, Pt = np.linalg.svd(Z, full_matrices=False)
    P, values = np.ascontiguousarray(Pt[:3].T), s[:3] ** 2 / len(Z)
    first = ensemble(P, values, in_blocks(Z, 600))
    order = rng.permutation(13)
    with blas.one_thread():
        again = ensemble(P[order], values, in_blocks(rng.permutation(Z)[:, order], 600))
    np.testing.assert_allclose(again.between, first.between[order], rtol=1e-9)
    assert again.length == pytest.approx(first.length, rel=1e-9)


@pytest.mark.parametrize(
    ("k", "h", "m"), [(1, 1, 600), (7, 11, 600), (3, 4, 2), (3, 4, 5), (7, 4, 9)]
)
def test_every_shape(k: int, h: int, m: int) -> None:
    Z, _, _ = planted()
    for rows in (Z[:m], np.tile(Z[:3], (40, 1))):
        found = solve(k, h, blocks=3, rows=rows)
        assert np.array_equal(found.selected, np.unique(found.selected))
        assert found.selected.size == h


@pytest.mark.parametrize(("h", "m", "message"), [(12, 9, "h is 12"), (2, 1, "sample of 1 rows")])
def test_bad_requests_are_refused(h: int, m: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        solve(3, h, blocks=9, rows=planted()[0][:m])


@pytest.mark.parametrize(("m", "p", "k"), [(4000, 200, 5), (300, 3000, 20), (500, 40, 2)])
def test_memory_stays_below_the_bound(m: int, p: int, k: int) -> None:
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((m, p))
    P = np.linalg.qr(rng.standard_normal((p, k)))[0]
    C, values = np.eye(p), np.ones(k)
    blocks = in_blocks(Z, max(2**20 // p, 1))
    peak = traced_peak(lambda: consensus(P, values, C.__getitem__, blocks, 3, tolerance=0.0))
    assert peak <= consensus_bytes(p, k, m)

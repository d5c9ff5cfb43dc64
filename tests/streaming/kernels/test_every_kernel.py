"""Every kernel against whole-array NumPy, however rows are cut; states are values."""

from __future__ import annotations

import dataclasses
import operator
import pickle
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from cluster_rows import Whole, cut
from helpers import planted
from hypothesis import given, settings
from hypothesis import strategies as st

from kmufs_stream.streaming.kernels import lloyd, sample
from kmufs_stream.streaming.kernels.gram import Gram
from kmufs_stream.streaming.kernels.kernel import Kernel
from kmufs_stream.streaming.kernels.lloyd import Clusters, Lloyd, Standard
from kmufs_stream.streaming.kernels.products import Far, Product, StartProduct
from kmufs_stream.streaming.kernels.sample import TakeRows, sample_index, sample_size
from kmufs_stream.streaming.kernels.scaling import Scaling
from kmufs_stream.streaming.kernels.sparse import (
    SparseGram,
    SparseProduct,
    SparseStartProduct,
    sparse_scaling,
)
from kmufs_stream.streaming.kernels.tsqr import TSQR
from kmufs_stream.streaming.passes import run_pass

Array = npt.NDArray[Any]

N, P = 120, 6
X = planted(N, P) * [1, 10, 0.1, 1e5, 3, 1] + [0, 5, 0, -1e6, 1, 0]
X.flags.writeable = False  # a kernel leaves its blocks alone
SCALING, SPARSE = Scaling.from_probe(X[:64], "float64"), sparse_scaling(sp.csr_array(X))
SINGLE = dataclasses.replace(SCALING, precision="float32")
G = np.random.default_rng(0).standard_normal((3, P))
C = np.array([1.0, -2.0, 0.0])
FAR = np.array([1, 3])
NEAR = np.where(np.isin(np.arange(P), FAR), 0, G)
STANDARD = Standard(X.mean(axis=0), X.std(axis=0))
COUNTING: list[Kernel[Any]] = [
    Gram(SCALING),
    Gram(SINGLE),
    TSQR(SCALING),
    StartProduct(SCALING, G),
    StartProduct(SINGLE, G.astype(np.float32)),
    SparseGram(SPARSE),
    SparseStartProduct(SPARSE, G),
]
MULTIPLYING: list[Kernel[Any]] = [
    Product(G, C, SCALING),
    Product(G.astype(np.float32), C, SINGLE),
    Product(NEAR, C, None, Far(FAR, G[:, FAR].copy(), SCALING.of(FAR))),
    SparseProduct(G, C, SPARSE),
]
OTHERS: list[Kernel[Any]] = [
    Lloyd(STANDARD, G[None]),
    Clusters(STANDARD, np.arange(2), G[:, :2], np.arange(N, dtype=np.int32) % 2, 2),
    TakeRows(np.array([3, 79, 80, 110])),
]


def name_of(kernel: Kernel[Any]) -> str:
    return type(kernel).__name__


def rows_of(kernel: Kernel[Any], x: Array) -> Any:
    return sp.csr_array(x) if name_of(kernel).startswith("Sparse") else x


def after(kernel: Kernel[Any], x: Array, edges: list[int]) -> Any:
    """The merged states of the rows between edges, of which each state has two blocks."""
    state = kernel.init()
    for a, b in pairwise(edges):
        part, middle = kernel.init(), (a + b) // 2
        for start, stop in ((a, middle), (middle, b)):
            if stop > start:
                part = kernel.update(part, rows_of(kernel, x[start:stop]), start)
        state = state + part
    return state


def scaled(kernel: Any) -> Array:
    """X as the kernel takes it."""
    if getattr(kernel, "far", None) is not None:
        b = X.copy()
        b[:, FAR] = (X[:, FAR] - SCALING.shift[FAR]) / SCALING.scale[FAR]
        return b
    return np.asarray((X - kernel.scaling.shift) / kernel.scaling.scale)


def assert_close(found: Array, expected: Array, kernel: Any) -> None:
    assert found.dtype == np.float64
    tolerance = 3e-6 if kernel.scaling is SINGLE else 1e-13
    size = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * size)


@pytest.mark.parametrize("kernel", COUNTING, ids=name_of)
@settings(deadline=None, max_examples=20)
@given(cuts=st.lists(st.integers(0, N), max_size=6))
def test_moments_and_products_however_rows_are_cut(kernel: Any, cuts: list[int]) -> None:
    state, b = after(kernel, X, [0, *sorted(cuts), N]), scaled(kernel)
    assert state.moments.count == N
    assert state.moments.held
    assert_close(state.moments.total, b.sum(axis=0), kernel)
    if isinstance(kernel, Gram):
        assert_close(state.scatter, b.T @ b, kernel)
    elif isinstance(kernel, TSQR):
        r, bordered = state.triangle, np.column_stack([np.ones(N), b])
        assert not np.tril(r, -1).any()
        assert_close(r.T @ r, bordered.T @ bordered, kernel)
    else:
        assert_close(state.product, G @ b.T @ b, kernel)
        assert_close(state.squares, (b**2).sum(axis=0), kernel)


@pytest.mark.parametrize("kernel", MULTIPLYING, ids=name_of)
@settings(deadline=None, max_examples=20)
@given(cuts=st.lists(st.integers(0, N), max_size=6))
def test_centred_products_however_rows_are_cut(kernel: Any, cuts: list[int]) -> None:
    state, b = after(kernel, X, [0, *sorted(cuts), N]), scaled(kernel)
    projected = b @ G.T - C
    assert_close(state.product, projected.T @ b, kernel)
    assert_close(state.total, projected.sum(axis=0), kernel)


def numbers(state: Any) -> Array:
    """All that a state holds, in a row."""
    if dataclasses.is_dataclass(state):
        state = list(vars(state).values())
    if isinstance(state, list):
        return np.concatenate([[], *(numbers(part) for part in state if part is not None)])
    return np.ravel(state)


@pytest.mark.parametrize("kernel", [*COUNTING, *MULTIPLYING, *OTHERS], ids=name_of)
def test_states_are_values(kernel: Kernel[Any]) -> None:
    a, b = after(kernel, X, [0, 80]), after(kernel, X, [80, N])
    before = pickle.dumps((a, b))
    merged = a + b
    expected = numbers(merged)
    np.testing.assert_array_equal(numbers(operator.add(*pickle.loads(before))), expected)
    there = pickle.loads(pickle.dumps(kernel))
    np.testing.assert_array_equal(numbers(after(there, X, [0, 80]) + b), expected)
    for same in (a + kernel.init(), kernel.init() + a):
        np.testing.assert_allclose(numbers(same), numbers(a), rtol=1e-13, atol=1e-12)
        kernel.update(same, rows_of(kernel, X[:20]), 100)
    kernel.update(merged, rows_of(kernel, X[:20]), 100)
    assert pickle.dumps((a, b)) == before


@pytest.mark.parametrize("kernel", COUNTING, ids=name_of)
def test_values_that_are_not_finite_are_counted_after_the_first_too(kernel: Kernel[Any]) -> None:
    x = X.copy()
    x[10, 2] = np.nan
    x[90:100, 2] = np.inf
    x[N - 1, 5] = -np.inf
    moments = after(kernel, x, [0, 60, 70, 95, N]).moments
    assert moments.missing.tolist() == [0, 0, 1, 0, 0, 0]
    assert moments.infinite.tolist() == [0, 0, 10, 0, 0, 1]
    assert moments.count == N
    assert not moments.valid


def test_gaps_add_up_over_blocks_and_states() -> None:
    x = X.copy()
    x[::7, 2] = x[5:90:3, 4] = np.nan
    missing = np.isnan(x)
    state = after(Gram(SCALING, note_gaps=True), x, [0, 30, 80, N])
    assert state.gaps is not None
    b = np.where(missing, 0, (X - SCALING.shift) / SCALING.scale)
    np.testing.assert_allclose(state.gaps.values, missing.T @ b, atol=1e-9)
    np.testing.assert_array_equal(state.gaps.counts, missing.T.astype(float) @ missing)


@pytest.mark.parametrize("cuts", [[], [64, 90]])
def test_ranges_of_features_with_one_value_in_the_probe(cuts: list[int]) -> None:
    x = X.copy()
    x[:90, [1, 4]] = [7, -3]
    x[90:, 1] = 7
    scaling = Scaling.from_probe(x[:64], "float64")
    assert scaling.unsure.tolist() == [1, 4]
    moments = after(Gram(scaling), x, [0, *cuts, 95, N]).moments
    assert moments.low.tolist() == [7, min(-3, x[90:, 4].min())]
    assert moments.high.tolist() == [7, x[90:, 4].max()]


@pytest.mark.parametrize(
    ("probe", "rows"),
    [
        ([0, 1, 2], [0, 1e14, 1]),
        ([0, 1, 2], [0, 1e30, 1]),
        ([5, 5, 5], [5, 1e20, 5]),
        ([5, 5, 5], [0.0, 1e-14, 2e-14]),
        ([-1, 0, 1], [1e5, 1e5 + 1, 1e5 + 2]),
        ([0, 1e-20, 2e-20], [0, 1, 2]),
    ],
    ids=["reach", "overflow", "reach, unsure", "vanishes", "cancels", "tiny"],
)
def test_block_beyond_float32_is_done_in_float64(probe: list[float], rows: list[float]) -> None:
    scaling = Scaling.from_probe(np.array([probe], np.float32).T, "float32")
    kernel = Gram(scaling)
    x = np.array([rows], np.float32).T
    state = kernel.update(kernel.init(), x, 0)
    exact = (x.astype(np.float64) - scaling.shift) / scaling.scale
    assert not state.moments.held
    np.testing.assert_allclose(state.scatter, exact.T @ exact, rtol=1e-14)
    np.testing.assert_allclose(state.moments.total, exact.sum(axis=0), rtol=1e-14)
    assert not (state + kernel.init()).moments.held
    assert not (kernel.update(kernel.init(), x * 0, 0) + state).moments.held


def example(seed: int, n: int, p: int, dtype: str) -> tuple[Array, Standard, Array]:
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


def test_size_of_the_row_sample() -> None:
    assert sample_size(10, 8) == 10
    sizes = {8: 20_000, 12_800: 20_000, 25_600: 10_000, 10**9: 1}
    assert {row_bytes: sample_size(10**9, row_bytes) for row_bytes in sizes} == sizes


@settings(deadline=None, max_examples=60)
@given(n=st.integers(1, 500), data=st.data())
def test_the_row_sample_is_m_distinct_ascending_rows(n: int, data: Any) -> None:
    m = data.draw(st.integers(1, n))
    index = sample_index(n, m)
    assert len(index) == m
    assert (np.diff(index) > 0).all()
    assert index[0] >= 0
    assert index[-1] < n


def test_the_row_sample_depends_on_size_and_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # Being the m smallest hashes, samples of parts can be merged.
    assert set(sample_index(5000, 40)) < set(sample_index(5000, 400))
    assert set(sample_index(5000, 40, 0)) != set(sample_index(5000, 40, 1))
    whole = sample_index(1000, 50)
    for at_once in (1, 7):
        monkeypatch.setattr(sample, "HASHED_AT_ONCE", at_once)
        assert sample_index(1000, 50).tolist() == whole.tolist()


def test_the_row_sample_is_uniform_over_places_and_periods() -> None:
    # 40 cells of 2500 rows; chi-square with 39 degrees of freedom exceeds 73.4 once in a thousand.
    m = 20_000
    for seed in range(3):
        index = sample_index(100_000, m, seed)
        counts = np.bincount(index // 2500, minlength=40)
        # Drawn without replacement: the variance shrinks by 1 - m / n.
        chi2 = ((counts - m / 40) ** 2 / (m / 40)).sum() / (1 - m / 100_000)
        assert 10 < chi2 < 73.4
    for period in (2, 3, 8, 64, 100):  # within five standard deviations for every residue
        counts = np.bincount(sample_index(200_000, m) % period, minlength=period)
        spread = np.sqrt(m / period * (1 - 1 / period))
        assert (np.abs(counts - m / period) < 5 * spread + 1).all()


@settings(deadline=None, max_examples=30)
@given(block=st.integers(1, 70), per=st.integers(1, 9), threads=st.sampled_from([1, 3]))
def test_rows_taken_do_not_depend_on_blocks(block: int, per: int, threads: int) -> None:
    n = 300
    x = np.arange(n * 2).reshape(n, 2)
    index = sample_index(n, 60)
    pieces = run_pass(TakeRows(index), Whole(x), cut(n, block, per), threads=threads)
    np.testing.assert_array_equal(np.concatenate(pieces), x[index])

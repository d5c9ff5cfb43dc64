"""The factor against references: real data, hard numbers, permutations, and what is refused."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
import pytest
from helpers import every_score, planted, same_bits, slow, write_bare
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import load
from reference import assert_optimal, assert_same_scores, reference, top

from kmufs_stream import RequestError, decompose, select
from kmufs_stream.streaming.kernels.scaling import probe_starts

# lambda_1, k, {h: optimum} and the five highest scores, measured independently of the project
# (README.md beside the data, six decimals).
REAL = {
    "HARS_3000": (279.733976, 6, {50: 48.504300, 100: 95.977389}, {280, 359, 95, 226, 231}, 561),
    "MicroMass_mixed360": (
        68.439780,
        10,
        {50: 45.182863, 100: 87.087735},
        {220, 792, 895, 397, 1078},
        1087,
    ),
    "MNIST_first3468": (
        39.719125,
        10,
        {50: 28.102089, 100: 54.209535},
        {595, 594, 358, 623, 454},
        653,
    ),
    "DNA_statlog": (4.814537, 3, {50: 6.402646, 100: 9.011578}, {89, 84, 92, 104, 82}, 180),
}
PRINTED = 0.5e-6 * 1.01
USUAL = ("tall", "float64")
reference_of = functools.cache(lambda name: reference(load(name)[0]))


@pytest.mark.parametrize(
    ("name", "chunks", "precision"),
    [  # chunks and precisions are the smallest table's to check
        ((name, *form) if form == USUAL or name == "DNA_statlog" else slow(name, *form))
        for name in REAL
        for form in itertools.product(("tall", "odd", "wide columns"), ("float64", "float32"))
    ],
)
def test_reference_values_of_real_data(
    tmp_path: Path, request: pytest.FixtureRequest, name: str, chunks: str, precision: str
) -> None:
    X, _ = load(name)
    n, p = X.shape
    grid = {"tall": (n, p), "odd": (97, p), "wide columns": (500, 101)}[chunks]
    lambda_1, k, optima, best, kept = REAL[name]
    path = write_bare(tmp_path / "x.zarr", X, chunks=(min(grid[0], n), min(grid[1], p)))
    if chunks == "odd":
        request.getfixturevalue("small_blocks")
    factor = decompose(path, k, precision=precision)
    near = 1e-9 if precision == "float64" else 1e-5
    expected = reference_of(name)
    features = factor.features
    assert len(features.usable) == kept
    np.testing.assert_array_equal(features.excluded.get("constant", []), expected.constant)
    np.testing.assert_array_equal(features.mean[expected.constant], X[0, expected.constant])
    assert (features.std[expected.constant] == 0).all()
    assert abs(factor.eigenvalues[0] - lambda_1) <= near * lambda_1 + PRINTED
    np.testing.assert_allclose(factor.eigenvalues[0], expected.eigenvalues[0], rtol=near)
    assert_same_scores(every_score(factor, k), expected.every_score(k), near)
    for h, optimum in optima.items():
        chosen = select(path, k, h, solver="exact", factor=factor)
        assert abs(chosen.optimum - optimum) <= near * optimum + PRINTED
        np.testing.assert_allclose(
            chosen.optimum, np.sort(expected.scores(k))[-h:].sum(), rtol=near
        )
        assert chosen.objective == pytest.approx(chosen.optimum, rel=1e-12)
        assert chosen.ranks.min() == 1
        five = set(chosen.selected[chosen.ranks <= 5].tolist())
        # Exact duplicates may stand in for one another.
        scores = expected.every_score(k)
        assert_optimal(sorted(five), scores, 5, near)
        if precision == "float64" and name != "HARS_3000":
            assert five == best


@settings(deadline=None, max_examples=40)
@given(
    shape=st.tuples(st.integers(4, 60), st.integers(1, 9)),
    chunk=st.tuples(st.integers(1, 70), st.integers(1, 10)),
    dtype=st.sampled_from(["f4", "f8", "i2", "u1", "i8", ">f8", "f2"]),
    seed=st.integers(0, 10**6),
    data=st.data(),
)
def test_exact_selection_is_the_reference_for_any_shape_chunks_and_dtype(
    shape: tuple[int, int], chunk: tuple[int, int], dtype: str, seed: int, data: Any
) -> None:
    n, p = shape
    X = np.abs(planted(n, p, 2, seed) * 20)
    X = np.clip(np.rint(X), 0, 250).astype(dtype)
    X[:, seed % p] = 3 if seed % 5 == 0 else X[:, seed % p]
    expected = reference(X)
    u = len(expected.usable)
    rank = int((expected.eigenvalues > 1e-4 * max(expected.eigenvalues, default=0)).sum())
    if u == 0:
        with pytest.raises(RequestError) as caught:
            decompose(X, 1)
        assert caught.value.code == "all_constant"
        return
    k, h = data.draw(st.integers(1, rank)), data.draw(st.integers(1, u))
    chunks = (min(chunk[0], n), min(chunk[1], p))
    chosen = select(da.from_array(X, chunks=chunks), k, h, solver="exact")
    near = 1e-5 if chosen.factor.precision == "float32" else 1e-10
    gap = expected.eigenvalues[k - 1] - (expected.eigenvalues[k] if k < u and k < n else 0)
    if gap > 1e-3:
        scores = expected.every_score(k)
        assert_same_scores(every_score(chosen.factor, k), scores, near / gap)
        assert_optimal(chosen.selected, scores, h, near / gap)
    kept = min(2 * k + 1, u, n)
    np.testing.assert_allclose(
        chosen.factor.eigenvalues[:kept], expected.eigenvalues[:kept], rtol=near, atol=near * p
    )
    np.testing.assert_allclose(chosen.factor.features.mean, expected.mean, rtol=1e-6, atol=1e-6)


def unlucky(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """All that the probe visits is constant; the rest varies."""
    whole = values.astype(np.float32)
    for start in probe_starts(len(whole), 1):
        whole[start : start + 64] = 0
    return whole


def spoilt(X: npt.NDArray[Any], places: Any, value: float) -> npt.NDArray[Any]:
    X = X.copy()
    X[places] = value
    return X


BASE = planted(4000, 24, 3, seed=5)
HARD = {
    "far mean": (BASE + 1e6).astype(np.float32),
    "scales": (BASE * 10.0 ** np.linspace(-20, 19, 24)).astype(np.float32),
    "scales and means": ((BASE + 50) * 10.0 ** np.linspace(-20, 15, 24)).astype(np.float32),
    "sorted": np.sort(BASE * 1000, axis=0).astype(np.float32),
    "unlucky probe, far": unlucky((BASE + 30) * 10.0 ** np.linspace(-8, 8, 24)),
    "unlucky probe, small": unlucky(BASE * 1e-16),
    # Each run of rows far from the others, little spread within it.
    "drift": (BASE + np.arange(4000)[:, None] // 500 * 40).astype(np.float32),
    "outlier": spoilt(BASE.astype("f4"), 1777, 1e3),
    "outlier in the probe": spoilt(
        BASE.astype("f4"), np.s_[probe_starts(4000, 1)[0] + 3, ::2], 1e5
    ),
    "integers": np.rint(BASE * 1e7 + 2e9).astype(np.int64),
}
# Tolerance of scores (absolute), standard deviations (relative), means (in standard deviations)
# and eigenvalues (of the largest). Largest errors seen: 6.2e-7 with float32 products, 5.0e-13 with
# float64; numpy 2.4 and 2.5, x86-64.
FLOAT32 = 3e-6
FLOAT64 = 5e-12


@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("precision", ["auto", "float64"])
@pytest.mark.usefixtures("small_blocks")
def test_hard_numbers(kind: str, precision: str) -> None:
    X = HARD[kind]
    factor = decompose(da.from_array(X, chunks=(100, 24)), 3, precision=precision)
    expected = reference(X)
    near = FLOAT32 if factor.precision == "float32" else FLOAT64
    np.testing.assert_array_equal(factor.features.usable, expected.usable)
    np.testing.assert_allclose(factor.features.std, expected.std, rtol=near)
    off = np.abs(factor.features.mean - expected.mean) / expected.std
    assert off.max() <= near
    top_seven = expected.eigenvalues[:7]
    np.testing.assert_allclose(factor.eigenvalues, top_seven, atol=near * top_seven[0])
    assert_same_scores(every_score(factor, 3), expected.every_score(3), near)


def exact(X: npt.NDArray[Any], k: int = 3, h: int = 8, **options: Any) -> list[int]:
    return [int(i) for i in select(X, k, h, solver="exact", **options).selected]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("solver", ["exact", "admm"])
def test_selection_does_not_depend_on_the_order_of_features(dtype: Any, solver: str) -> None:
    X = planted(500, 24, dtype=dtype)
    order = np.random.default_rng(1).permutation(24)
    first = select(X, 3, 8, solver=solver).selected
    then = select(X[:, order], 3, 8, solver=solver).selected
    assert sorted(order[then].tolist()) == first.tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_copies_of_rows_powers_of_two_and_exact_shifts_change_nothing(dtype: Any) -> None:
    rng = np.random.default_rng(2)
    X = np.rint(planted(500, 24) * 100).astype(dtype)
    first = exact(X)
    assert first == top(reference(X).every_score(3), 8)
    scaled = X * 2.0 ** rng.integers(-60, 60, 24).astype(dtype)
    assert exact(scaled.astype(dtype)) == first
    shifted = X + rng.integers(-(2**20), 2**20, 24).astype(dtype)
    assert (shifted.astype(np.float64) - X >= -(2**20)).all()
    assert exact(shifted) == first
    copies = np.tile(X, (50, 1))
    often = decompose(copies, 3)
    assert exact(copies, factor=often) == first
    np.testing.assert_allclose(often.eigenvalues, decompose(X, 3).eigenvalues, rtol=1e-5)


@pytest.mark.parametrize(("method", "dtype"), [("gram", "f4"), ("gram", "f8"), ("tsqr", "f8")])
@pytest.mark.usefixtures("small_blocks")
def test_bit_equal_for_threads_and_repeated_runs(tmp_path: Path, dtype: Any, method: str) -> None:
    path = write_bare(tmp_path / "x.zarr", planted(1000, 40, dtype=dtype), chunks=(50, 13))
    first, *others = (decompose(path, 3, threads=t, method=method) for t in (1, 2, 4, 4))
    assert all(same_bits(first, other) for other in others)


GOOD = planted(50, 8)
GAPS = spoilt(spoilt(GOOD, ([3, 7], 1), np.nan), (9, 5), -np.inf)
LOW_RANK = GOOD[:, :2] @ np.random.default_rng(0).normal(size=(2, 8))


@pytest.mark.parametrize(
    ("X", "k", "code", "message"),
    [
        (GAPS, 2, "not_finite", "3 values in 2 of 8 features.*feature 1: 2, feature 5: 1"),
        (GAPS.astype("f4"), 2, "not_finite", "3 values in 2 of 8 features"),
        (np.tile(GOOD[0], (50, 1)), 2, "all_constant", "None of 8 .* left: 8 constant"),
        (GOOD[:1], 2, "too_few_samples", "1 sample:"),
        (GOOD[:0], 2, "too_few_samples", "0 samples:"),
        (GOOD, 0, "bad_k", "k is 0"),
        (GOOD, 9, "bad_k", "number of features is 8"),
        (spoilt(GOOD, np.s_[:, :6], 1.0), 3, "bad_k", "number of usable features is 2"),
        (LOW_RANK, 3, "bad_k", "the rank, is 2"),
        (LOW_RANK.astype("f4"), 3, "bad_k", "the rank, is 2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refused(X: npt.NDArray[Any], k: int, code: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        decompose(X, k)
    assert caught.value.code == code
    assert caught.value.exit_code == 2
    assert caught.value.remedy


def test_k_within_the_rank_is_answered() -> None:
    rng = np.random.default_rng(0)
    X = (30 * rng.normal(size=(1000, 1)) + rng.normal(size=(1000, 300))).astype(np.float32)
    assert np.linalg.matrix_rank(X - X.mean(axis=0)) == 300
    assert decompose(X, 5).rank >= 5
    two = decompose(np.array([[1.0, 2, 3], [2, 2, 9]]), 1)  # samples are enough
    np.testing.assert_allclose(every_score(two, 1)[[0, 2]], 1.0, rtol=1e-12)
    assert two.features.excluded["constant"].tolist() == [1]


def test_components_are_orthonormal_and_oriented() -> None:
    X = planted(300, 12)
    factor = decompose(X, 3)
    P = factor.components
    assert P.shape == (12, 7)  # 2 k + 1 of them
    assert decompose(X, 9).components.shape == (12, 12)
    np.testing.assert_allclose(P.T @ P, np.eye(7), atol=1e-12)
    largest = np.abs(P).argmax(axis=0)
    assert (P[largest, np.arange(7)] > 0).all()
    assert (factor.residuals < 1e-12).all()
    assert (np.diff(factor.singular_values) <= 0).all()

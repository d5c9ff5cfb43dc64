"""The tall-skinny QR against whole-array NumPy, and against Gram where that lacks digits."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from helpers import planted
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import load
from reference import reference, top

from kmufs_stream.errors import RequestError
from kmufs_stream.factors.methods.gram import correlation_matrix, leading_eigenpairs
from kmufs_stream.factors.methods.leading import Leading
from kmufs_stream.factors.methods.screening import standardise
from kmufs_stream.factors.methods.tsqr import leading_of_triangle
from kmufs_stream.solvers.scores import feature_scores
from kmufs_stream.streaming.kernels.gram import Gram
from kmufs_stream.streaming.kernels.scaling import Scaling
from kmufs_stream.streaming.kernels.tsqr import TSQR, TSQRState
from kmufs_stream.system import blas

EPS = np.finfo(np.float64).eps
N, P = 120, 7
X = planted(N, P) * [1, 10, 0.1, 1e5, 3, 1, 2] + [0, 5, 0, -1e6, 1, 0, 9]


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread() -> Iterator[None]:
    """At these sizes threads of BLAS only wait for each other."""
    with blas.one_thread():
        yield


named = partial(standardise, feature_name="feature {}".format)


def folded(kernel: TSQR, x: npt.NDArray[Any], edges: list[int]) -> TSQRState:
    state = kernel.init()
    for a, b in pairwise(edges):
        if b > a:
            state = kernel.update(state, x[a:b], a)
    return state


def whole(x: npt.NDArray[Any], k: int, parts: int = 3, blocks: int = 2) -> tuple[Leading, Scaling]:
    """The factor of x folded in equal parts of equal blocks."""
    scaling = Scaling.from_probe(x[:: max(len(x) // 64, 1)], "float64")
    kernel = TSQR(scaling)
    state = kernel.init()
    cuts = np.linspace(0, len(x), parts + 1).astype(int)
    for a, b in pairwise(cuts):
        edges = np.linspace(a, b, blocks + 1).astype(int).tolist()
        state = state + folded(kernel, x, edges)
    return leading_of_triangle(state, scaling, k, named), scaling


@settings(deadline=None, max_examples=60)
@given(
    outer=st.lists(st.integers(0, N), max_size=5),
    inner=st.lists(st.integers(0, N), max_size=8),
    rows=st.integers(1, N),
)
def test_triangle_is_that_of_the_rows_however_they_are_cut(
    outer: list[int], inner: list[int], rows: int
) -> None:
    x = X[:rows]
    scaling = Scaling.from_probe(X[:64], "float64")
    kernel = TSQR(scaling)
    state = kernel.init()
    parts = sorted({0, rows, *(i for i in outer if i < rows)})
    for a, b in pairwise(parts):
        edges = sorted({a, b, *(i for i in inner if a < i < b)})
        state = state + folded(kernel, x, edges)
    bordered = np.column_stack([np.ones(rows), (x - scaling.shift) / scaling.scale])
    r = state.triangle
    assert r.shape == (min(rows, P + 1), P + 1)
    assert not np.tril(r, -1).any()
    size = np.linalg.norm(bordered, axis=0)
    assert (np.abs(r.T @ r - bordered.T @ bordered) <= 100 * EPS * np.outer(size, size)).all()
    assert state.moments.count == rows


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.uint8])
@pytest.mark.parametrize("shape", [(400, 20), (21, 20), (12, 20), (4, 5), (50, 1)])
@pytest.mark.parametrize("parts", [1, 4])
def test_factor_against_numpy(dtype: Any, shape: tuple[int, int], parts: int) -> None:
    n, p = shape
    x = np.round(planted(n, p, seed=n) * 10 + 100).astype(dtype)
    expected = reference(x)
    u = len(expected.usable)
    found, _ = whole(x, u, parts)
    rank = min(n - 1, u)
    s = np.zeros(u)
    s[:rank] = expected.singular_values[:rank]
    np.testing.assert_array_equal(found.features.usable, expected.usable)
    np.testing.assert_allclose(found.singular_values, s, rtol=0, atol=100 * EPS * s[0])
    np.testing.assert_allclose(found.features.mean, expected.mean, rtol=1e-13)
    np.testing.assert_allclose(found.features.std, expected.std, rtol=1e-12, atol=1e-12)
    identity = found.components.T @ found.components
    np.testing.assert_allclose(identity, np.eye(u), atol=1e-13)
    rebuilt = (found.components * found.singular_values**2) @ found.components.T
    right = expected.components[:, :rank] * s[:rank]
    np.testing.assert_allclose(rebuilt, right @ right.T, atol=1e-11 * s[0] ** 2)
    assert found.residuals.max() <= 100 * EPS * s[0] ** 2 / n


def test_small_singular_value_survives_where_gram_loses_it() -> None:
    rng = np.random.default_rng(3)
    x = planted(3000, 12, dtype=np.float64)
    x = np.column_stack([x, x[:, 4] + 1e-9 * rng.standard_normal(3000)])
    s = reference(x).singular_values
    found, scaling = whole(x, 13)
    assert s[-1] < 1e-8 * s[0]
    assert np.abs(found.singular_values - s).max() <= 20 * EPS * s[0]
    kernel = Gram(scaling)
    _, matrix = correlation_matrix(kernel.update(kernel.init(), x, 0), scaling, named)
    values, _, _ = leading_eigenpairs(matrix, 13)
    lost = np.sqrt(np.maximum(values, 0) * len(x))[-1]
    assert abs(lost - s[-1]) > 0.1 * s[-1] > 1000 * abs(found.singular_values[-1] - s[-1])


def test_a_mean_far_beyond_the_spread() -> None:
    x = planted(500, 8)
    moved = x + 2.0**30
    x = moved - 2.0**30  # as the shifted values are stored
    found, _ = whole(moved, 8)
    expected = reference(x).singular_values
    np.testing.assert_allclose(found.singular_values, expected, atol=1e-12 * expected[0])


def test_constant_features_are_left_out() -> None:
    x = planted(200, 9)
    x[:, [2, 7]] = [0.1, -3e7]
    found, _ = whole(x, 7)
    assert found.features.usable.tolist() == [0, 1, 3, 4, 5, 6, 8]
    assert found.features.excluded["constant"].tolist() == [2, 7]
    assert found.components.shape == (7, 7)
    np.testing.assert_allclose(
        found.singular_values, reference(x).singular_values, atol=1e-12 * 200
    )


def test_values_that_are_not_finite_are_counted_and_named() -> None:
    x = planted(90, 5)
    x[10, 1] = np.nan
    x[80, [1, 3]] = np.inf
    kernel = TSQR(Scaling.from_probe(x, "float64"))
    states = [folded(kernel, x, [a, a + 15, a + 30]) for a in (0, 30, 60)]
    state = states[0] + states[1] + states[2]
    assert state.moments.missing.tolist() == [0, 1, 0, 0, 0]
    assert state.moments.infinite.tolist() == [0, 1, 0, 1, 0]
    assert state.moments.count == 90
    with pytest.raises(RequestError) as raised:
        leading_of_triangle(state, kernel.scaling, 3, named)
    assert raised.value.code == "not_finite"
    assert "feature 1: 2" in raised.value.message


@pytest.mark.parametrize("rows", [0, 1])
def test_too_few_samples(rows: int) -> None:
    kernel = TSQR(Scaling.from_probe(X, "float64"))
    state = kernel.update(kernel.init(), X[:rows], 0) if rows else kernel.init()
    with pytest.raises(RequestError) as raised:
        leading_of_triangle(state, kernel.scaling, 3, named)
    assert raised.value.code == "too_few_samples"


def test_merge_changes_neither_argument_and_repeats_bit_for_bit() -> None:
    kernel = TSQR(Scaling.from_probe(X, "float64"))
    a, b = folded(kernel, X, [0, 5, 50]), folded(kernel, X, [50, 53])
    before = copy.deepcopy((a, b))
    merged = a + b
    assert operator.add(*pickle.loads(pickle.dumps(before))).triangle.tobytes() == (
        merged.triangle.tobytes()
    )
    for state, old in zip((a, b), before, strict=True):
        assert state.triangle.tobytes() == old.triangle.tobytes()
        assert state.moments.total.tobytes() == old.moments.total.tobytes()
    for same in (a + kernel.init(), kernel.init() + a):
        np.testing.assert_allclose(same.triangle, a.triangle, rtol=1e-13, atol=1e-12)


def test_float32_scalings_are_refused() -> None:
    with pytest.raises(ValueError, match="float64"):
        TSQR(Scaling.from_probe(X, "float32"))


@pytest.mark.parametrize(
    ("data", "k"),
    [("HARS_3000", 6), ("MicroMass_mixed360", 10), ("MNIST_first3468", 10), ("DNA_statlog", 3)],
)
def test_same_choice_as_gram_on_real_data(data: str, k: int) -> None:
    x, _ = load(data)
    found, scaling = whole(x, 2 * k + 1, parts=2, blocks=1)
    kernel = Gram(scaling)
    features, matrix = correlation_matrix(kernel.update(kernel.init(), x, 0), scaling, named)
    values, components, _ = leading_eigenpairs(matrix, 2 * k + 1)
    expected = feature_scores(components, values, k)
    scores = feature_scores(found.components, found.singular_values**2 / len(x), k)
    np.testing.assert_array_equal(found.features.usable, features.usable)
    assert np.abs(scores - expected).max() < 1e-10
    for h in (50, 100):
        assert top(scores.round(10), h) == top(expected.round(10), h)

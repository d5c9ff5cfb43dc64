"""Moments and Gram matrix against whole-array NumPy."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from helpers import planted
from hypothesis import given, settings
from hypothesis import strategies as st

from kmufs_stream.streaming.kernels.gram import Gram, GramState
from kmufs_stream.streaming.kernels.scaling import Precision, Scaling

N, P = 200, 6
X = planted(N, P) * [1, 10, 0.1, 1e5, 3, 1] + [0, 5, 0, -1e6, 1, 0]


def folded(kernel: Gram, x: Any, cuts: list[int], start: int = 0) -> GramState:
    state = kernel.init()
    edges = [0, *sorted(cuts), len(x)]
    for a, b in itertools.pairwise(edges):
        if b > a:
            state = kernel.update(state, x[a:b], start + a)
    return state


def check(state: GramState, scaling: Scaling, x: Any, tolerance: float) -> None:
    b = (x.astype(np.float64) - scaling.shift) / scaling.scale
    assert state.moments.count == len(x)
    assert state.moments.held
    size = np.sqrt((b**2).sum(axis=0))
    error = np.abs(state.scatter - b.T @ b) / np.outer(size, size)
    assert error.max() <= tolerance
    assert (np.abs(state.moments.total - b.sum(axis=0)) <= tolerance * len(x) * 10).all()
    assert state.scatter.dtype == np.float64


@pytest.mark.parametrize(
    ("precision", "dtype", "tolerance"),
    [("float64", np.float64, 1e-14), ("float32", np.float32, 1e-6)],
)
@settings(deadline=None, max_examples=40)
@given(
    cuts=st.lists(st.integers(0, N), max_size=6),
    inner=st.lists(st.integers(0, N), max_size=6),
)
def test_any_cutting_into_blocks_and_states(
    precision: Precision, dtype: Any, tolerance: float, cuts: list[int], inner: list[int]
) -> None:
    x = X.astype(dtype)
    scaling = Scaling.from_probe(x[:64], precision)
    kernel = Gram(scaling)
    edges = [0, *sorted(cuts), N]
    merged = kernel.init()
    for a, b in itertools.pairwise(edges):
        part = folded(kernel, x[a:b], [i - a for i in inner if a < i < b], a)
        merged = merged + part
    check(merged, scaling, x, tolerance)


def test_merging_is_associative_to_rounding_and_init_is_neutral() -> None:
    scaling = Scaling.from_probe(X[:64], "float64")
    kernel = Gram(scaling)
    a, b, c = (folded(kernel, X[i : i + 50], [20], i) for i in (0, 50, 100))
    left = a + b + c
    right = a + (b + c)
    size = np.sqrt(np.diag(left.scatter))
    assert (np.abs(left.scatter - right.scatter) / np.outer(size, size)).max() <= 4e-16
    np.testing.assert_allclose(left.moments.total, right.moments.total, rtol=1e-13)
    check(left, scaling, X[:150], 1e-14)
    for same in (a + kernel.init(), kernel.init() + a):
        assert same.scatter.tobytes() == a.scatter.tobytes()
        assert same.moments.total.tobytes() == a.moments.total.tobytes()
        assert same.moments.count == a.moments.count


def test_merging_leaves_its_arguments_alone() -> None:
    kernel = Gram(Scaling.from_probe(X[:64], "float64"))
    a, b = folded(kernel, X[:80], []), folded(kernel, X[80:], [])
    before = copy.deepcopy((a, b))
    merged = a + b
    merged.scatter += 1
    merged.moments.total += 1
    for now, then in zip((a, b), before, strict=True):
        np.testing.assert_array_equal(now.scatter, then.scatter)
        np.testing.assert_array_equal(now.moments.total, then.moments.total)


def test_update_leaves_the_block_alone() -> None:
    x = X.copy()
    x.flags.writeable = False
    kernel = Gram(Scaling.from_probe(x, "float64"))
    kernel.update(kernel.init(), x, 0)
    np.testing.assert_array_equal(x, X)


def test_kernel_and_state_can_be_pickled() -> None:
    kernel = Gram(Scaling.from_probe(X[:64], "float64"))
    state = folded(kernel, X[:80], [])
    there, then = pickle.loads(pickle.dumps((kernel, state)))
    a = there.update(then, X[80:], 80)
    b = kernel.update(state, X[80:], 80)
    assert a.scatter.tobytes() == b.scatter.tobytes()


def test_values_that_are_not_finite_are_counted_after_the_first_too() -> None:
    x = X.copy()
    x[10, 2] = np.nan
    x[150:160, 2] = np.inf
    x[199, 5] = -np.inf
    kernel = Gram(Scaling.from_probe(X[:64], "float64"))
    state = folded(kernel, x[:100], [30, 60]) + folded(kernel, x[100:], [155])
    assert state.moments.missing.tolist() == [0, 0, 1, 0, 0, 0]
    assert state.moments.infinite.tolist() == [0, 0, 10, 0, 0, 1]
    assert state.moments.count == N
    assert not state.moments.valid


def test_gaps_add_up_over_blocks_and_states() -> None:
    x = X.copy()
    x[::7, 2] = x[5:150:3, 4] = np.nan
    missing = np.isnan(x)
    scaling = Scaling.from_probe(X[:64], "float64")
    kernel = Gram(scaling, note_gaps=True)
    state = folded(kernel, x[:100], [1, 4, 50]) + folded(kernel, x[100:], [30, 160])
    assert state.gaps is not None
    b = np.where(missing, 0, (X - scaling.shift) / scaling.scale)
    np.testing.assert_allclose(state.gaps.values, missing.T @ b, atol=1e-9)
    np.testing.assert_array_equal(state.gaps.counts, missing.T.astype(float) @ missing)


@pytest.mark.parametrize("cuts", [[], [40], [60], [64, 90]])
def test_ranges_of_features_with_one_value_in_the_probe(cuts: list[int]) -> None:
    x = X.copy()
    x[:90, [1, 4]] = [7, -3]
    x[90:, 1] = 7
    scaling = Scaling.from_probe(x[:64], "float64")
    kernel = Gram(scaling)
    assert scaling.unsure.tolist() == [1, 4]
    for state in (
        folded(kernel, x, cuts),
        folded(kernel, x[:95], cuts) + folded(kernel, x[95:], [], 95),
    ):
        assert state.moments.low.tolist() == [7, min(-3, x[90:, 4].min())]
        assert state.moments.high.tolist() == [7, x[90:, 4].max()]


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
    assert not (folded(kernel, x * 0, []) + state).moments.held

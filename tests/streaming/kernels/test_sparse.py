"""Kernels of sparse data against dense float64."""

from __future__ import annotations

from functools import partial
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from cluster_rows import Whole
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import assert_same_scores, reference

from kmufs_stream.errors import RequestError
from kmufs_stream.factors.computing import check_spread
from kmufs_stream.factors.methods.gram import leading_of_gram
from kmufs_stream.factors.methods.screening import Standardised, standardise
from kmufs_stream.streaming.kernels import sparse
from kmufs_stream.streaming.kernels.kernel import Kernel
from kmufs_stream.streaming.kernels.sparse import (
    SparseGram,
    ranges,
    sparse_scaling,
)
from kmufs_stream.streaming.passes import run_pass

Array = npt.NDArray[Any]


def table(n: int, p: int, density: float, seed: int = 0) -> Any:
    """CSR values of many scales, the last column empty and the first constant."""
    made = sp.random_array((n, p), density=density, format="lil", rng=np.random.default_rng(seed))
    made[:, -1] = 0
    made[:, 0] = 3
    scales = 10.0 ** np.linspace(-3, 3, p)
    return sp.csr_array(made.tocsr() * scales)


def states(kernel: Kernel[Any], X: Any) -> Any:
    """The kernel's state after partitions of uneven blocks."""
    n = X.shape[0]
    cuts = [range(a, min(a + n // 4 + 1, n), 37) for a in range(0, n, n // 4 + 1)]
    return run_pass(kernel, Whole(X), cuts, threads=2)


@pytest.mark.parametrize("density", [0.001, 0.3, 1.0])
@pytest.mark.parametrize("pairs", [sparse.PAIRS, 200])
def test_gram_is_that_of_dense_data(
    density: float, pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse, "PAIRS", pairs)
    monkeypatch.setattr(sparse, "SLAB_BYTES", (2**14, 2**14))
    X = table(500, 80, density)
    scaling = sparse_scaling(X)
    state = states(SparseGram(scaling), X)
    dense = X.toarray() / scaling.scale
    np.testing.assert_allclose(state.scatter, dense.T @ dense, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(state.moments.total, dense.sum(axis=0), rtol=1e-12, atol=1e-14)
    unsure = X.toarray()[:, scaling.unsure]
    assert {0, 79} <= set(scaling.unsure.tolist())
    np.testing.assert_array_equal(state.moments.low, unsure.min(axis=0))
    np.testing.assert_array_equal(state.moments.high, unsure.max(axis=0))
    assert state.moments.count == 500


@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float64, np.int16, np.uint8, np.int64, np.bool_]),
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=8),
        elements=st.integers(0, 1),
        fill=st.just(0),
    ),
    st.integers(-100, 100),
)
@settings(max_examples=60, deadline=None)
def test_ranges_count_the_zeros_that_are_not_stored(X: Array, factor: int) -> None:
    X = X if X.dtype == np.bool_ or X.dtype == np.uint8 else X * X.dtype.type(factor)
    for features in (np.arange(X.shape[1]), np.arange(0, X.shape[1], 2)):
        low, high = ranges(sp.csr_array(X), features)
        np.testing.assert_array_equal(low, X[:, features].min(axis=0))
        np.testing.assert_array_equal(high, X[:, features].max(axis=0))
        assert low.dtype == high.dtype == X.dtype


@pytest.mark.parametrize("unit", [1e-200, 1.0, 1e150])
def test_values_of_any_scale_do_not_overflow(unit: float) -> None:
    X = table(300, 20, 0.3) * unit
    scaling = sparse_scaling(X)
    state = states(SparseGram(scaling), X)
    leading = leading_of_gram(state, scaling, 3, partial(standardise, feature_name=str))
    expected = reference(X.toarray() / unit)
    found = np.full(20, np.nan)
    found[leading.features.usable] = leading.components[:, :3] ** 2 @ leading.eigenvalues[:3]
    assert_same_scores(found, expected.every_score(3), 1e-11)


def test_means_that_cost_too_much_are_refused() -> None:
    usable = np.array([0, 1])
    none = np.zeros(0, np.int64)
    mean, std, missing = np.array([1.0, -1e9]), np.ones(2), np.zeros(2, np.int64)
    features = Standardised(10, mean, std, missing, usable, {}, none)
    with pytest.raises(RequestError, match="The mean of gene 1 is 1e"):
        check_spread(features, lambda i: f"gene {i}")

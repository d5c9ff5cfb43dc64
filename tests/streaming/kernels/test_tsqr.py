"""The tall-skinny QR against whole-array NumPy, and against Gram where that lacks digits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from helpers import planted
from reference import reference

from kmufs_stream.factors.methods.gram import correlation_matrix, leading_eigenpairs
from kmufs_stream.factors.methods.leading import Leading
from kmufs_stream.factors.methods.screening import standardise
from kmufs_stream.factors.methods.tsqr import leading_of_triangle
from kmufs_stream.streaming.kernels.gram import Gram
from kmufs_stream.streaming.kernels.scaling import Scaling
from kmufs_stream.streaming.kernels.tsqr import TSQR
from kmufs_stream.system import blas

EPS = np.finfo(np.float64).eps


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread() -> Iterator[None]:
    """At these sizes threads of BLAS only wait for each other."""
    with blas.one_thread():
        yield


named = partial(standardise, feature_name="feature {}".format)


def whole(x: npt.NDArray[Any], k: int, parts: int = 3) -> tuple[Leading, Scaling]:
    """The factor of x folded in equal parts of two blocks."""
    scaling = Scaling.from_probe(x[:: max(len(x) // 64, 1)], "float64")
    kernel = TSQR(scaling)
    state = kernel.init()
    for part in np.array_split(np.arange(len(x)), parts):
        folded = kernel.init()
        for rows in np.array_split(part, 2):
            folded = kernel.update(folded, x[rows], 0) if len(rows) else folded
        state = state + folded
    return leading_of_triangle(state, scaling, k, named), scaling


@pytest.mark.parametrize(
    ("dtype", "n", "p"),
    [("f4", 400, 20), ("f8", 21, 20), ("i2", 12, 20), ("u1", 4, 5), ("f8", 50, 1)],
)
@pytest.mark.parametrize("parts", [1, 4])
def test_factor_against_numpy(dtype: str, n: int, p: int, parts: int) -> None:
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


def test_float32_scalings_are_refused() -> None:
    with pytest.raises(ValueError, match="float64"):
        TSQR(Scaling.from_probe(planted(9, 3), "float32"))

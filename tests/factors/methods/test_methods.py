"""Every method, and one that is added."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
import pytest
from helpers import every_score, planted
from reference import reference

from kmufs_stream import Factor, LanczosOptions, RequestError, decompose
from kmufs_stream.factors.methods import METHODS

EPS = np.finfo(np.float64).eps
pytestmark = pytest.mark.usefixtures("small_blocks")


def factor_of(X: npt.NDArray[Any], method: str, k: int = 3, rows: int = 50) -> Factor:
    """From partitions of so many rows."""
    lazy = da.from_array(X, chunks=(rows, X.shape[1]))
    return decompose(lazy, k, method=method, lanczos=LanczosOptions(tol=1e-10, max_passes=30))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_the_same(method: str) -> None:
    X = planted(300, 9) * 10.0 ** np.arange(-4, 5) + np.arange(9) * 1e3
    X[:, 4] = 7.25
    keep = [0, 1, 2, 3, 5, 6, 7, 8]
    factor = factor_of(X, method)
    assert factor.method == method
    features, expected = factor.features, reference(X)
    assert features.usable.tolist() == keep
    assert {reason: at.tolist() for reason, at in features.excluded.items()} == {"constant": [4]}
    assert features.samples == 300
    assert (features.mean[4], features.std[4]) == (7.25, 0)
    np.testing.assert_allclose(features.mean, expected.mean, rtol=1e-13)
    np.testing.assert_allclose(features.std, expected.std, rtol=1e-12)
    np.testing.assert_allclose(every_score(factor, 3), expected.every_score(3), atol=1e-8)
    if factor.correlation is not None:
        np.testing.assert_allclose(factor.correlation, np.corrcoef(X[:, keep].T), atol=1e-12)
        assert (factor.correlation.diagonal() == 1).all()
        np.testing.assert_allclose(factor.correlation, factor.correlation.T, rtol=1e-15)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_keeps_an_almost_constant_feature(method: str) -> None:
    X = planted(1000, 5)
    X[:, 1] = 5
    X[777, 1] = np.nextafter(5, 6)
    factor = factor_of(X, method)
    assert factor.features.usable.tolist() == list(range(5))
    assert factor.features.excluded == {}
    assert np.isfinite(factor.components).all()
    std = np.spacing(5.0) * np.sqrt(0.001 * 0.999)
    np.testing.assert_allclose(factor.features.std[1], std, rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_refuses_bad_values_and_too_few(method: str) -> None:
    X = planted(200, 12)
    X[10, 4] = np.nan
    X[180, [4, 9]] = np.inf
    with pytest.raises(RequestError, match="feature 4: 2, feature 9: 1") as caught:
        factor_of(X, method)
    assert caught.value.code == "not_finite"
    for rows in (0, 1):
        with pytest.raises(RequestError, match=f"{rows} sample") as caught:
            factor_of(X[:rows], method)
        assert caught.value.code == "too_few_samples"


@pytest.mark.parametrize(
    ("dtype", "n", "p"),
    [("f4", 400, 20), ("f8", 21, 20), ("i2", 12, 20), ("u1", 4, 5), ("f8", 50, 1)],
)
@pytest.mark.parametrize("rows", [400, 5])
def test_tsqr_against_numpy(dtype: str, n: int, p: int, rows: int) -> None:
    x = np.round(planted(n, p, seed=n) * 10 + 100).astype(dtype)
    expected = reference(x)
    u, rank = len(expected.usable), min(n - 1, len(expected.usable))
    found = factor_of(x, "tsqr", rank, rows)
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


def test_tsqr_keeps_a_small_singular_value_that_gram_loses() -> None:
    x = planted(3000, 12)
    faint = 1e-9 * np.random.default_rng(3).standard_normal(3000)
    x = np.column_stack([x, x[:, 4] + faint])
    s = reference(x).singular_values
    assert s[-1] < 1e-8 * s[0]
    found, lost = (factor_of(x, m, 6, 1000).singular_values for m in ("tsqr", "gram"))
    assert np.abs(found - s).max() <= 20 * EPS * s[0]
    assert abs(lost[-1] - s[-1]) > 0.1 * s[-1] > 1000 * abs(found[-1] - s[-1])


def test_tsqr_of_means_far_beyond_the_spread() -> None:
    moved = planted(500, 8) + 2.0**30
    expected = reference(moved - 2.0**30).singular_values  # as the shifted values are stored
    found = factor_of(moved, "tsqr", 4).singular_values
    np.testing.assert_allclose(found, expected, atol=1e-12 * expected[0])

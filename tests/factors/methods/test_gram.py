"""From a merged Gram state to standardised features, correlations and eigenpairs."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from helpers import planted
from reference import reference

from kmufs_stream.factors.methods.gram import correlation_matrix, leading_eigenpairs
from kmufs_stream.factors.methods.screening import standardise
from kmufs_stream.streaming.kernels.gram import Gram
from kmufs_stream.streaming.kernels.scaling import Scaling

NAMED = partial(standardise, feature_name=str)


def state_of(X: Any) -> tuple[Any, Scaling]:
    scaling = Scaling.from_probe(X[:64], "float64")
    kernel = Gram(scaling)
    return kernel.update(kernel.init(), X, 0), scaling


def test_correlation_matrix() -> None:
    X = planted(300, 9) * 10.0 ** np.arange(-4, 5) + np.arange(9) * 1e3
    X[:, 4] = 7.25
    state, scaling = state_of(X)
    features, correlation = correlation_matrix(state, scaling, NAMED)
    keep = [0, 1, 2, 3, 5, 6, 7, 8]
    assert features.usable.tolist() == keep
    assert features.excluded["constant"].tolist() == [4]
    assert features.samples == 300
    expected = reference(X)
    np.testing.assert_allclose(features.mean, expected.mean, rtol=1e-13)
    np.testing.assert_allclose(features.std, expected.std, rtol=1e-12)
    assert features.mean[4] == 7.25
    assert features.std[4] == 0
    np.testing.assert_allclose(correlation, np.corrcoef(X[:, keep].T), atol=1e-12)
    assert (correlation.diagonal() == 1).all()
    np.testing.assert_allclose(correlation, correlation.T, rtol=1e-15)


def test_no_feature_is_excluded_without_reason() -> None:
    state, scaling = state_of(planted(100, 5))
    assert correlation_matrix(state, scaling, NAMED)[0].excluded == {}


def test_almost_constant_feature_is_usable() -> None:
    X = planted(1000, 3)
    X[:, 1] = 5
    X[777, 1] = np.nextafter(5, 6)
    state, scaling = state_of(X)
    features, correlation = correlation_matrix(state, scaling, NAMED)
    assert features.usable.tolist() == [0, 1, 2]
    assert np.isfinite(correlation).all()
    np.testing.assert_allclose(features.std[1], np.spacing(5.0) * np.sqrt(0.001 * 0.999), rtol=1e-6)


def test_leading_eigenpairs() -> None:
    rng = np.random.default_rng(0)
    Q, _ = np.linalg.qr(rng.normal(size=(8, 8)))
    values = np.array([9, 5, 3, 1, 0.5, 0.1, 0, -1e-17])
    matrix = (Q * values) @ Q.T
    found, vectors, residuals = leading_eigenpairs(matrix, 3)
    np.testing.assert_allclose(found, [9, 5, 3], rtol=1e-13)
    np.testing.assert_allclose(np.abs(np.sum(vectors * Q[:, :3], axis=0)), 1, rtol=1e-13)
    assert (residuals < 1e-13).all()
    every, _, _ = leading_eigenpairs(matrix, 8)
    assert (every >= 0).all()

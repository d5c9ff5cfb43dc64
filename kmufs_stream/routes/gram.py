"""The leading components from the Gram matrix: one read, one symmetric eigenproblem."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from kmufs_stream.factor import (
    Leading,
    Standardised,
    components_for,
    orient_columns,
    standardise,
)
from kmufs_stream.streaming.kernels import GramState
from kmufs_stream.streaming.scaling import Scaling


def leading_of_gram(
    state: GramState, scaling: Scaling, k: int, feature_name: Callable[[int], str]
) -> Leading:
    """The leading components for k clusters from a merged Gram state, whose scatter is used up.

    Raises RequestError as ``standardise()`` does. O(u^3), three matrices of u^2.
    """
    features, correlation = correlation_matrix(state, scaling, feature_name)
    r = components_for(k, len(features.usable))
    values, components, residuals = leading_eigenpairs(correlation, r)
    singular_values = np.sqrt(features.samples * values)
    return Leading.of_one_read(
        features, components, singular_values, residuals, scaling.precision, correlation
    )


def correlation_matrix(
    state: GramState, scaling: Scaling, feature_name: Callable[[int], str]
) -> tuple[Standardised, NDArray[np.float64]]:
    """The correlation matrix of the usable features; the state's scatter is used up."""
    matrix, moments = state.scatter, state.moments
    count = max(moments.count, 1)
    centre = moments.total / count
    matrix /= count
    for row, c in zip(matrix, centre, strict=True):
        row -= c * centre
    features = standardise(moments, scaling, np.maximum(matrix.diagonal(), 0.0), feature_name)
    if len(features.usable) < len(matrix):
        matrix = matrix[np.ix_(features.usable, features.usable)]
    inverse = 1.0 / np.sqrt(matrix.diagonal())
    matrix *= inverse
    matrix *= inverse[:, None]
    np.fill_diagonal(matrix, 1.0)
    return features, matrix


def leading_eigenpairs(
    matrix: NDArray[np.float64], r: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The r largest eigenvalues, falling, their vectors and residuals. O(u^3)."""

    u = len(matrix)
    values, vectors = scipy.linalg.eigh(matrix, subset_by_index=(u - r, u - 1), check_finite=False)
    values, vectors = values[::-1], np.ascontiguousarray(vectors[:, ::-1])
    vectors = orient_columns(vectors)
    residuals = np.linalg.norm(matrix @ vectors - vectors * values, axis=0)
    return np.maximum(values, 0.0), vectors, residuals

"""The leading components from the Gram matrix: one read, one symmetric eigenproblem."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from kmufs_stream.factor import (
    Leading,
    components_for,
    orient_columns,
)
from kmufs_stream.screening import Standardised, Standardiser
from kmufs_stream.streaming.kernels import Gaps, GramState
from kmufs_stream.streaming.scaling import Scaling


def leading_of_gram(
    state: GramState, scaling: Scaling, k: int, standardise: Standardiser
) -> Leading:
    """The leading components for k clusters from a merged Gram state, whose scatter is used up.

    Raises RequestError as ``standardise()`` does. O(u^3), three matrices of u^2.
    """
    features, correlation = correlation_matrix(state, scaling, standardise)
    r = components_for(k, len(features.usable))
    values, components, residuals = leading_eigenpairs(correlation, r)
    singular_values = np.sqrt(features.samples * values)
    return Leading.of_one_read(
        features, components, singular_values, residuals, scaling.precision, correlation
    )


def correlation_matrix(
    state: GramState, scaling: Scaling, standardise: Standardiser
) -> tuple[Standardised, NDArray[np.float64]]:
    """The correlation matrix of the usable features; the state's scatter is used up."""
    matrix, moments = state.scatter, state.moments
    count = max(moments.count, 1)
    centre = moments.total / count
    if state.gaps is not None:
        centre = _fill_gaps(state, state.gaps)
    matrix /= count
    for row, c in zip(matrix, centre, strict=True):
        row -= c * centre
    features = standardise(moments, scaling, np.maximum(matrix.diagonal(), 0.0))
    if len(features.usable) < len(matrix):
        matrix = matrix[np.ix_(features.usable, features.usable)]
    inverse = 1.0 / np.sqrt(matrix.diagonal())
    matrix *= inverse
    matrix *= inverse[:, None]
    np.fill_diagonal(matrix, 1.0)
    return features, matrix


def _fill_gaps(state: GramState, gaps: Gaps) -> NDArray[np.float64]:
    """Put the mean where values are missing into the scatter; returns the mean.

    (b + V m)^T (b + V m) = b^T b + m V^T b + (m V^T b)^T + m V^T V m, with m diagonal.
    """
    mean = state.moments.total / np.maximum(state.moments.present, 1)
    gaps.values *= mean[:, None]
    gaps.counts *= mean
    for row, values, counts, m in zip(state.scatter, gaps.values, gaps.counts, mean, strict=True):
        row += values
        row += m * counts
    state.scatter += gaps.values.T
    return mean


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

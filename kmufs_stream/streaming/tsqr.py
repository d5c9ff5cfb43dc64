"""The tall-skinny QR: the centred scatter as a triangular factor, its condition not squared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from kmufs_stream.factor import Standardised, orient_columns, standardise
from kmufs_stream.streaming.kernels import Moments
from kmufs_stream.streaming.scaling import Scaling

Float = NDArray[np.float64]


@dataclass
class TSQRState:
    """Moments, and the R of a QR of the rows so far.

    Attributes
    ----------
    moments : counts, sums and ranges.
    triangle : (t, p + 1) float64 upper triangular, t = min(rows, p + 1): R with R^T R = B^T B,
        where a row of B is 1 followed by (x - shift) / scale.
    """

    moments: Moments
    triangle: Float


@dataclass(frozen=True)
class TSQR:
    """Moments and the R of shifted, scaled rows after a column of ones: one QR per block.

    O((rows + p) p^2) per block, so blocks of several times p rows are best; the state takes
    8 (p + 1)^2 bytes, a step as much again and its block in float64. Once a value is not finite
    the QR stops and only the counts go on. Source: Demmel, Grigori, Hoemmen and Langou,
    "Communication-optimal parallel and sequential QR and LU factorizations" (2012).

    Raises ValueError for a scaling whose precision is not float64: digits are what this is for.
    """

    scaling: Scaling

    def __post_init__(self) -> None:
        if self.scaling.precision != "float64":
            raise ValueError(f"TSQR works in float64, not in {self.scaling.precision}")

    def init(self) -> TSQRState:
        p = len(self.scaling.shift)
        return TSQRState(Moments.empty(p), np.zeros((0, p + 1)))

    def update(self, state: TSQRState, values: NDArray[Any], start: int) -> TSQRState:
        block = self.scaling.block(values)
        state.moments.add(block, len(values))
        if block.values is not None and state.moments.valid:
            t, width = state.triangle.shape
            stacked = np.empty((t + len(values), width), order="F")
            stacked[:t] = state.triangle
            stacked[t:, 0] = 1.0
            stacked[t:, 1:] = block.values
            del block
            state.triangle = _triangle(stacked)
        return state

    def merge(self, a: TSQRState, b: TSQRState) -> TSQRState:
        moments = a.moments.merged(b.moments)
        if not moments.valid:
            return TSQRState(moments, np.zeros((0, a.triangle.shape[1])))
        stacked = np.asfortranarray(np.concatenate([a.triangle, b.triangle]))
        return TSQRState(moments, _triangle(stacked))


def _triangle(stacked: Float) -> Float:
    """R of a Fortran-ordered matrix, which is used up; rows of R at most as many as columns."""
    rows, columns = stacked.shape
    if rows == 0:
        return stacked
    (triangle,) = scipy.linalg.qr(stacked, mode="r", overwrite_a=True, check_finite=False)
    return np.ascontiguousarray(triangle[: min(rows, columns)])


@dataclass(frozen=True)
class TriangleFactor:
    """What a merged TSQR state says about the standardised data Z = Q S P^T.

    Attributes
    ----------
    features : what was standardised, and how.
    components : (u, r) float64, P: orthonormal columns, the largest entry of each positive.
    singular_values : (r,) float64, S, falling, to about eps * S_1 absolute.
    residuals : (r,) float64, ||C P_j - lambda_j P_j|| of the correlation matrix C.
    """

    features: Standardised
    components: Float
    singular_values: Float
    residuals: Float


def factor_from_triangle(
    state: TSQRState, scaling: Scaling, r: int, feature_name: Callable[[int], str]
) -> TriangleFactor:
    """The leading r components of the standardised data from a merged state.

    Parameters
    ----------
    state : merged over all rows; not changed.
    scaling : that of the kernel.
    r : how many; no more than the usable features are returned.

    Without its first row and column, R is that of the centred rows; its columns, brought to length
    sqrt(n), have the singular values and right singular vectors of Z. Where there are fewer
    samples than components the rest have singular value 0. Raises RequestError as
    ``standardise()`` does. O(u^3), three matrices of u^2.
    """
    # What the column of ones does not explain of each feature: its scatter about the mean.
    triangle = state.triangle[1:, 1:]
    norms = _column_norms(triangle)
    count = max(state.moments.count, 1)
    variance = (norms / np.sqrt(count)) ** 2
    features = standardise(state.moments, scaling, variance, feature_name)
    usable = features.usable
    scaled = triangle[:, usable] * (np.sqrt(count) / norms[usable])
    u = len(usable)
    r = min(r, u)
    if len(scaled) < u:
        # Rows of zeros let the SVD complete the components beyond the rank.
        scaled = np.concatenate([scaled, np.zeros((u - len(scaled), u))])
    values, rows = _svd(scaled)
    components = orient_columns(np.ascontiguousarray(rows[:r].T))
    values = values[:r]
    # C P = Z^T (Z P) / n, and Z^T Z = scaled^T scaled.
    images = scaled.T @ (scaled @ components) / count
    residuals = np.linalg.norm(images - components * (values**2 / count), axis=0)
    return TriangleFactor(features, components, values, residuals)


def _column_norms(matrix: Float) -> Float:
    """2-norms of the columns that neither overflow nor vanish on the way."""
    peak = np.abs(matrix).max(axis=0, initial=0.0)
    unit = np.where(peak > 0, peak, 1.0)
    norms: Float = np.linalg.norm(matrix / unit, axis=0) * unit
    return norms


def _svd(matrix: Float) -> tuple[Float, Float]:
    """Singular values and right singular vectors as rows; the driver that converges always."""
    try:
        _, values, rows = scipy.linalg.svd(matrix, full_matrices=False, check_finite=False)
    except np.linalg.LinAlgError:
        _, values, rows = scipy.linalg.svd(
            matrix, full_matrices=False, check_finite=False, lapack_driver="gesvd"
        )
    return values, rows

"""The leading components from the tall-skinny QR: one read, one SVD of the triangle."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from kmufs_stream.factors.methods.leading import (
    Leading,
    components_for,
    orient_columns,
    score_tolerance,
)
from kmufs_stream.factors.methods.method import Method, Problem, Reads
from kmufs_stream.factors.methods.screening import Standardiser
from kmufs_stream.streaming.kernels.kernel import Kernel
from kmufs_stream.streaming.kernels.scaling import Scaling
from kmufs_stream.streaming.kernels.sparse import Densified, slab_rows
from kmufs_stream.streaming.kernels.tsqr import TSQR, TSQRState
from kmufs_stream.streaming.planning.sizing import Cost
from kmufs_stream.typing import Float


def _run(problem: Problem, read: Reads, scaling: Scaling) -> Leading:
    state = read(_kernel(scaling, problem.sparse))
    if problem.fills and state.moments.missing.any():
        # The means that replace missing values are only known after this read.
        mean = read.standardise(state.moments, scaling, np.ones(problem.p)).mean
        scaling = scaling.centred(mean)
        state = read(_kernel(scaling, problem.sparse))
    return leading_of_triangle(state, scaling, problem.k, read.standardise)


def _kernel(scaling: Scaling, sparse: bool) -> Kernel[TSQRState]:
    kernel = TSQR(scaling)
    return Densified(kernel) if sparse else kernel


def _cost(problem: Problem, rows: int, itemsize: int) -> Cost:
    p = problem.p
    components = 3 * 8 * p * components_for(problem.k, p)
    square = 8 * (p + 1) ** 2
    rows = min(rows, slab_rows(p)) if problem.sparse else rows
    stacked = 2 * 8 * (rows + p + 1) * (p + 1)
    stacked += 8 * rows * p if problem.sparse else 0
    update, finish = stacked + 4 * square, 8 * square + components
    return Cost(square, update, 0, finish, components, reads=2 if problem.fills else 1)


METHOD = Method(_run, _cost, lambda p: "runs only when asked for", float64=True, centres=True)


def leading_of_triangle(
    state: TSQRState, scaling: Scaling, k: int, standardise: Standardiser
) -> Leading:
    """Compute the leading components for k clusters from a merged state.

    Without its first row and column, R is that of the centred rows; with its columns scaled to
    length sqrt(n) it has the singular values and right singular vectors of Z. Components beyond
    the number of samples have singular value 0.

    Raises RequestError as ``standardise()`` does. O(u^3), three matrices of u^2.
    """
    # What the column of ones does not explain of each feature: its scatter about the mean.
    triangle = state.triangle[1:, 1:]
    norms = _column_norms(triangle)
    count = max(state.moments.count, 1)
    variance = (norms / np.sqrt(count)) ** 2
    features = standardise(state.moments, scaling, variance)
    usable = features.usable
    scaled = triangle[:, usable] * (np.sqrt(count) / norms[usable])
    u = len(usable)
    r = components_for(k, u)
    if len(scaled) < u:
        # Rows of zeros let the SVD complete the components beyond the rank.
        scaled = np.concatenate([scaled, np.zeros((u - len(scaled), u))])
    values, rows = _svd(scaled)
    components = orient_columns(np.ascontiguousarray(rows[:r].T))
    values = values[:r]
    # C P = Z^T (Z P) / n, and Z^T Z = scaled^T scaled.
    images = scaled.T @ (scaled @ components) / count
    return Leading(
        features=features,
        components=components,
        singular_values=values,
        residuals=np.linalg.norm(images - components * (values**2 / count), axis=0),
        score_error=score_tolerance(scaling.precision),
    )


def _column_norms(matrix: Float) -> Float:
    """Return 2-norms of columns, without overflow or underflow of the squares."""
    peak = np.abs(matrix).max(axis=0, initial=0.0)
    unit = np.where(peak > 0, peak, 1.0)
    norms: Float = np.linalg.norm(matrix / unit, axis=0) * unit
    return norms


def _svd(matrix: Float) -> tuple[Float, Float]:
    """Return singular values and right singular vectors, (r, u); falls back to QR iteration."""
    try:
        _, values, rows = scipy.linalg.svd(matrix, full_matrices=False, check_finite=False)
    except np.linalg.LinAlgError:
        _, values, rows = scipy.linalg.svd(
            matrix, full_matrices=False, check_finite=False, lapack_driver="gesvd"
        )
    return values, rows

"""The leading components from the tall-skinny QR: one read, one SVD of the triangle."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from kmufs_stream.factors.methods.leading import Leading, components_for, orient_columns
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
        # A QR cannot take in afterwards what only this read has shown.
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
    """The leading components for k clusters from a merged state.

    Parameters
    ----------
    state : merged over all rows; not changed.
    scaling : that of the kernel.
    k : clusters; ``components_for(k, u)`` components are returned.

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
    residuals = np.linalg.norm(images - components * (values**2 / count), axis=0)
    return Leading.of_one_read(features, components, values, residuals, scaling.precision)


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

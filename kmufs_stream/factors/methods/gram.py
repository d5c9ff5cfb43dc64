"""The leading components from the Gram matrix: one read, one symmetric eigenproblem."""

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
from kmufs_stream.factors.methods.screening import Standardised, Standardiser
from kmufs_stream.streaming.kernels.gram import Gaps, Gram, GramState
from kmufs_stream.streaming.kernels.kernel import Kernel
from kmufs_stream.streaming.kernels.moments import Moments
from kmufs_stream.streaming.kernels.scaling import Scaling
from kmufs_stream.streaming.kernels.sparse import SparseGram, gram_update_bytes
from kmufs_stream.streaming.planning.sizing import Cost
from kmufs_stream.typing import Float

GRAM_FEATURES = 6000  # ``auto`` takes this method up to here


def gram_kernel(scaling: Scaling, *, sparse: bool, fills: bool) -> Kernel[GramState]:
    """Return the kernel for dense or CSR blocks; ``fills``: means may replace missing values."""
    return (SparseGram if sparse else Gram)(scaling, note_gaps=fills)


def _run(problem: Problem, read: Reads, scaling: Scaling) -> Leading:
    state = read(gram_kernel(scaling, sparse=problem.sparse, fills=problem.fills))
    return leading_of_gram(state, scaling, problem.k, read.standardise)


def _cost(problem: Problem, rows: int, itemsize: int) -> Cost:
    p, sparse = problem.p, problem.sparse
    components = 3 * 8 * p * components_for(problem.k, p)
    square = 8 * (p + 1) ** 2
    product = gram_update_bytes(rows, p) if sparse else p * p * itemsize
    noted, of_gaps = 0, 0
    if problem.fills:
        noted = 2 * square
        of_gaps = 3 * square if sparse else product + rows * p * itemsize
    # Finish: the scatter, the correlation matrix, and the copy that LAPACK destroys.
    return Cost(
        square + noted,
        product + of_gaps,
        0,
        3 * square + 2 * noted + components,
        square + noted + components,
        reads=1,
    )


METHOD = Method(
    _run,
    _cost,
    lambda p: f"{p} features are more than {GRAM_FEATURES}" if p > GRAM_FEATURES else "",
)


def leading_of_gram(
    state: GramState, scaling: Scaling, k: int, standardise: Standardiser
) -> Leading:
    """Compute the leading components for k clusters from a merged state, which is overwritten.

    Raises RequestError as ``standardise()`` does. O(u^3), three matrices of u^2.
    """
    features, correlation = correlation_matrix(state, scaling, standardise)
    r = components_for(k, len(features.usable))
    values, components, residuals = leading_eigenpairs(correlation, r)
    return Leading(
        features=features,
        components=components,
        singular_values=np.sqrt(features.samples * values),
        residuals=residuals,
        score_error=score_tolerance(scaling.precision),
        correlation=correlation,
        gaps=None if state.gaps is None else _about_mean(state, state.gaps, scaling),
    )


def correlation_matrix(
    state: GramState, scaling: Scaling, standardise: Standardiser
) -> tuple[Standardised, Float]:
    """Compute the correlation matrix of the usable features; overwrites the state's scatter."""
    matrix, moments = state.scatter, state.moments
    count = max(moments.count, 1)
    centre = moments.total / count
    if state.gaps is not None:
        _fill_gaps(state, state.gaps)
        centre = moments.mean
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


def _fill_gaps(state: GramState, gaps: Gaps) -> None:
    """Replace missing values by the mean in the scatter.

    (b + V m)^T (b + V m) = b^T b + m V^T b + (m V^T b)^T + m V^T V m, with m diagonal.
    """
    mean, scatter = state.moments.mean, state.scatter
    for i in np.flatnonzero(state.moments.missing):
        filled = mean[i] * gaps.values[i]
        scatter[i] += filled
        scatter[i] += mean[i] * (gaps.counts[i] * mean)
        scatter[:, i] += filled


def _about_mean(state: GramState, gaps: Gaps, scaling: Scaling) -> Gaps:
    """Return the gaps as a factor keeps them: V^T (x - mean), of the features that have any.

    With m diagonal, V^T (b - m) over values not missing is V^T b - V^T (1 - V) m.
    """
    mean, missing = state.moments.mean, state.moments.missing
    where = np.flatnonzero(missing)
    values = gaps.values[where]
    for row, counts, m in zip(values, gaps.counts[where], missing[where], strict=True):
        row -= (m - counts) * mean
    values *= scaling.scale
    return Gaps(values, gaps.counts[np.ix_(where, where)])


def state_of(leading: Leading, scaling: Scaling) -> GramState:
    """Rebuild, to rounding, the merged state that a factor with a correlation matrix was made from.

    The scaling is of the features asked for; its unsure ones are constant or have no value.
    Features excluded for other reasons keep their variances only, not their products with other
    features. O(p^2), four matrices of p^2, and three more with gaps.
    """
    assert leading.correlation is not None
    features = leading.features.of_asked()
    n, usable, missing = features.samples, features.usable, features.missing
    away = np.nan_to_num((features.mean - scaling.shift) / scaling.scale)
    spread = np.nan_to_num(features.std) / scaling.scale
    scatter = np.diag(n * spread**2)
    scatter[np.ix_(usable, usable)] = (
        leading.correlation * spread[usable] * (n * spread[usable, None])
    )
    gaps = None
    if leading.gaps is None:
        scatter += n * away * away[:, None]
    else:
        # x - shift is x - mean + (1 - V) away, and the sums of x - mean are 0.
        where = np.flatnonzero(missing)
        gaps = Gaps(np.zeros_like(scatter), np.zeros_like(scatter))
        gaps.counts[np.ix_(where, where)] = leading.gaps.counts
        gaps.values[where] = leading.gaps.values / scaling.scale
        crossed = away[:, None] * gaps.values
        scatter -= crossed
        scatter -= crossed.T
        scatter += (n - missing - missing[:, None] + gaps.counts) * away * away[:, None]
        gaps.values += (missing[:, None] - gaps.counts) * away
    value = features.mean[scaling.unsure]
    infinite = np.zeros_like(missing)
    moments = Moments(n, (n - missing) * away, value, value, missing, infinite)
    return GramState(moments, scatter, gaps)


def leading_eigenpairs(matrix: Float, r: int) -> tuple[Float, Float, Float]:
    """Return the r largest eigenvalues, falling, their vectors and residuals. O(u^3)."""
    u = len(matrix)
    values, vectors = scipy.linalg.eigh(matrix, subset_by_index=(u - r, u - 1), check_finite=False)
    values, vectors = values[::-1], np.ascontiguousarray(vectors[:, ::-1])
    vectors = orient_columns(vectors)
    residuals = np.linalg.norm(matrix @ vectors - vectors * values, axis=0)
    return np.maximum(values, 0.0), vectors, residuals

"""The leading components of wide data by randomised block Lanczos, one read per step.

C = Z^T Z / n is the correlation matrix of the usable features. Each read multiplies it with a
block of orthonormal vectors; Rayleigh-Ritz on all blocks so far, fully reorthogonalised, gives
Ritz values and vectors. k separated clusters make k - 1 strong components; the k-th lies in the
noise, among neighbours so close that a few reads cannot tell them apart. So reading stops on the
scores a_i = sum_{j<=k} lambda_j P_ij^2, not on residuals alone.

Sources: Golub and Underwood, "The block Lanczos method for computing eigenvalues" (1977); Musco
and Musco, "Randomized block Krylov methods for stronger and faster approximate singular value
decomposition" (2015).
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from kmufs_stream.errors import BrokenError
from kmufs_stream.factors.methods.krylov import Krylov, RitzPairs, contenders, score_errors
from kmufs_stream.factors.methods.leading import (
    Leading,
    components_for,
    orient_columns,
    score_tolerance,
)
from kmufs_stream.factors.methods.method import Method, Problem, Reads
from kmufs_stream.factors.methods.screening import ALL_MISSING, CONSTANT, Standardised, Standardiser
from kmufs_stream.streaming.kernels.moments import Moments
from kmufs_stream.streaming.kernels.products import Far, Product, StartProduct, StartState
from kmufs_stream.streaming.kernels.scaling import Precision, Scaling
from kmufs_stream.streaming.kernels.sparse import SparseProduct, SparseStartProduct
from kmufs_stream.streaming.planning.sizing import Cost
from kmufs_stream.typing import Float, Floats, Int

START_CONDITION = 30.0  # fainter directions of the start block lose digits
MEAN_REACH = {"float32": 16.0, "float64": 2.0**20}  # |mean| / std that costs few enough digits
FAR_SHARE = 1 / 8  # of the features: shifting more costs as much as shifting all
RANGE_REACH = 2.0**40  # values and spreads up to here are far from overflow and underflow


def block_columns(problem: Problem) -> int:
    """Return the columns of a block: with k + 22 most data settle in five or six reads."""
    return min(problem.k + 22, problem.p)


def lanczos(problem: Problem, read: Reads, scaling: Scaling) -> Leading:
    """Read until the scores for k clusters have settled.

    Where features that vary are excluded, or means replace missing values, the first read only
    shows which, and a second is made whatever ``max_passes`` says. CSR blocks need a scaling in
    float64 without a shift.

    Raises RequestError as ``standardise()`` does, BrokenError where the data change between reads.
    O(n p b) per read, b the columns of a block, and O(u (b reads)^2) between all of them.
    """
    p, k, sparse, options = problem.p, problem.k, problem.sparse, problem.lanczos
    rng = np.random.default_rng(options.seed)
    width = block_columns(problem)
    # A block as wide as the data spans everything: no need to draw it.
    start = np.eye(p) if width == p else rng.standard_normal((width, p))
    start = start.astype(scaling.precision)
    state = read((SparseStartProduct if sparse else StartProduct)(scaling, start))
    features, vectors, images = _start(state, scaling, start, read.standardise)
    precision = scaling.precision if state.moments.held else "float64"
    reads = 1
    if not _covers(features, state.moments):
        # The first read included features now excluded, or lacked the means of missing values.
        reads = 2
        scaling = scaling if sparse else scaling.centred(features.mean)
        u = len(features.usable)
        drawn = rng.standard_normal((u, min(width, u)))
        vectors = np.asarray(np.linalg.qr(drawn)[0], np.float64)
        images = _images(read, vectors, features, scaling, precision, None, sparse=sparse)
    far = None if sparse else _far(features, precision)
    del state, start

    max_passes = max(options.max_passes, reads)
    space = Krylov(vectors, width, max_passes, float(np.finfo(scaling.precision).eps), rng)
    r = components_for(k, len(features.usable))
    scores: Float | None = None
    for passes in range(reads, max_passes + 1):
        space.extend(images)
        ritz = RitzPairs.of(space, r)
        previous, scores = scores, ritz.scores(k)
        errors = score_errors(space, ritz, k)
        counted = contenders(scores, errors, problem.h)
        error = float(errors[counted].max()) + score_tolerance(scaling.precision)
        change = np.inf if previous is None else float(np.abs(scores - previous)[counted].max())
        complete = space.invariant and len(ritz.values) == r
        settled = complete or (change < options.tol and error < options.tol)
        if settled or passes == max_passes:
            break
        images = _images(read, space.newest, features, scaling, precision, far, sparse=sparse)
    return Leading(
        features=features,
        components=orient_columns(ritz.vectors),
        singular_values=np.sqrt(features.samples * ritz.values),
        residuals=ritz.residuals,
        score_error=error,
        settled=settled,
        last_change=change,
        passes=passes,
    )


def _start(
    state: StartState, scaling: Scaling, start: Floats, standardise: Standardiser
) -> tuple[Standardised, Float, Float]:
    """Return features, orthonormal vectors, (u, b), and their images under C, of the first read.

    With b = (x - shift) / scale, m its mean and D one over its standard deviation,
    C = D (B^T B / n - m m^T) D, so G in the coordinates of b stands for D^-1 G in those of C.
    """
    count = max(state.moments.count, 1)
    mean = state.moments.mean
    share = state.moments.present / count
    variance = np.maximum(state.squares / count - share * mean**2, 0.0)
    features = standardise(state.moments, scaling, variance)
    usable = features.usable
    std = np.sqrt(variance[usable])
    drawn = start.astype(np.float64)
    products = state.product[:, usable] / count - np.outer(drawn @ mean, mean[usable])
    vectors = (drawn[:, usable] * std).T
    images = (products / std).T
    lengths = np.linalg.norm(vectors, axis=0)
    some = lengths > 0
    vectors, images = vectors[:, some] / lengths[some], images[:, some] / lengths[some]
    left, weights, right = scipy.linalg.svd(vectors, full_matrices=False, check_finite=False)
    clear = weights > weights[0] / START_CONDITION
    return features, left[:, clear], images @ (right[clear].T / weights[clear])


def _covers(features: Standardised, moments: Moments) -> bool:
    """Check that the first read multiplied with C: no feature that varies has been excluded."""
    without = set(features.excluded) <= {ALL_MISSING, CONSTANT}
    return without and not moments.missing[features.usable].any()


def _far(features: Standardised, precision: Precision) -> Int | None:
    """Find the features, if few, that must be shifted and scaled; None: shift and scale all."""
    if features.missing.any():
        return None
    reach = np.abs(features.mean) + features.std * np.sqrt(features.samples)
    mean, std = np.abs(features.mean[features.usable]), features.std[features.usable]
    # No value lies further from 0 than its feature's reach.
    if float(reach.max()) > RANGE_REACH or float(std.min()) < 1 / RANGE_REACH:
        return None
    far = features.usable[mean > MEAN_REACH[precision] * std]
    return far if len(far) <= FAR_SHARE * len(features.mean) else None


def _images(
    read: Reads,
    vectors: Float,
    features: Standardised,
    scaling: Scaling,
    precision: Precision,
    far: Int | None,
    *,
    sparse: bool,
) -> Float:
    """Multiply C with vectors, (u, b), in one read that shifts and scales ``far``; None: all."""
    usable, n = features.usable, features.samples
    scaled = slice(None) if far is None else far
    mean, std = features.mean.copy(), features.std.copy()
    mean[scaled] -= scaling.shift[scaled]
    mean[scaled] /= scaling.scale[scaled]
    std[scaled] /= scaling.scale[scaled]
    mean, std = mean[usable], std[usable]
    block = np.zeros((vectors.shape[1], len(features.mean)), precision)
    block[:, usable] = (vectors / std[:, None]).T
    # From the rounded block, so that it is the mean of what is projected.
    centre = block[:, usable].astype(np.float64) @ mean
    gaps = bool(features.missing.any())
    if sparse:
        fill = np.nan_to_num(features.mean) if gaps else None
        state = read(SparseProduct(block, centre, scaling, fill))
    elif far is None:
        state = read(Product(block, centre, scaling, gaps=gaps))
    else:
        apart = Far(far, block[:, far], scaling.of(far))
        block[:, far] = 0
        state = read(Product(block, centre, None, apart if len(far) else None))
    if not np.isfinite(state.product).all():
        raise BrokenError(
            "changed",
            "Values that were finite when they were first read no longer are.",
            "Something writes to the data; run again once it has ended.",
        )
    images = state.product[:, usable].T
    images -= np.outer(mean, state.total)
    images /= n * std[:, None]
    return np.asfortranarray(images)


def _cost(problem: Problem, rows: int, itemsize: int) -> Cost:
    p, reads = problem.p, problem.lanczos.max_passes
    width = block_columns(problem)
    columns = min(p, width * (reads + 1))
    state = 8 * p * (width + 6)
    update = itemsize * (width * p + 2 * width * rows) + 8 * p
    # Sparse products make the vectors scaled, transposed, and a product to add.
    update += state * 3 if problem.sparse else 0
    driver = 8 * (p * (columns + 8 * width) + 6 * columns**2)
    components = 3 * 8 * p * components_for(problem.k, p)
    return Cost(state, update, driver, driver + components, components, reads=reads)


METHOD = Method(lanczos, _cost, lambda p: "", thin=True, of_k=True)

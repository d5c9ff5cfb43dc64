"""The leading components of wide data by randomised block Lanczos, one read per step.

C = Z^T Z / n is the correlation matrix of the usable features. Each read multiplies it with a
block of orthonormal vectors; Rayleigh-Ritz on all blocks so far, orthogonalised in full, gives
Ritz values and vectors. k separated clusters make k - 1 strong components; the k-th lies in the
noise, among neighbours so close that no few reads tell them apart. So reading stops on the scores
a_i = sum_{j<=k} lambda_j P_ij^2, not on residuals alone.

Sources: Golub and Underwood, "The block Lanczos method for computing eigenvalues" (1977); Musco
and Musco, "Randomized block Krylov methods for stronger and faster approximate singular value
decomposition" (2015).
"""

from __future__ import annotations

from dataclasses import dataclass

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
from kmufs_stream.factors.methods.method import Method, Problem, Read, Reads
from kmufs_stream.factors.methods.screening import ALL_MISSING, CONSTANT, Standardised, Standardiser
from kmufs_stream.streaming.kernels.moments import Moments
from kmufs_stream.streaming.kernels.products import Far, Product, StartProduct, StartState
from kmufs_stream.streaming.kernels.scaling import Precision, Scaling
from kmufs_stream.streaming.kernels.sparse import SparseProduct, SparseStartProduct
from kmufs_stream.streaming.planning.sizing import Cost
from kmufs_stream.typing import Float, Floats, Int

START_CONDITION = 30.0  # directions of the start block fainter than this lose digits
MEAN_REACH = {"float32": 16.0, "float64": 2.0**20}  # |mean| / std that costs few enough digits
FAR_SHARE = 1 / 8  # of the features at most: shifting more costs as much as shifting all
RANGE_REACH = 2.0**40  # values and spreads up to here are far from overflow, down from underflow


@dataclass(frozen=True)
class LanczosBytes:
    """Upper bounds of the memory that a run takes, for plans.

    Attributes
    ----------
    state : one kernel state.
    update : what one block's update makes beside the state and the scaled block.
    driver : everything between and during the reads.
    """

    state: int
    update: int
    driver: int


def product_block_columns(k: int) -> int:
    """Columns of a block for k clusters: enough that most data settle in five or six reads."""
    return k + 22


def lanczos_bytes(p: int, block: int, steps: int, block_rows: int, itemsize: int) -> LanczosBytes:
    """Memory of a run over p features in at most ``steps`` reads.

    Parameters
    ----------
    block : columns of a block of vectors, as of ``product_block_columns()``.
    block_rows : rows of a block of samples.
    itemsize : bytes of a number in products, 8 or 4.
    """
    width = min(block, p)
    columns = min(p, width * (steps + 1))
    state = 8 * p * (width + 6)
    update = itemsize * (width * p + 2 * width * block_rows) + 8 * p
    driver = 8 * (p * (columns + 8 * width) + 6 * columns**2)
    return LanczosBytes(state, update, driver)


def lanczos(
    run: Read,
    scaling: Scaling,
    p: int,
    *,
    k: int,
    h: int | None,
    tol: float,
    max_passes: int,
    seed: int,
    standardise: Standardiser,
    block: int | None = None,
    sparse: bool = False,
) -> Leading:
    """Read until the scores for k clusters have settled.

    Parameters
    ----------
    run : performs one read.
    p : features of the source.
    k : components that make the scores; r = ``components_for(k, u)`` are returned.
    h : how many features are to be chosen: only scores that may be among the h highest have to
        settle. None: all have to.
    tol : a score has settled when its change over one step, and the estimate of its error, are
        below this.
    max_passes : reads at most; at least 1, and 2 where features are left out that vary, or means
        stand in for missing values, since one read then only shows which.
    seed : of the random vectors.
    block : columns of a block, ``product_block_columns(k)`` by default. One read finds no more
        components than that, should it be the only one.
    sparse : blocks come as CSR; the scaling then has no shift, and its precision is float64.

    Raises RequestError as ``standardise()`` does, BrokenError where the data change between reads,
    ValueError for max_passes below 1. O(n p block) per read and O(u (block reads)^2) between reads
    in all; memory as ``lanczos_bytes()`` says.
    """
    if max_passes < 1:
        raise ValueError(f"max_passes is {max_passes}; it must be 1 or more")
    rng = np.random.default_rng(seed)
    width = min(block or product_block_columns(k), p)
    # A block as wide as the data spans everything: no need to draw it.
    start = np.eye(p) if width == p else rng.standard_normal((width, p))
    start = start.astype(scaling.precision)
    state = run((SparseStartProduct if sparse else StartProduct)(scaling, start))
    features, vectors, images = _start(state, scaling, start, standardise)
    precision = scaling.precision if state.moments.held else "float64"
    reads = 1
    if not _covers(features, state.moments):
        # That read was also of features that are left out, or without the means of what is
        # missing: start again, on what it has shown.
        reads = 2
        scaling = scaling if sparse else scaling.centred(features.mean)
        u = len(features.usable)
        drawn = rng.standard_normal((u, min(width, u)))
        vectors = np.asarray(np.linalg.qr(drawn)[0], np.float64)
        images = _images(run, vectors, features, scaling, precision, None, sparse=sparse)
    far = None if sparse else _far(features, precision)
    del state, start

    max_passes = max(max_passes, reads)
    space = Krylov(vectors, width, max_passes, float(np.finfo(scaling.precision).eps), rng)
    r = components_for(k, len(features.usable))
    scores: Float | None = None
    for passes in range(reads, max_passes + 1):
        space.extend(images)
        ritz = RitzPairs.of(space, r)
        previous, scores = scores, ritz.scores(k)
        errors = score_errors(space, ritz, k)
        counted = contenders(scores, errors, h)
        error = float(errors[counted].max()) + score_tolerance(scaling.precision)
        change = np.inf if previous is None else float(np.abs(scores - previous)[counted].max())
        complete = space.invariant and len(ritz.values) == r
        settled = complete or (change < tol and error < tol)
        if settled or passes == max_passes:
            break
        images = _images(run, space.newest, features, scaling, precision, far, sparse=sparse)
    return Leading(
        features=features,
        components=orient_columns(ritz.vectors),
        singular_values=np.sqrt(features.samples * ritz.values),
        residuals=ritz.residuals,
        score_error=error,
        settled=settled,
        last_change=change,
        passes=passes,
        correlation=None,
        gaps=None,
    )


def _start(
    state: StartState,
    scaling: Scaling,
    start: Floats,
    standardise: Standardiser,
) -> tuple[Standardised, Float, Float]:
    """From the first read: orthonormal vectors, (u, b), and their images under C.

    With b = (x - shift) / scale, m its mean and D one over its standard deviation,
    C = D (B^T B / n - m m^T) D, so G in the coordinates of b stands for D^-1 G in those of C.
    """
    count = max(state.moments.count, 1)
    mean = state.moments.total / np.maximum(state.moments.present, 1)
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
    """Whether the first read's product is one with C: all that varies is in it, as it counts."""
    without = set(features.excluded) <= {ALL_MISSING, CONSTANT}
    return without and not moments.missing[features.usable].any()


def _far(features: Standardised, precision: Precision) -> Int | None:
    """Usable features that products cannot take as they are, if few; None: shift and scale all."""
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
    run: Read,
    vectors: Float,
    features: Standardised,
    scaling: Scaling,
    precision: Precision,
    far: Int | None,
    *,
    sparse: bool,
) -> Float:
    """C times a block of vectors, (u, b): one read; only ``far`` is scaled, or all for None."""
    usable, n = features.usable, features.samples
    scaled = slice(None) if far is None else far
    mean, std = features.mean.copy(), features.std.copy()
    mean[scaled] -= scaling.shift[scaled]
    mean[scaled] /= scaling.scale[scaled]
    std[scaled] /= scaling.scale[scaled]
    mean, std = mean[usable], std[usable]
    block = np.zeros((vectors.shape[1], len(features.mean)), precision)
    block[:, usable] = (vectors / std[:, None]).T
    # From the rounded block: what is subtracted is then the mean of what is projected.
    centre = block[:, usable].astype(np.float64) @ mean
    gaps = bool(features.missing.any())
    if sparse:
        fill = np.nan_to_num(features.mean) if gaps else None
        state = run(SparseProduct(block, centre, scaling, fill))
    elif far is None:
        state = run(Product(block, centre, scaling, gaps=gaps))
    else:
        apart = Far(far, block[:, far], scaling.of(far))
        block[:, far] = 0
        state = run(Product(block, centre, None, apart if len(far) else None))
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


def _run(problem: Problem, read: Reads, scaling: Scaling) -> Leading:
    return lanczos(
        read,
        scaling,
        problem.p,
        k=problem.k,
        h=problem.h,
        standardise=read.standardise,
        sparse=problem.sparse,
        **vars(problem.lanczos),
    )


def _cost(problem: Problem, rows: int, itemsize: int) -> Cost:
    p, reads = problem.p, problem.lanczos.max_passes
    size = lanczos_bytes(p, product_block_columns(problem.k), reads, rows, itemsize)
    # Sparse products make the vectors scaled, transposed, and a product to add.
    update = size.update + (size.state * 3 if problem.sparse else 0)
    components = 3 * 8 * p * components_for(problem.k, p)
    finish = size.driver + components
    return Cost(size.state, update, size.driver, finish, components, reads=reads)


METHOD = Method(_run, _cost, lambda p: "", thin=True, of_k=True)

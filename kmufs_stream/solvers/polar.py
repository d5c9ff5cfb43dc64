"""The polar factor of a tall matrix that is large along a few known directions.

LAPACK's SVD of H (p x h) costs far more than two products of that size, and its divide-and-conquer
driver has been seen to fail on real iterates. Here H is kept as ``P T + R`` with R orthogonal to
P, however much smaller R is. Rotating H's columns by T's right singular vectors Y separates large
columns from small ones; scaled to unit length they have a well-conditioned Gram matrix, whose
Cholesky factor C leaves an h x h problem:

    H Y = B D,  B^T B = C^T C,  polar(H) = B C^-1 polar(C D) Y^T = P (T M) + R M

with ``M = Y D^-1 C^-1 polar(C D) Y^T``. R is never added to the much larger P T, so nothing
cancels. One p h^2 product forms R^T R, one applies M.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from kmufs_stream.solvers.solution import UnsolvableError
from kmufs_stream.typing import Float

ORTHOGONALITY = 1e-12  # largest accepted ||U^T U - I||_F
ACCEPTED = ORTHOGONALITY / 5  # largest accepted estimate: rarely (1e-4) five times too small
REFINABLE = 1e-7  # largest deviation that one refinement, which squares it, brings below rounding
PROBES = 8  # random vectors that measure the deviation from orthogonality
_BLOCK_ENTRIES = 2**17


class Polar(NamedTuple):
    """``P^T U`` of a polar factor U, (k, h), and the method that made it.

    "cholesky"; "refined", by a second Cholesky step; or "householder", the fall-back.
    """

    along: Float
    method: Literal["cholesky", "refined", "householder"]


def row_blocks(p: int, h: int) -> Iterator[slice]:
    """Yield runs of rows of a p x h array that stay in cache through several operations."""
    rows = block_rows(h)
    for start in range(0, p, rows):
        yield slice(start, min(start + rows, p))


def block_rows(h: int) -> int:
    return max(_BLOCK_ENTRIES // h, 128)


def svd(matrix: Float, *, full_matrices: bool = False) -> tuple[Float, Float, Float]:
    """Compute an SVD by divide and conquer or, where that fails, by QR iteration."""
    if not np.isfinite(matrix).all():
        raise UnsolvableError("the matrix has entries that are not finite")
    try:
        left, values, right = np.linalg.svd(matrix, full_matrices=full_matrices)
    except np.linalg.LinAlgError:
        # SciPy brings a second BLAS thread pool, so it is imported only when needed.
        import scipy.linalg

        left, values, right = scipy.linalg.svd(
            matrix, full_matrices=full_matrices, lapack_driver="gesvd"
        )
    return left, values, right


def graded_polar(factor: Float, scale: Float) -> Float:
    """Compute the polar factor Z of ``factor * scale``, accurate for columns of every size.

    The errors of an SVD are relative to the largest column. How far they make ``Z^T (factor *
    scale)`` asymmetric gives the rotation that corrects them, to first order.

    Parameters
    ----------
    factor : float64 array, shape (h, h)
        Well conditioned.
    scale : float64 array, shape (h,)
        Positive.
    """
    scaled = factor * scale
    left, values, right = svd(scaled)
    orthogonal: Float = left @ right
    skew = (orthogonal.T @ factor) * scale
    skew = skew - skew.T
    sums = values[:, None] + values[None, :]
    rotation = right @ skew @ right.T
    rotation = np.divide(rotation, sums, out=np.zeros_like(sums), where=sums > 0)
    rotation = right.T @ rotation @ right
    # A large rotation is no first-order error: factor is singular, and the SVD has to do.
    if not np.abs(rotation).max() < 1e-6:
        return orthogonal
    # Without the square, a rotation of 1e-6 would leave Z orthogonal only to 1e-12.
    orthogonal += orthogonal @ (rotation + rotation @ rotation / 2)
    return orthogonal


@lru_cache(maxsize=1)
def probes(h: int) -> Float:
    """Return fixed random vectors, (h, 8), for :func:`deviation`; unit vectors if h is small."""
    if h <= PROBES:
        return np.eye(h)
    drawn: Float = np.random.default_rng(0).standard_normal((h, PROBES)) / np.sqrt(PROBES)
    return drawn


def deviation(product: Float, vectors: Float) -> float:
    """Estimate ``||U^T U - I||_F`` from ``product = U^T (U vectors)``, vectors from ``probes``.

    The mean of ``||(U^T U - I) g||^2`` over Gaussian g is the squared Frobenius norm. Of eight
    vectors an estimate is below a fifth of the truth with a probability under 1e-4, below a tenth
    under 1e-6 (chi-squared, 8 degrees of freedom, the worst case of a single direction), for
    32 p h operations instead of p h^2. Exact for h <= 8.
    """
    return float(np.linalg.norm(product - vectors))


def polar(components: Float, along: Float, rest: Float, out: Float) -> Polar:
    """Compute the polar factor U of ``H = components @ along + rest = X S Y^T``: U = X Y^T.

    Parameters
    ----------
    components : float64 array, shape (p, k)
        Orthonormal columns P.
    along : float64 array, shape (k, h)
        T = P^T H; h <= p.
    rest : float64 array, shape (p, h), C order
        R = H - P T, with P^T R = 0 to rounding. Not changed.
    out : float64 array, shape (p, h), C order
        Receives U.

    Raises
    ------
    ValueError
        Entries that are not finite.

    Notes
    -----
    2 p h^2 + O(p h k + h^3) multiplications; working memory: ``polar_entries``. Where
    ``||U^T U - I||_F`` exceeds 1e-12, one more Cholesky step follows (1.5 p h^2), or else
    Householder reflections with an SVD by QR iteration, which work for any finite H. Step U of
    Algorithm 1, Sun, Ding and Fan (arXiv 2411.15197).
    """
    left, values, right = svd(along, full_matrices=True)
    r = values.size
    core = left[:, :r] * values  # T Y, whose columns beyond r are zero
    gram = right @ (rest.T @ rest) @ right.T
    diagonal = np.einsum("ii->i", gram)
    diagonal[:r] += values**2
    scale = np.sqrt(diagonal)
    if not np.isfinite(scale).all():
        raise UnsolvableError("the matrix has entries that are not finite, or too large to square")
    tiny = scale.min() <= np.finfo(np.float64).tiny
    inner = None if tiny else _inner(gram, scale)
    if inner is None:
        return _householder(components, core, rest, right, scale, out)

    factor, orthogonal = inner
    small = np.linalg.solve(factor, orthogonal @ right) / scale[:, None]
    deviated = _apply(components, core @ small[:r], rest, right.T @ small, out)
    if deviated <= ACCEPTED:
        return Polar(core @ small[:r], "cholesky")
    if deviated <= REFINABLE and _refine(factor, orthogonal, scale, right, out):
        return Polar(components.T @ out, "refined")
    return _householder(components, core, rest, right, scale, out)


def polar_entries(p: int, k: int, h: int) -> int:
    """Bound the float64 numbers that :func:`polar` holds at once besides its arguments.

    Sixteen h x h and six k x h arrays include LAPACK's copies and workspaces; the fall-back adds
    three copies (NumPy's QR) of one of its blocks and of the stacked triangles.
    """
    height = min(p, 2 * _qr_rows(h))
    stacked = (p // _qr_rows(h) + 1) * h
    return 16 * h * h + 6 * k * h + 3 * block_rows(h) * h + 4 * (height + stacked) * h


def _inner(gram: Float, scale: Float) -> tuple[Float, Float] | None:
    """Return C and polar(C D), or None if the scaled Gram matrix is not positive definite."""
    gram /= scale[:, None]
    gram /= scale
    try:
        factor = np.asarray(np.linalg.cholesky(gram, upper=True), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None
    return factor, graded_polar(factor, scale)


def _apply(components: Float, along: Float, rest: Float, small: Float, out: Float) -> float:
    """Write ``components @ along + rest @ small`` to out; return its deviation."""
    np.matmul(rest, small, out=out)
    vectors = probes(out.shape[1])
    product = np.zeros_like(vectors)
    for rows in row_blocks(*out.shape):
        block = out[rows]
        block += components[rows] @ along
        product += block.T @ (block @ vectors)
    return deviation(product, vectors)


def _refine(factor: Float, orthogonal: Float, scale: Float, right: Float, out: Float) -> bool:
    """Repeat the Cholesky step on out; return whether that makes it orthonormal.

    A Newton-Schulz step costs as much, but would make out orthonormal without turning it back to
    H's polar factor.
    """
    try:
        again = np.linalg.cholesky(right @ (out.T @ out) @ right.T, upper=True)
    except np.linalg.LinAlgError:
        return False
    turned = graded_polar(again @ (orthogonal.T @ factor), scale)
    _multiply(out, right.T @ np.linalg.solve(again, turned @ right))
    vectors = probes(out.shape[1])
    product = np.zeros_like(vectors)
    for rows in row_blocks(*out.shape):
        product += out[rows].T @ (out[rows] @ vectors)
    return deviation(product, vectors) <= ACCEPTED


def _multiply(out: Float, small: Float) -> None:
    """Compute ``out = out @ small`` in place."""
    for rows in row_blocks(*out.shape):
        out[rows] = out[rows] @ small


def _qr_rows(h: int) -> int:
    return max(8 * h, block_rows(h))


def _householder(
    components: Float, core: Float, rest: Float, right: Float, scale: Float, out: Float
) -> Polar:
    """Compute the polar factor from the unit columns' QR by reflections, and a small SVD."""
    k, r = core.shape
    unit = np.where(scale > np.finfo(np.float64).tiny, scale, 1.0)
    along = np.zeros((k, out.shape[1]))
    np.divide(core, unit[:r], out=along[:, :r])
    _apply(components, along, rest, right.T / unit, out)
    triangle = orthonormalise(out)
    small = graded_polar(triangle, np.where(unit == scale, scale, 0.0)) @ right
    _multiply(out, small)
    return Polar(components.T @ out, "householder")


def orthonormalise(out: Float) -> Float:
    """Replace the columns of out, (p, h), p >= h, by Q of ``out = Q R``; return R, (h, h).

    Two-level TSQR: Householder QR of every block of rows, then of their stacked triangles. Q is
    orthonormal to rounding whatever the rank of out. O(p h^2). Source: Demmel, Grigori, Hoemmen
    and Langou, SIAM J. Sci. Comput. 34 (2012).
    """
    p, h = out.shape
    starts = list(range(0, p, _qr_rows(h)))
    if len(starts) > 1 and p - starts[-1] < h:
        starts.pop()
    blocks = [slice(a, b) for a, b in zip(starts, [*starts[1:], p], strict=True)]
    stacked = np.empty((len(blocks) * h, h))
    for i, rows in enumerate(blocks):
        out[rows], stacked[i * h : (i + 1) * h] = np.linalg.qr(out[rows])
    basis, triangle = np.linalg.qr(stacked)
    for i, rows in enumerate(blocks):
        out[rows] = out[rows] @ basis[i * h : (i + 1) * h]
    return triangle

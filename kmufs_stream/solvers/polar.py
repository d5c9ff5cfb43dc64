"""The polar factor of a tall matrix that is large along a few known directions.

LAPACK's SVD of H (p x h) costs far more than two products of that size, and its divide-and-conquer
driver has been seen to fail on real iterates. Here H is kept as ``P T + R`` with R orthogonal to
P, however much smaller R is. A rotation of H's columns by T's right singular vectors parts the
large columns from the small ones; scaled to unit length they have a harmless Gram matrix, whose
Cholesky factor leaves an h x h problem:

    H Y = B D,  B^T B = C^T C,  polar(H) = B C^-1 polar(C D) Y^T = P (T M) + R M

with ``M = Y D^-1 C^-1 polar(C D) Y^T``. R and M are never mixed with the scale of P T, so that
nothing cancels. One p h^2 product forms R^T R, one applies M.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kmufs_stream.typing import Float

Method = Literal["cholesky", "refined", "householder"]

ORTHOGONALITY = 1e-12
"""Largest accepted ``||U^T U - I||_F``."""

ACCEPTED = ORTHOGONALITY / 5
"""Largest accepted estimate of it: one five times too small has a probability below 1e-4."""

REFINABLE = 1e-7
"""Largest deviation that one refinement brings below rounding, since it squares it."""

PROBES = 8
"""Random vectors that measure the deviation from orthogonality."""

_BLOCK_ENTRIES = 2**17


@dataclass(frozen=True)
class Polar:
    """What came with a polar factor.

    Attributes
    ----------
    along : float64 array, shape (k, h)
        ``P^T U``.
    deviation : float
        ``||U^T U - I||_F`` as measured before any repair (see :func:`deviation`).
    method : str
        "cholesky" as it came, "refined" after a second Cholesky step, "householder" by the
        fall-back.
    """

    along: Float
    deviation: float
    method: Method


def row_blocks(p: int, h: int) -> Iterator[slice]:
    """Runs of rows of a p x h array small enough to stay in cache through several operations."""
    rows = block_rows(h)
    for start in range(0, p, rows):
        yield slice(start, min(start + rows, p))


def block_rows(h: int) -> int:
    """Rows of one block of :func:`row_blocks`."""
    return max(_BLOCK_ENTRIES // h, 128)


def svd(matrix: Float, *, full_matrices: bool = False) -> tuple[Float, Float, Float]:
    """SVD of a small matrix that falls back from divide and conquer to QR iteration.

    Raises
    ------
    ValueError
        Entries that are not finite.
    """
    if not np.isfinite(matrix).all():
        raise ValueError("the matrix has entries that are not finite")
    try:
        left, values, right = np.linalg.svd(matrix, full_matrices=full_matrices)
    except np.linalg.LinAlgError:
        # SciPy brings a second BLAS thread pool: not for every iteration, only for this rescue.
        import scipy.linalg

        left, values, right = scipy.linalg.svd(
            matrix, full_matrices=full_matrices, lapack_driver="gesvd"
        )
    return left, values, right


def graded_polar(factor: Float, scale: Float) -> Float:
    """Polar factor of ``factor * scale`` (columns scaled), accurate for every size of column.

    An SVD leaves errors of the largest column's size in the smallest ones. What they do to the
    symmetry of ``Z^T N`` tells the rotation that undoes them, to first order.

    Parameters
    ----------
    factor : float64 array, shape (h, h)
        Well conditioned.
    scale : float64 array, shape (h,)
        Positive.

    Returns
    -------
    float64 array, shape (h, h), orthogonal.

    Notes
    -----
    O(h^3).
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
    # A large rotation is no first-order error: factor was singular, and the SVD is all there is.
    if not np.abs(rotation).max() < 1e-6:
        return orthogonal
    # The square keeps it orthogonal: a rotation of 1e-6 alone would leave 1e-12.
    orthogonal += orthogonal @ (rotation + rotation @ rotation / 2)
    return orthogonal


def probes(h: int) -> Float:
    """Fixed test vectors, shape (h, s), for :func:`deviation`; the unit vectors if h is small."""
    if h <= PROBES:
        return np.eye(h)
    drawn: Float = np.random.default_rng(0).standard_normal((h, PROBES)) / np.sqrt(PROBES)
    return drawn


def deviation(product: Float, vectors: Float) -> float:
    """``||U^T U - I||_F`` estimated from ``product = U^T (U vectors)``, vectors from ``probes``.

    The mean of ``||(U^T U - I) g||^2`` over Gaussian g is the squared Frobenius norm. With eight
    of them an estimate below a fifth of the truth has a probability under 1e-4 and one below a
    tenth under 1e-6 (chi-squared, 8 degrees of freedom, the worst case of a single direction), for
    4 p h s operations instead of p h^2. Exact for h <= 8.
    """
    return float(np.linalg.norm(product - vectors))


def polar(
    components: Float,
    along: Float,
    rest: Float,
    out: Float,
    *,
    vectors: Float | None = None,
) -> Polar:
    """Polar factor U of ``H = components @ along + rest``: if H = X S Y^T, then U = X Y^T.

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
    vectors : float64 array, shape (h, s), optional
        ``probes(h)``, where the caller keeps them.

    Returns
    -------
    Polar
        Its ``along`` is P^T U.

    Raises
    ------
    ValueError
        Entries that are not finite.

    Notes
    -----
    2 p h^2 + O(p h k + h^3) multiplications; working memory: ``polar_entries``.
    ``||U^T U - I||_F <= 1e-12`` or one more Cholesky step (1.5 p h^2), or else Householder
    reflections with an SVD by QR iteration, which serve any finite H. Step U of Algorithm 1,
    Sun, Ding and Fan (arXiv 2411.15197).
    """
    h = along.shape[1]
    if vectors is None:
        vectors = probes(h)
    left, values, right = svd(along, full_matrices=True)
    r = values.size
    core = left[:, :r] * values  # T Y, the columns beyond r being zero by the choice of Y
    gram = right @ (rest.T @ rest) @ right.T
    diagonal = np.einsum("ii->i", gram)
    diagonal[:r] += values**2
    scale = np.sqrt(diagonal)
    if not np.isfinite(scale).all():
        raise ValueError("the matrix has entries that are not finite, or too large to square")
    tiny = scale.min() <= np.finfo(np.float64).tiny
    inner = None if tiny else _inner(gram, scale)
    if inner is None:
        return _householder(components, core, rest, right, scale, np.inf, out)

    factor, orthogonal = inner
    small = np.linalg.solve(factor, orthogonal @ right) / scale[:, None]
    deviated = _apply(components, core @ small[:r], rest, right.T @ small, out, vectors)
    if deviated <= ACCEPTED:
        return Polar(core @ small[:r], deviated, "cholesky")
    if deviated <= REFINABLE and _refine(factor, orthogonal, scale, right, out, vectors):
        return Polar(components.T @ out, deviated, "refined")
    return _householder(components, core, rest, right, scale, deviated, out)


def polar_entries(p: int, k: int, h: int) -> int:
    """Most float64 numbers that :func:`polar` holds at once besides its arguments, any method.

    Sixteen h x h and six k x h arrays cover those named and LAPACK's copies and workspaces; the
    fall-back adds three copies (NumPy's QR) of one of its blocks and of the stacked triangles.
    """
    height = min(p, 2 * _qr_rows(h))
    stacked = (p // _qr_rows(h) + 1) * h
    return 16 * h * h + 6 * k * h + 3 * block_rows(h) * h + 4 * (height + stacked) * h


def _inner(gram: Float, scale: Float) -> tuple[Float, Float] | None:
    """C and polar(C D), or None where the scaled Gram matrix is not positive definite."""
    gram /= scale[:, None]
    gram /= scale
    try:
        factor = np.asarray(np.linalg.cholesky(gram, upper=True), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None
    return factor, graded_polar(factor, scale)


def _apply(
    components: Float, along: Float, rest: Float, small: Float, out: Float, vectors: Float
) -> float:
    """Write ``components @ along + rest @ small`` to out; return its deviation."""
    np.matmul(rest, small, out=out)
    product = np.zeros_like(vectors)
    for rows in row_blocks(*out.shape):
        block = out[rows]
        block += components[rows] @ along
        product += block.T @ (block @ vectors)
    return deviation(product, vectors)


def _refine(
    factor: Float, orthogonal: Float, scale: Float, right: Float, out: Float, vectors: Float
) -> bool:
    """Repeat the Cholesky step on out; False where that does not make it orthonormal.

    A Newton-Schulz step costs as much and makes out orthonormal, but leaves the error that turns
    it away from H's polar factor; this removes both.
    """
    try:
        again = np.linalg.cholesky(right @ (out.T @ out) @ right.T, upper=True)
    except np.linalg.LinAlgError:
        return False
    turned = graded_polar(again @ (orthogonal.T @ factor), scale)
    _multiply(out, right.T @ np.linalg.solve(again, turned @ right))
    product = np.zeros_like(vectors)
    for rows in row_blocks(*out.shape):
        product += out[rows].T @ (out[rows] @ vectors)
    return deviation(product, vectors) <= ACCEPTED


def _multiply(out: Float, small: Float) -> None:
    """``out = out @ small`` in place."""
    for rows in row_blocks(*out.shape):
        out[rows] = out[rows] @ small


def _qr_rows(h: int) -> int:
    return max(8 * h, block_rows(h))


def _householder(
    components: Float,
    core: Float,
    rest: Float,
    right: Float,
    scale: Float,
    deviated: float,
    out: Float,
) -> Polar:
    """The fall-back: the unit columns' QR by reflections, block by block, then a small SVD."""
    h = out.shape[1]
    unit = np.where(scale > np.finfo(np.float64).tiny, scale, 1.0)
    _apply(components, _padded(core, unit, h), rest, right.T / unit, out, np.zeros((h, 1)))
    triangle = orthonormalise(out)
    small = graded_polar(triangle, np.where(unit == scale, scale, 0.0)) @ right
    _multiply(out, small)
    return Polar(components.T @ out, deviated, "householder")


def _padded(core: Float, unit: Float, h: int) -> Float:
    """``core / unit`` padded with zero columns to width h."""
    padded = np.zeros((core.shape[0], h))
    np.divide(core, unit[: core.shape[1]], out=padded[:, : core.shape[1]])
    return padded


def orthonormalise(out: Float) -> Float:
    """Replace out's columns by an orthonormal basis Q and return the triangle of ``out = Q R``.

    Two-level TSQR: Householder QR of every block of rows, then of their stacked triangles. Q is
    orthonormal to rounding whatever the rank of out.

    Parameters
    ----------
    out : float64 array, shape (p, h), p >= h

    Returns
    -------
    float64 array, shape (h, h), upper triangular

    Notes
    -----
    O(p h^2); Demmel, Grigori, Hoemmen and Langou, SIAM J. Sci. Comput. 34 (2012).
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

"""The Krylov space of a block Lanczos run, its Ritz pairs, and estimates of their errors.

C maps the newest block beyond the space; the images of all other vectors are known. So C projected
on the space gives Ritz pairs with residuals, and its continuation an estimate of what more reads
would change.

Sources: Golub and Underwood, "The block Lanczos method for computing eigenvalues" (1977); Davis
and Kahan, "The rotation of eigenvectors by a perturbation" (1970).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from kmufs_stream.typing import Bool, Float

ROUNDING = 8.0  # in units of eps * lambda_1: length of a zero vector after a product
LARGE_ENTRY = 2.5  # of a vector not known yet, in root mean squares of its feature's entries
CONTINUED = 8  # blocks by which an estimate continues the space


class Krylov:
    """Orthonormal vectors, block after block, and C projected on them.

    Attributes
    ----------
    vectors : (u, size) float64, orthonormal; the images of the first ``done`` are known.
    coupling : (size, done) float64, vectors^T C vectors[:, :done]; C times those vectors is
        ``vectors @ coupling`` up to rounding.
    invariant : whether C maps the span of the vectors into itself, up to rounding.
    """

    def __init__(
        self, start: Float, width: int, steps: int, eps: float, rng: np.random.Generator
    ) -> None:
        u = len(start)
        capacity = min(u, width * (steps + 1))
        self._vectors = np.empty((u, capacity), order="F")
        self._coupling = np.zeros((capacity, capacity))
        self._width, self._eps, self._rng = width, eps, rng
        self._old, self.done, self.size = 0, 0, start.shape[1]
        self._vectors[:, : self.size] = start
        self.invariant = False

    @property
    def vectors(self) -> Float:
        return self._vectors[:, : self.size]

    @property
    def coupling(self) -> Float:
        return self._coupling[: self.size, : self.done]

    @property
    def newest(self) -> Float:
        """(u, b) block whose images are not known yet."""
        return self._vectors[:, self.done : self.size]

    @property
    def noise(self) -> float:
        """Length that rounding gives to a vector that should be zero."""
        known = self._coupling[: self.done, : self.done]
        return ROUNDING * self._eps * float(np.linalg.norm(known, 2))

    def extend(self, images: Float) -> None:
        """Take C times the newest block, which is overwritten, and append the next block."""
        old, size = self.done, self.size
        self._old, self.done = old, size
        self._coupling[:size, old:size] = _project_out(self.vectors, images)
        room = len(self._vectors) - size
        following, upper = _independent(images, self.vectors, self.noise, room)
        rank = len(upper)
        self.invariant = rank == 0
        self._coupling[size : size + rank, old:size] = upper
        self._append(following)
        # Random vectors replace dependent ones; they may find what the start block missed.
        missing = min(self._width, room) - rank
        if missing > 0:
            fresh = self._rng.standard_normal((len(self._vectors), missing))
            self._append(_independent(fresh, self.vectors, 0.0, missing)[0])

    def continued(self, k: int) -> tuple[Float, Float, Float]:
        """Return leading eigenpairs of the projected C, continued by CONTINUED blocks.

        These are the k + 1 largest eigenvalues, falling, the (size, k) coordinates of the k
        leading vectors in this space, and their (k,) lengths beyond it.
        """
        old, done, size = self._old, self.done, self.size
        width = size - done
        total = size + (CONTINUED - 1) * width
        known, onward = self.coupling[:done], self.coupling[done:]
        middle = step = 0.0  # an invariant space is not continued
        if onward.any():
            middle = float(np.trace(known[old:, old:])) / (done - old)
            step = float(np.linalg.norm(onward)) / width**0.5
        square = np.diag(np.full(total, middle))
        square[:done, :done] = (known + known.T) / 2
        square[done:size, :done] = onward
        # Only the lower triangle is read.
        rows = np.arange(size, total)
        square[rows, rows - width] = step
        pairs = min(k + 1, total)
        values, vectors = scipy.linalg.eigh(
            square, subset_by_index=(total - pairs, total - 1), check_finite=False
        )
        inside = vectors[:size, ::-1][:, :k]
        beyond = np.zeros(inside.shape[1])
        if total > size:  # else this is the root of a rounding error
            beyond = np.sqrt(np.maximum(1.0 - np.einsum("ij,ij->j", inside, inside), 0.0))
        return np.maximum(values[::-1], 0.0), inside, beyond

    def _append(self, block: Float) -> None:
        size = self.size + block.shape[1]
        self._vectors[:, self.size : size] = block
        self.size = size


def _project_out(basis: Float, block: Float) -> Float:
    """Make a block orthogonal to an orthonormal basis, in place; return its coefficients."""
    first = basis.T @ block
    block -= basis @ first
    second = basis.T @ block  # twice is enough (Kahan and Parlett)
    block -= basis @ second
    coefficients: Float = first + second
    return coefficients


def _independent(block: Float, basis: Float, noise: float, room: int) -> tuple[Float, Float]:
    """Return orthonormal Q, orthogonal to the basis, and R with Q R = the block up to noise.

    The block is orthogonal to the basis up to rounding; Q has at most ``room`` columns.
    """
    q, upper, order = scipy.linalg.qr(block, mode="economic", pivoting=True, check_finite=False)
    rank = min(int((np.abs(np.diag(upper)) > noise).sum()), room)
    unordered = np.empty((rank, block.shape[1]))
    unordered[:, order] = upper[:rank]
    # Normalising a faint direction has magnified what it had of the basis.
    clean = np.asarray(q[:, :rank], np.float64)
    _project_out(basis, clean)
    final, rest = scipy.linalg.qr(clean, mode="economic", check_finite=False)
    return np.asarray(final, np.float64), rest @ unordered


@dataclass(frozen=True)
class RitzPairs:
    """The leading Ritz pairs of a Krylov space, at most r of them."""

    values: Float  # (r,), falling, at least 0
    vectors: Float  # (u, r), orthonormal
    residuals: Float  # (r,), ||C v - value v||

    @classmethod
    def of(cls, space: Krylov, r: int) -> RitzPairs:
        coupling, done = space.coupling, space.done
        square = coupling[:done]
        values, mix = np.linalg.eigh((square + square.T) / 2)
        values, mix = values[::-1][:r], mix[:, ::-1][:, :r]
        differences = coupling @ mix
        differences[:done] -= mix * values
        residuals = np.linalg.norm(differences, axis=0)
        return cls(np.maximum(values, 0.0), space.vectors[:, :done] @ mix, residuals)

    def scores(self, k: int) -> Float:
        """Return (u,) sums of value v_i^2 over the k leading pairs."""
        leading: Float = self.vectors[:, :k] ** 2 @ self.values[:k]
        return leading


def score_errors(space: Krylov, ritz: RitzPairs, k: int) -> Float:
    """Estimate the (u,) errors of the scores: what more reads would change.

    The recurrence is continued by CONTINUED steps with the mean of its latest coefficients, to
    which those of a noise spectrum tend. The scores of its k leading vectors are compared with
    the present ones. Along the vectors of the space their difference is known; of what lies beyond
    only the length is, and it is spread over the features like the k-th and later Ritz vectors.
    No length is below that of rounding: noise over gap (Davis and Kahan).
    """
    u = len(ritz.vectors)
    if len(ritz.values) < k:
        return np.ones(u)
    values, inside, beyond = space.continued(k)
    next_value = values[k] if len(values) > k else 0.0
    values = values[:k]
    rounding = space.noise / np.maximum(values - next_value, space.noise)
    beyond = np.minimum(np.hypot(beyond, rounding), 1.0)
    grown = space.vectors @ inside
    moved = np.abs(grown**2 @ values - ritz.scores(k))
    edge = ritz.vectors[:, k - 1 :]
    unseen = LARGE_ENTRY * np.sqrt(np.einsum("ij,ij->i", edge, edge) / edge.shape[1])
    np.abs(grown, out=grown)
    crossed = grown @ (values * beyond) * 2 * unseen
    errors: Float = np.minimum(moved + crossed + unseen**2 * (values @ beyond**2), 1.0)
    return errors


def contenders(scores: Float, errors: Float, h: int | None) -> Bool:
    """Find features whose scores, given their errors, may be among the h highest; None: all."""
    if h is None or h >= len(scores):
        return np.ones(len(scores), bool)
    least = np.partition(scores - errors, -h)[-h]
    counted: Bool = scores + errors >= least
    return counted

"""The Krylov space of a block Lanczos run, its Ritz pairs, and what they leave open.

C maps the newest block beyond the space; everything before it is known. So the projected C gives
Ritz pairs with their residuals, and its continuation an estimate of what more reads would change.

Sources: Golub and Underwood, "The block Lanczos method for computing eigenvalues" (1977); Davis
and Kahan, "The rotation of eigenvectors by a perturbation" (1970).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from kmufs_stream.typing import Bool, Float

ROUNDING = 8.0  # in units of eps * lambda_1: what a product makes of a vector that is none
LARGE_ENTRY = 2.5  # of a vector not seen yet, in root mean squares of its feature's entries
CONTINUED = 8  # blocks that an estimate looks ahead


class Krylov:
    """Orthonormal vectors, block after block, and C projected on them.

    Attributes
    ----------
    vectors : (u, size) float64, orthonormal; the images of the first ``done`` are known.
    coupling : (size, done) float64, vectors^T C vectors[:, :done]; C times those vectors is
        ``vectors @ coupling`` up to rounding.
    invariant : C maps the span of the vectors into itself up to rounding.
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
        """The block whose images are to be found."""
        return self._vectors[:, self.done : self.size]

    @property
    def noise(self) -> float:
        """Length of what rounding makes of a vector that should be none."""
        known = self._coupling[: self.done, : self.done]
        return ROUNDING * self._eps * float(np.linalg.norm(known, 2))

    def extend(self, images: Float) -> None:
        """Take C times the newest block, which is used up, and add the next block."""
        old, size = self.done, self.size
        self._old, self.done = old, size
        self._coupling[:size, old:size] = _project_out(self.vectors, images)
        room = len(self._vectors) - size
        following, upper = _independent(images, self.vectors, self.noise, room)
        rank = len(upper)
        self.invariant = rank == 0
        self._coupling[size : size + rank, old:size] = upper
        self._append(following)
        # Random vectors in place of what was dependent may meet what the start block missed.
        missing = min(self._width, room) - rank
        if missing > 0:
            fresh = self._rng.standard_normal((len(self._vectors), missing))
            self._append(_independent(fresh, self.vectors, 0.0, missing)[0])

    def continued(self, k: int) -> tuple[Float, Float, Float]:
        """Leading eigenpairs of the projected C, continued by CONTINUED blocks.

        Returns the k + 1 largest eigenvalues, falling, the (size, k) coordinates that the k
        leading vectors have in this space, and the (k,) lengths that they have beyond it.
        """
        old, done, size = self._old, self.done, self.size
        width = size - done
        total = size + (CONTINUED - 1) * width
        known, onward = self.coupling[:done], self.coupling[done:]
        middle = step = 0.0  # where nothing leads on, nothing is expected beyond
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
        if total > size:  # else 1 - 1 leaves the root of a rounding error
            beyond = np.sqrt(np.maximum(1.0 - np.einsum("ij,ij->j", inside, inside), 0.0))
        return np.maximum(values[::-1], 0.0), inside, beyond

    def _append(self, block: Float) -> None:
        size = self.size + block.shape[1]
        self._vectors[:, self.size : size] = block
        self.size = size


def _project_out(basis: Float, block: Float) -> Float:
    """Make a block orthogonal to an orthonormal basis, in place; returns what it had of it."""
    first = basis.T @ block
    block -= basis @ first
    second = basis.T @ block  # twice is enough (Kahan and Parlett)
    block -= basis @ second
    coefficients: Float = first + second
    return coefficients


def _independent(block: Float, basis: Float, noise: float, room: int) -> tuple[Float, Float]:
    """Orthonormal Q, orthogonal to the basis, and R with Q R = the block up to noise.

    The block is orthogonal to the basis but for rounding; Q has at most ``room`` columns.
    """
    q, upper, order = scipy.linalg.qr(block, mode="economic", pivoting=True, check_finite=False)
    rank = min(int((np.abs(np.diag(upper)) > noise).sum()), room)
    unordered = np.empty((rank, block.shape[1]))
    unordered[:, order] = upper[:rank]
    # A faint direction still carries some of the basis, grown by its normalisation.
    clean = np.asarray(q[:, :rank], np.float64)
    _project_out(basis, clean)
    final, rest = scipy.linalg.qr(clean, mode="economic", check_finite=False)
    return np.asarray(final, np.float64), rest @ unordered


@dataclass(frozen=True)
class RitzPairs:
    """The leading Ritz pairs of a Krylov space.

    Attributes
    ----------
    values : (r,) float64, falling, at least 0.
    vectors : (u, r) float64, orthonormal.
    residuals : (r,) float64, ||C v - value v||.
    directions : (size, r) float64, C v - value v in the coordinates of the space.
    """

    values: Float
    vectors: Float
    residuals: Float
    directions: Float

    @classmethod
    def of(cls, space: Krylov, r: int) -> RitzPairs:
        """The r leading pairs, or as many as the space has."""
        coupling, done = space.coupling, space.done
        square = coupling[:done]
        values, mix = np.linalg.eigh((square + square.T) / 2)
        values, mix = values[::-1][:r], mix[:, ::-1][:, :r]
        directions = coupling @ mix
        directions[:done] -= mix * values
        residuals = np.linalg.norm(directions, axis=0)
        vectors = space.vectors[:, :done] @ mix
        return cls(np.maximum(values, 0.0), vectors, residuals, directions)

    def scores(self, k: int) -> Float:
        """(u,) sums of value v_i^2 over the k leading pairs."""
        leading: Float = self.vectors[:, :k] ** 2 @ self.values[:k]
        return leading


def score_errors(space: Krylov, ritz: RitzPairs, k: int) -> Float:
    """(u,) estimates of the errors of the scores: what more reads would change.

    The recurrence is continued by CONTINUED steps with the mean of its latest coefficients, which
    is where those of a noise spectrum tend to. The scores of the k leading vectors that this has
    show how far the present ones are off: outright along the vectors that there are already;
    along those not there yet by a length, spread over the features as the k-th Ritz vector and
    those after it are. A length is never below what rounding makes: noise over gap (Davis and
    Kahan).
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
    """Features whose scores, wrong by up to their errors, may be among the h highest.

    All of them without h.
    """
    if h is None or h >= len(scores):
        return np.ones(len(scores), bool)
    least = np.partition(scores - errors, -h)[-h]
    counted: Bool = scores + errors >= least
    return counted

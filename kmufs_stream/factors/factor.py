"""The rank-r factor of the standardised data: what the methods find, and solvers need."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.errors import Option, RequestError, Text
from kmufs_stream.factors.methods.leading import Leading, score_tolerance
from kmufs_stream.factors.noise import noise_edge
from kmufs_stream.options import Screening
from kmufs_stream.streaming.kernels.sample import stack
from kmufs_stream.streaming.kernels.scaling import Precision

PARTS = "parts"  # of a fingerprint: the stores that rows were added from
SAMPLE_BLOCK = 2**20  # numbers in a block of the row sample


@dataclass(eq=False)
class RowSample:
    """Rows of the source chosen uniformly by a seeded hash of their numbers.

    Attributes
    ----------
    index : (m,) int64, ascending row numbers; rows dropped for missing values are left out.
    pieces : the rows as they were read, some after the others; joined, for good, once ``values``
        have been asked for: both at a time would take twice the memory.
    """

    index: NDArray[np.int64]
    pieces: list[NDArray[Any]]

    @property
    def values(self) -> NDArray[Any]:
        """(m, p) the rows, all features, in the source's dtype; what is missing is NaN."""
        if len(self.pieces) > 1:
            self.pieces = [stack(self.pieces)]
        return self.pieces[0]

    def runs(self, rows: int, columns: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
        """Some columns, so many rows at a time wherever pieces end; these are not joined."""
        parts: list[NDArray[Any]] = []
        missing = rows
        for piece in self.pieces:
            start = 0
            while start < len(piece):
                parts.append(piece[start : start + missing, columns])
                start += missing
                missing -= len(parts[-1])
                if not missing:
                    yield stack(parts)
                    missing = rows
        if parts:
            yield stack(parts)


@dataclass(frozen=True)
class TiedComponents:
    """Neighbouring components, the k-th and the next among them, that the factor cannot tell apart.

    Any k-dimensional subspace that takes some of theirs is as good: scores are not unique.

    Attributes
    ----------
    first, last : their numbers, counted from 1; ``last`` may only be the last that there is.
    within : eigenvalues of neighbours among them differ by no more, which is no more than they
        may be wrong by.
    noise : whether all lie below the noise edge, as the k-th and later of k separate clusters do.
    try_k : the nearest k, below and above, that take none or all of them; in the noise the k that
        the components above its edge speak for, if that is smaller. Empty if there are none, and
        where more reads may tell the components apart.
    """

    first: int
    last: int
    within: float
    noise: bool
    try_k: tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Factor(Leading):
    """All that solvers need: the leading r components of the standardised data, and a row sample.

    The standardised data are Z = Q S P^T, of u features; A = P_k (S_k^2 / n) P_k^T (paper eq. 8
    divided by n) is never formed. :func:`kmufs_stream.decompose` makes it.

    Attributes
    ----------
    features : Standardised
        What was standardised, and how: ``samples``, ``mean``, ``std``, the ``usable`` features,
        those ``excluded`` by reason.
    components : float64 array, shape (u, r)
        P: orthonormal columns, the largest entry of each positive.
    singular_values : float64 array, shape (r,)
        S, falling; singular values of Z, growing as sqrt(n).
    residuals : float64 array, shape (r,)
        Ritz residuals ||C P_j - lambda_j P_j|| of the correlation matrix C.
    score_error : float
        Bound, or estimate, of the largest error of the scores a_i that matter.
    settled : bool
        Whether the scores had settled within the tolerance asked for.
    last_change : float
        Largest change of a score over the last read; infinite after one read.
    passes : int
        Reads of the data that it took.
    correlation : float64 array, shape (u, u), or None
        The correlation matrix, where it was formed.
    gaps : Gaps or None
        Where it was and means stand in, sums over what is missing of the g features asked for that
        miss values: V^T (x - mean), (g, q), and V^T V, (g, g).
    k : int
        Clusters that it was made for; it answers smaller k, and larger ones up to its rank.
    sample : RowSample
        Uniform sample of rows: ``index`` and ``values``.
    screening : Screening
        What became of missing values and of features that hardly vary.
    method : str
        ``gram``, ``tsqr`` or ``lanczos``.
    precision : str
        Of the products of blocks.
    labels : object array, shape (p,), or None
        Texts that name the features.
    fingerprint : dict of str to str
        Of the data that it belongs to; empty for rows that came in batches.
    located : dict
        Where in these the table is; see :class:`kmufs_stream.Matrix`.
    where : str
        The condition that its samples meet, where one was asked for.
    origin : dict of str to str
        Where these data lie, and the command line that made it and when, where one did.
    """

    k: int
    sample: RowSample
    screening: Screening
    method: str
    precision: Precision
    labels: NDArray[np.object_] | None
    fingerprint: dict[str, str]
    located: dict[str, Any] = field(default_factory=dict)
    where: str = ""
    origin: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        n, p = self.features.samples, len(self.features.mean)
        return f"<Factor: {len(self.singular_values)} components of {n} x {p}, by {self.method}>"

    @property
    def added_to(self) -> bool:
        """Whether rows were added to it, so that no one store may hold them all."""
        return PARTS in self.fingerprint

    @property
    def transforms(self) -> tuple[str, ...]:
        """Those of the data, in the order of application."""
        names = self.fingerprint.get("transforms", "none")
        return () if names == "none" else tuple(names.split(", "))

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays, the row sample aside."""
        square = 0 if self.correlation is None else self.correlation.nbytes
        gaps = 0 if self.gaps is None else self.gaps.values.nbytes + self.gaps.counts.nbytes
        return square + gaps + 3 * self.components.nbytes

    def sample_blocks(self, some: NDArray[np.int64] | None = None) -> Iterator[NDArray[np.float64]]:
        """The row sample, standardised, in blocks of some MB; missing is 0.

        Of all usable features, or of some of them.
        """
        features = self.features
        usable = features.usable if some is None else features.usable[some]
        mean, std = features.mean[usable], features.std[usable]
        rows = max(SAMPLE_BLOCK // len(usable), 1)
        for run in self.sample.runs(rows, usable):
            block = run.astype(np.float64)
            block -= mean
            block /= std
            yield np.nan_to_num(block, copy=False, nan=0.0)

    @property
    def tie(self) -> float:
        """Scores that differ by less tie: what rounding alone may make of equal features."""
        return score_tolerance(self.precision)

    @property
    def rounding(self) -> float:
        """What rounding makes of an eigenvalue.

        Rounding of block products moves each correlation by about eps, at random, and so
        eigenvalues by about sqrt(u) eps; the eigenproblem adds u eps_64 lambda_1 at most.
        """
        u = len(self.components)
        products = 4 * np.sqrt(u) * float(np.finfo(self.precision).eps)
        return float(products + u * np.finfo(np.float64).eps * self.eigenvalues[0])

    @property
    def rank(self) -> int:
        """Components that stand above rounding: no k beyond this is answered."""
        return int((self.eigenvalues > self.rounding).sum())

    def tied_components(self, k: int) -> TiedComponents | None:
        """The components that tie with the k-th where the next one does, or None.

        Neighbours tie if their eigenvalues differ by no more than both may be wrong by: each by
        rounding and by its residual, within which of a Ritz value an eigenvalue lies.
        """
        values, errors = self.eigenvalues, self.rounding + self.residuals
        within = errors[:-1] + errors[1:]
        tied = values[:-1] - values[1:] <= within
        if k >= len(values) or not tied[k - 1]:
            return None
        apart = np.flatnonzero(~tied) + 1  # numbers of components that do not tie with the next
        first = int(apart[apart < k].max(initial=0)) + 1
        last = int(apart[apart > k].min(initial=len(values)))
        edge = noise_edge(len(self.components), self.features.samples)
        noise = self.settled and bool(values[first - 1] <= edge)
        above = int((values > edge).sum())
        whole = last < len(values) or last == len(self.components)
        try_k = [first - 1] * (first > 1) + [last] * (whole and last <= self.rank)
        if noise:
            try_k = [above + 1] * (0 < above < k - 1)
        if not self.settled:
            try_k = []  # another read may tell them apart
        error = float(within[first - 1 : last - 1].max())
        return TiedComponents(first, last, error, noise, tuple(try_k))


def as_whole(name: str, value: SupportsIndex) -> int:
    """A number that was given as k or h, of whatever type. Refuses what is not whole, and bool."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError("no number")
        return operator.index(value)
    except TypeError as error:
        raise RequestError(
            f"bad_{name}", f"{name} is {value!r}.", f"Give {name} as a whole number."
        ) from error


def check_k(k: int, limit: int, what: str = "features") -> None:
    """Refuse k < 1 and k beyond the number of features."""
    if k < 1:
        raise RequestError(
            "bad_k", f"k is {k}; clusters are counted from 1.", Text("Give {k} or more.", k=1)
        )
    if k > limit:
        raise RequestError(
            "bad_k",
            f"k is {k}, but the number of {what} is {limit}.",
            Text("Give {k} or less.", k=limit),
        )


def check_rank(k: int, factor: Factor) -> None:
    """Refuse k beyond the rank: the components further on are rounding."""
    rank = factor.rank
    if k <= rank:
        return
    kept = len(factor.singular_values)
    if rank == kept < len(factor.components):
        raise RequestError(
            "bad_k",
            f"k is {k}, but this factor holds {rank} components.",
            Text("Give {k} or less, or decompose again with a larger {}.", Option("k"), k=rank),
        )
    raise RequestError(
        "bad_k",
        f"k is {k}, but the standardised data have rank {rank}.",
        Text("Give {k} or less.", k=rank),
    )

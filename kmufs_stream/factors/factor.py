"""The rank-r factor of the standardised data: all that solvers need to know of them."""

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
    index : (m,) int64, ascending row numbers, without rows dropped for missing values.
    pieces : the rows in the pieces in which they were read; ``values`` joins them for good, since
        holding both would take twice the memory.
    """

    index: NDArray[np.int64]
    pieces: list[NDArray[Any]]

    @property
    def values(self) -> NDArray[Any]:
        """(m, p) rows, all features, in the source's dtype; missing values are NaN."""
        if len(self.pieces) > 1:
            self.pieces = [stack(self.pieces)]
        return self.pieces[0]

    def runs(self, rows: int, columns: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
        """Yield some columns, ``rows`` rows at a time, without joining the pieces."""
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
    """Neighbouring components, around the k-th, that the factor cannot tell apart.

    Any subspace that takes some of them is as good as another, so scores are not unique.

    Attributes
    ----------
    first, last : their numbers, from 1; more may follow ``last`` if the factor ends there.
    within : largest difference of neighbouring eigenvalues, within their errors.
    noise : whether all lie below the noise edge, as the k-th and later of k separate clusters do.
    try_k : the nearest k below and above that take none or all of them; among noise, the k that
        the components above the edge suggest, if smaller. Empty if there is none, or if more reads
        may tell the components apart.
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
        With a correlation matrix and ``missing="mean"``, sums over the missing values V of the g
        features that have some: V^T (x - mean), (g, q), and V^T V, (g, g).
    k : int
        Clusters that it was made for; it answers any k up to its rank.
    sample : RowSample
        Uniform sample of rows: ``index`` and ``values``.
    screening : Screening
        How missing values and features that hardly vary were treated.
    method : str
        ``gram``, ``tsqr`` or ``lanczos``.
    precision : str
        Of the products of blocks.
    labels : object array, shape (p,), or None
        Texts that name the features.
    fingerprint : dict of str to str
        Of the data that it belongs to; empty if the rows came in batches.
    located : dict
        The options of :func:`kmufs_stream.open_matrix` that located the table in the data.
    where : str
        The condition that its samples meet, or "".
    origin : dict of str to str
        ``source`` of the data; also ``command`` and ``created`` if a command line made it.
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

    def summary(self) -> dict[str, Any]:
        """The factor in plain JSON types; the keys are listed in docs/output.md."""
        features = self.features
        return {
            "k": self.k,
            "components": len(self.singular_values),
            "rank": self.rank,
            "singular_values": self.singular_values.tolist(),
            "eigenvalues": self.eigenvalues.tolist(),
            "residuals": self.residuals.tolist(),
            "method": self.method,
            "precision": self.precision,
            "passes": self.passes,
            "settled": self.settled,
            "score_error": self.score_error,
            "samples": features.samples,
            "features": len(features.mean),
            "usable": len(features.usable),
            "excluded": {reason: index.tolist() for reason, index in features.excluded.items()},
        }

    @property
    def added_to(self) -> bool:
        """Whether rows were added to it: no single store may hold them all."""
        return PARTS in self.fingerprint

    @property
    def transforms(self) -> tuple[str, ...]:
        """Transforms of the data, in order of application."""
        names = self.fingerprint.get("transforms", "none")
        return () if names == "none" else tuple(names.split(", "))

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays, without the row sample."""
        square = 0 if self.correlation is None else self.correlation.nbytes
        gaps = 0 if self.gaps is None else self.gaps.values.nbytes + self.gaps.counts.nbytes
        return square + gaps + 3 * self.components.nbytes

    def sample_blocks(self, some: NDArray[np.int64] | None = None) -> Iterator[NDArray[np.float64]]:
        """Yield the standardised row sample in blocks of some MB; missing values are 0.

        ``some`` selects among the usable features.
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
        """Scores that differ by less are ties: rounding alone may separate equal features."""
        return score_tolerance(self.precision)

    @property
    def rounding(self) -> float:
        """Rounding error of an eigenvalue.

        Block products are off by about eps at random per correlation, so eigenvalues by about
        sqrt(u) eps; the eigensolver adds at most u eps_64 lambda_1.
        """
        u = len(self.components)
        products = 4 * np.sqrt(u) * float(np.finfo(self.precision).eps)
        return float(products + u * np.finfo(np.float64).eps * self.eigenvalues[0])

    @property
    def rank(self) -> int:
        """Number of components above rounding: the largest k that can be answered."""
        return int((self.eigenvalues > self.rounding).sum())

    def tied_components(self, k: int) -> TiedComponents | None:
        """Find the components that tie with both the k-th and the next; None if those differ.

        Neighbours tie if their eigenvalues differ by no more than their errors: rounding, plus the
        residual, within which of a Ritz value an eigenvalue lies.
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
    """Convert k or h to int. Raises RequestError for bool and whatever is not whole."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError("no number")
        return operator.index(value)
    except TypeError as error:
        raise RequestError(
            f"bad_{name}", f"{name} is {value!r}.", f"Give {name} as a whole number."
        ) from error


def check_k(k: int, limit: int, what: str = "features") -> None:
    """Raise RequestError unless 1 <= k <= limit, the number of ``what``."""
    _check_count("k", k, limit, "clusters", what)


def check_h(h: int, limit: int, what: str = "features") -> None:
    """Raise RequestError unless 1 <= h <= limit, the number of ``what``."""
    _check_count("h", h, limit, "features", what)


def _check_count(name: str, count: int, limit: int, things: str, what: str) -> None:
    if count < 1:
        raise RequestError(
            f"bad_{name}",
            f"{name} is {count}; {things} are counted from 1.",
            Text("Give {} or more.", Option(**{name: 1})),
        )
    if count > limit:
        raise RequestError(
            f"bad_{name}",
            f"{name} is {count}, but the number of {what} is {limit}.",
            Text("Give {} or less.", Option(**{name: limit})),
        )


def check_rank(k: int, factor: Factor) -> None:
    """Raise RequestError if k is beyond the components of a factor, or those beyond rounding."""
    check_k(k, len(factor.components), "usable features")
    check_k(k, len(factor.singular_values), "components in this factor")
    check_k(k, factor.rank, "components beyond rounding, the rank,")

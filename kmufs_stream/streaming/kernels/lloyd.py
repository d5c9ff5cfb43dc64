"""K-means over all rows: a Lloyd step of several starts per read, and sums over clusters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from kmufs_stream.streaming.kernels.kernel import Kernel, Sums
from kmufs_stream.typing import Array, Float, Int

SLAB_ROWS = 4096  # of a block at a time: bounds the distances that are held


@dataclass(frozen=True)
class Standard:
    """Means and standard deviations, (p,), that rows are standardised with.

    A feature whose std is 0 becomes 0, and so does a missing value.
    """

    mean: Float
    std: Float

    def of(self, columns: Int) -> Standard:
        return Standard(self.mean[columns], self.std[columns])

    def same_as(self, other: Standard) -> bool:
        return np.array_equal(self.mean, other.mean) and np.array_equal(self.std, other.std)

    def rows(self, values: Array) -> Float:
        """Return (x - mean) / std, (rows, p) float64."""
        inverse = np.divide(1.0, self.std, where=self.std > 0, out=np.zeros(len(self.std)))
        standardised: Float = np.subtract(values, self.mean, dtype=np.float64)
        with np.errstate(invalid="ignore"):  # infinite values of features whose std is 0
            standardised *= inverse
        if values.dtype.kind == "f":
            standardised[np.isnan(standardised)] = 0.0
        return standardised

    def slabs(self, values: Array) -> Iterator[tuple[int, Float]]:
        """Yield standardised slabs, each after the number of its first row."""
        for a in range(0, len(values), SLAB_ROWS):
            yield a, self.rows(values[a : a + SLAB_ROWS])


@dataclass
class LloydState(Sums):
    """The assignment of the rows, for s starts."""

    counts: Int  # (s, k), rows nearest to each centre
    sums: Float  # (s, k, p), their sums
    cost: Float  # (s,), sums of squared distances to the nearest centres


@dataclass(frozen=True)
class Lloyd(Kernel[LloydState]):
    """The assignment step of K-means, for s starts at once.

    O(rows s k p) per block; the state takes 8 s k (p + 1) bytes. Ties go to the lower cluster.
    Source: Lloyd, "Least squares quantization in PCM" (1982).
    """

    standard: Standard
    centres: Float  # (s, k, p), standardised

    def init(self) -> LloydState:
        s, k, p = self.centres.shape
        return LloydState(np.zeros((s, k), np.int64), np.zeros((s, k, p)), np.zeros(s))

    def update(self, state: LloydState, values: Array, start: int) -> LloydState:
        k = self.centres.shape[1]
        for _, rows in self.standard.slabs(values):
            squares = np.einsum("ij,ij->", rows, rows)
            for i, (nearest, distances) in enumerate(_nearest(rows, self.centres)):
                state.counts[i] += np.bincount(nearest, minlength=k)
                state.sums[i] += _sums(rows, nearest, k)
                state.cost[i] += squares + distances.sum()
        return state


@dataclass
class ClustersState(Sums):
    """Sums over clusters."""

    counts: Int  # (k,), rows of each cluster
    sums: Float  # (k, p), their sums, standardised
    squares: Float  # (p,), sums of squares of all rows, standardised
    contingency: Int  # (k, c), rows of each cluster and class, without those of no class


@dataclass(frozen=True)
class Clusters(Kernel[ClustersState]):
    """Assign rows to clusters by some of their features, and sum all features by cluster.

    O(rows k h + rows p) per block; the state takes 8 k (p + c + 1) bytes.
    """

    standard: Standard  # of all p features
    columns: Int  # (h,), the features of the centres
    centres: Float  # (k, h), standardised
    codes: NDArray[np.int32] | None  # (n,), class of each row, -1 for none; None without classes
    classes: int  # c

    def init(self) -> ClustersState:
        k, p, c = len(self.centres), len(self.standard.mean), self.classes
        counts, table = np.zeros(k, np.int64), np.zeros((k, c), np.int64)
        return ClustersState(counts, np.zeros((k, p)), np.zeros(p), table)

    def update(self, state: ClustersState, values: Array, start: int) -> ClustersState:
        k = len(self.centres)
        for a, rows in self.standard.slabs(values):
            ((nearest, _),) = _nearest(rows[:, self.columns], self.centres[None])
            state.counts += np.bincount(nearest, minlength=k)
            state.sums += _sums(rows, nearest, k)
            state.squares += np.einsum("ij,ij->j", rows, rows)
            if self.codes is not None:
                codes = self.codes[start + a : start + a + len(rows)]
                known = codes >= 0
                cells = nearest[known] * self.classes + codes[known]
                state.contingency += np.bincount(cells, minlength=k * self.classes).reshape(k, -1)
        return state


def _nearest(rows: Float, centres: Float) -> Iterator[tuple[Int, Float]]:
    """Yield, by start, each row's nearest centre, and |row - centre|^2 - |row|^2."""
    s, k, p = centres.shape
    products = rows @ centres.reshape(s * k, p).T
    products *= -2.0
    products += np.einsum("skp,skp->sk", centres, centres).reshape(-1)
    for distances in products.reshape(-1, s, k).swapaxes(0, 1):
        nearest = distances.argmin(axis=1)
        yield nearest, distances[np.arange(len(rows)), nearest]


def _sums(rows: Float, nearest: Int, k: int) -> Float:
    """Return the (k, p) sums of the rows of each cluster."""
    n = len(rows)
    member = scipy.sparse.csc_array((np.ones(n), nearest, np.arange(n + 1)), shape=(k, n))
    return np.asarray(member @ rows, dtype=np.float64)

"""Kernels for sparse data: CSR blocks, never centred, made dense at most a slab of rows at a time.

Means are subtracted from the sums, not from the rows: with b = x / scale,
sum (b - m)(b - m)^T = sum b b^T - n m m^T. All sums are in float64, so a variance or covariance
has a relative error of about eps (1 + (mean / std)^2): 1e-14 for a mean of ten standard
deviations, 1e-10 for a thousand. Beyond ``CANCELS`` the data are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
from scipy.sparse import csr_array

from kmufs_stream.streaming.kernels.gram import Gram, GramState
from kmufs_stream.streaming.kernels.kernel import Kernel, State
from kmufs_stream.streaming.kernels.moments import Moments
from kmufs_stream.streaming.kernels.products import ProductState, StartProduct, StartState
from kmufs_stream.streaming.kernels.scaling import Scaling, power_of_two
from kmufs_stream.typing import Array, Float, Int

SLAB_BYTES = 2**24, 2**26  # least and most made dense at a time
PAIRS = 2**20  # of entries in the same row, multiplied at a time: bounds a sparse product
PAIR_COST = 1000  # of a pair in a sparse product, in multiplications of a dense one
CANCELS = 1e5  # |mean| / std from which scores lose digits that ties depend on


def slab_rows(p: int) -> int:
    """Rows of p features that are made dense at a time: 4 p, within SLAB_BYTES."""
    least, most = SLAB_BYTES
    return max(min(max(32 * p * p, least), most) // (8 * p), 64)


def gram_update_bytes(rows: int, p: int) -> int:
    """Upper bound of what an update of SparseGram takes beside the scaled block."""
    return 8 * min(rows, slab_rows(p)) * p + max(8 * p * p, 40 * PAIRS)


def sparse_scaling(probe: Any) -> Scaling:
    """Scale features without a shift, from a few CSR rows; see ``Scaling.from_probe``."""
    rows, p = probe.shape
    values = probe.data.astype(np.float64)
    lost = ~np.isfinite(values)
    values[lost] = np.nan
    known = csr_array((values, probe.indices, probe.indptr), shape=probe.shape)
    low, high = ranges(known, np.arange(p))
    unit = power_of_two(np.nan_to_num(np.maximum(np.abs(low), np.abs(high))))
    values[lost] = 0.0
    values /= unit[probe.indices]
    count = np.maximum(rows - np.bincount(probe.indices[lost], minlength=p), 1)
    mean = np.bincount(probe.indices, values, p) / count
    square = np.bincount(probe.indices, values**2, p) / count
    std = np.sqrt(np.maximum(square - mean**2, 0.0))
    varies = (low < high) & (std > 1 / CANCELS)  # less may be rounding
    scale = np.clip(power_of_two(np.where(varies, std, 1.0) * unit), 2.0**-1000, 2.0**1000)
    return Scaling(np.zeros(p), scale, np.flatnonzero(~varies), "float64")


def ranges(x: csr_array, features: Int) -> tuple[Array, Array]:
    """Smallest and largest value of some features, zeros included; NaN where all are missing."""
    columns: Any = x[:, features].tocsc() if len(features) < x.shape[1] else x.tocsc()
    stored = np.diff(columns.indptr)
    filled = np.flatnonzero(stored)
    low, high = np.zeros(len(features), x.dtype), np.zeros(len(features), x.dtype)
    if len(filled):
        starts = columns.indptr[filled]
        low[filled] = np.fmin.reduceat(columns.data, starts)
        high[filled] = np.fmax.reduceat(columns.data, starts)
    partly = stored < x.shape[0]
    zero = x.dtype.type(0)
    low[partly], high[partly] = np.fmin(low[partly], zero), np.fmax(high[partly], zero)
    return low, high


def _scaled(moments: Moments, scaling: Scaling, x: csr_array) -> Any:
    """Add one block to the moments; return x / scale in float64, 0 where x is missing. O(nnz).

    Returns None once a value was infinite: from then on values are only counted.
    """
    rows, p = x.shape
    moments.see(rows, *ranges(x, scaling.unsure))
    missing, infinite = np.isnan(x.data), np.isinf(x.data)
    moments.missing += np.bincount(x.indices[missing], minlength=p)
    moments.infinite += np.bincount(x.indices[infinite], minlength=p)
    if not moments.valid:
        return None
    scaled = x.data / scaling.scale[x.indices]
    scaled[missing] = 0.0
    moments.total += np.bincount(x.indices, scaled, p)
    return csr_array((scaled, x.indices, x.indptr), shape=x.shape)


@dataclass(frozen=True)
class SparseGram(Gram):
    """``Gram`` for CSR blocks: moments and Gram matrix of scaled rows.

    Very sparse slabs are multiplied as they are, in O(sum of squared row counts); the others are
    made dense for BLAS, which is faster from about three percent on. An update takes what
    ``gram_update_bytes()`` says, more with gaps.
    """

    def update(self, state: GramState, values: Any, start: int) -> GramState:
        rows = _scaled(state.moments, self.scaling, values)
        if rows is None:
            return state
        if self.note_gaps:
            _note_gaps(state, values, rows)
        pairs = np.cumsum(np.diff(rows.indptr).astype(np.int64) ** 2)
        p = rows.shape[1]
        if len(pairs) and pairs[-1] * PAIR_COST < len(pairs) * p * p:
            for a, b in _cuts(pairs):
                _add_sparse(state.scatter, rows[a:b])
        else:
            for slab in _slabs(rows):
                state.scatter += slab.T @ slab
        return state


def _note_gaps(state: GramState, values: csr_array, rows: csr_array) -> None:
    """Add the gaps of a block to a state."""
    there = np.flatnonzero(np.isnan(values.data))
    if not len(there):
        return
    row = np.searchsorted(values.indptr, there, side="right") - 1
    features, column = np.unique(values.indices[there], return_inverse=True)
    shape = (len(features), values.shape[0])
    missing = csr_array((np.ones(len(there)), (column, row)), shape=shape)
    state.note(features, (missing @ rows).toarray(), (missing @ missing.T).toarray())


@dataclass(frozen=True)
class SparseStartProduct(StartProduct):
    """``StartProduct`` for CSR blocks. O(nnz b) per block."""

    def update(self, state: StartState, values: Any, start: int) -> StartState:
        rows = _scaled(state.moments, self.scaling, values)
        if rows is not None:
            state.squares += np.bincount(rows.indices, rows.data**2, rows.shape[1])
            state.product += (rows.T @ (rows @ self.vectors.T)).T
        return state


@dataclass(frozen=True)
class SparseProduct(Kernel[ProductState]):
    """``Product`` for CSR blocks: (B G^T - 1 c^T)^T B of the scaled rows B = X / scale.

    The vectors are scaled, not the rows. O(nnz b) per block. Missing values count as ``fill``,
    (p,), if an earlier read has found any; all others must be finite.
    """

    vectors: Float
    centre: Float
    scaling: Scaling
    fill: Float | None = None

    def init(self) -> ProductState:
        b, p = self.vectors.shape
        return ProductState(np.zeros((b, p)), np.zeros(b))

    def update(self, state: ProductState, values: csr_array, start: int) -> ProductState:
        rows = values.astype(np.float64)
        if self.fill is not None:
            missing = np.isnan(rows.data)
            rows.data[missing] = self.fill[rows.indices[missing]]
        projected = rows @ (self.vectors / self.scaling.scale).T
        projected -= self.centre
        state.product += (rows.T @ projected).T / self.scaling.scale
        state.total += projected.sum(axis=0)
        return state


@dataclass(frozen=True)
class Densified(Generic[State]):
    """A kernel for dense blocks, fed with CSR blocks a dense slab at a time."""

    kernel: Kernel[State]

    def init(self) -> State:
        return self.kernel.init()

    def update(self, state: State, values: csr_array, start: int) -> State:
        for slab in _slabs(values):
            state = self.kernel.update(state, slab, start)
            start += len(slab)
        return state


def _slabs(rows: csr_array) -> Iterator[Array]:
    step = slab_rows(rows.shape[1])
    for a in range(0, rows.shape[0], step):
        yield rows[a : a + step].toarray()


def _cuts(pairs: Int) -> Iterator[tuple[int, int]]:
    """Runs of rows with at most PAIRS pairs, or one row; ``pairs`` are counted up to each row."""
    a, before = 0, 0
    while a < len(pairs):
        b = max(int(np.searchsorted(pairs, before + PAIRS, side="right")), a + 1)
        yield a, b
        a, before = b, int(pairs[b - 1])


def _add_sparse(scatter: Float, rows: Any) -> None:
    """Add rows^T rows to a scatter; a single full row is made dense for BLAS."""
    p = len(scatter)
    if rows.shape[0] == 1 and rows.nnz**2 > PAIRS:
        slab = rows.toarray()
        scatter += slab.T @ slab
        return
    product = rows.T.tocsr() @ rows
    places = np.repeat(np.arange(p) * p, np.diff(product.indptr)) + product.indices
    scatter.reshape(-1)[places] += product.data

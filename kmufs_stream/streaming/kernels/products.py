"""Products of the data with a block of vectors: the reads of a Lanczos iteration.

Blocks of vectors are stored as rows, (b, p): BLAS is faster on such thin products, and sums over
blocks of samples run along memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kmufs_stream.streaming.kernels.kernel import Kernel, Sums
from kmufs_stream.streaming.kernels.moments import Moments
from kmufs_stream.streaming.kernels.scaling import Precision, Scaling
from kmufs_stream.typing import Array, Float, Floats, Int

SQUARED_ROWS = 256  # summed in the precision of the products before float64 takes over


@dataclass
class StartState(Sums):
    """Moments, sums of squares, and the product with the start block."""

    moments: Moments
    squares: Float  # (p,), sums of ((x - shift) / scale)^2
    product: Float  # (b, p), G B^T B


@dataclass(frozen=True)
class StartProduct(Kernel[StartState]):
    """Moments, squares and G B^T B of the shifted, scaled rows B: the first read.

    O(rows p b) per block; the state takes 8 p (b + 5) bytes. Once a value is infinite, values are
    only counted.
    """

    scaling: Scaling
    vectors: Floats  # (b, p), the start block G, in the scaling's precision

    def init(self) -> StartState:
        b, p = self.vectors.shape
        return StartState(Moments.empty(p), np.zeros(p), np.zeros((b, p)))

    def update(self, state: StartState, values: Any, start: int) -> StartState:
        made = state.moments.add(self.scaling, values, self._product)
        if made is not None:
            state.squares += made[0]
            state.product += made[1]
        return state

    def _product(self, rows: Floats) -> tuple[tuple[Float, Floats], Float]:
        squares = np.zeros(rows.shape[1])
        for a in range(0, len(rows), SQUARED_ROWS):
            slab = rows[a : a + SQUARED_ROWS]
            squares += np.einsum("ij,ij->j", slab, slab)
        vectors = self.vectors.astype(rows.dtype, copy=False)
        return (squares, (vectors @ rows.T) @ rows), squares


@dataclass
class ProductState(Sums):
    """The product of a centred projection Y = X G^T - 1 centre^T with the data."""

    product: Float  # (b, p), Y^T X
    total: Float  # (b,), sums of the columns of Y


@dataclass(frozen=True)
class Far:
    """Features that are shifted and scaled while the others are taken as they are."""

    features: Int  # (f,)
    vectors: Floats  # (b, f), the block of vectors at these features
    scaling: Scaling  # of these features


@dataclass(frozen=True)
class Product(Kernel[ProductState]):
    """(X G^T - 1 c^T)^T X over all rows; each block is used twice while it is in memory.

    Without a scaling values are taken as they are, but for the few features that are ``far``:
    that saves a pass over the block. Missing values, if an earlier read has found ``gaps``, count
    as the shift; all others must be finite. O(rows p b) per block; the state takes 8 (p + 1) b
    bytes.
    """

    vectors: Floats  # (b, p), the block G, in the precision of products; 0 at far features
    centre: Float  # (b,), the projections c = G mean, which keep the sums small
    scaling: Scaling | None
    far: Far | None = None
    gaps: bool = False

    def init(self) -> ProductState:
        b, p = self.vectors.shape
        return ProductState(np.zeros((b, p)), np.zeros(b))

    def update(self, state: ProductState, values: Array, start: int) -> ProductState:
        dtype, far = self.vectors.dtype, self.far
        precision: Precision = "float32" if dtype == np.float32 else "float64"
        if self.scaling is None:
            rows = values.astype(dtype, copy=False)
        else:
            rows = self.scaling.apply(values, precision, gaps=self.gaps)
        projected = self.vectors @ rows.T
        projected -= self.centre[:, None].astype(dtype)
        if far is not None:
            shifted = far.scaling.apply(values[:, far.features], precision)
            projected += far.vectors @ shifted.T
        product = projected @ rows
        if far is not None:
            product[:, far.features] = projected @ shifted
        state.product += product
        state.total += projected.sum(axis=1, dtype=np.float64)
        return state

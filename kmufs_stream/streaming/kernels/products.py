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
    """Moments, sums of squares, and the product with the start block.

    Attributes
    ----------
    moments : counts, sums and ranges.
    squares : (p,) float64, sums of b^2 with b = (x - shift) / scale.
    product : (b, p) float64, G B^T B.
    """

    moments: Moments
    squares: Float
    product: Float


@dataclass(frozen=True)
class StartProduct(Kernel[StartState]):
    """Moments, squares and G B^T B of the shifted, scaled rows B: the first read.

    Parameters
    ----------
    vectors : (b, p) start block G, in the scaling's precision.

    O(rows p b) per block; the state takes 8 p (b + 5) bytes. Once a value is infinite, values are
    only counted.
    """

    scaling: Scaling
    vectors: Floats

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
    """The product of a centred projection with the data.

    Attributes
    ----------
    product : (b, p) float64, Y^T X with Y = X G^T - 1 centre^T.
    total : (b,) float64, sums of the columns of Y.
    """

    product: Float
    total: Float


@dataclass(frozen=True)
class Far:
    """Features that are shifted and scaled while the others are taken as they are.

    Attributes
    ----------
    features : (f,) their indices.
    vectors : (b, f) block of vectors at these features.
    scaling : of these features alone.
    """

    features: Int
    vectors: Floats
    scaling: Scaling


@dataclass(frozen=True)
class Product(Kernel[ProductState]):
    """(X G^T - 1 c^T)^T X over all rows; each block is used twice while it is in memory.

    Parameters
    ----------
    vectors : (b, p) block G, in the precision of the products; 0 at features that are far.
    centre : (b,) projections c = G mean, which keep the sums small.
    scaling : shifts and scales each block first; None takes the values as they are, which saves
        a pass over the block.
    far : the few features that have to be shifted and scaled where the others need not be.
    gaps : values may be missing, as an earlier read has found; they count as the shift.

    O(rows p b) per block; the state takes 8 (p + 1) b bytes. All other values must be finite, as
    an earlier read has found.
    """

    vectors: Floats
    centre: Float
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

"""The tall-skinny QR: the centred scatter as a triangular factor, its condition not squared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from kmufs_stream.streaming.kernels.kernel import Kernel
from kmufs_stream.streaming.kernels.moments import Moments
from kmufs_stream.streaming.kernels.scaling import Scaling
from kmufs_stream.typing import Array, Float, Floats


@dataclass
class TSQRState:
    """Moments, and R with R^T R = B^T B, where a row of B is 1 followed by (x - shift) / scale."""

    moments: Moments
    triangle: Float  # (min(rows, p + 1), p + 1), upper triangular

    def __add__(self, other: TSQRState) -> TSQRState:
        moments = self.moments + other.moments
        if not moments.valid:
            return TSQRState(moments, np.zeros((0, self.triangle.shape[1])))
        stacked = np.asfortranarray(np.concatenate([self.triangle, other.triangle]))
        return TSQRState(moments, _triangle(stacked))


@dataclass(frozen=True)
class TSQR(Kernel[TSQRState]):
    """Moments, and R of the shifted, scaled rows after a column of ones: one QR per block.

    O((rows + p) p^2) per block, so blocks of several times p rows are best; the state takes
    8 (p + 1)^2 bytes, a step as much again and its block in float64. Once a value is not finite,
    values are only counted. Source: Demmel, Grigori, Hoemmen and Langou, "Communication-optimal
    parallel and sequential QR and LU factorizations" (2012).

    Raises ValueError for a scaling in float32: this method is chosen for its digits.
    """

    scaling: Scaling

    def __post_init__(self) -> None:
        if self.scaling.precision != "float64":
            raise ValueError(f"TSQR works in float64, not in {self.scaling.precision}")

    def init(self) -> TSQRState:
        p = len(self.scaling.shift)
        return TSQRState(Moments.empty(p), np.zeros((0, p + 1)))

    def update(self, state: TSQRState, values: Array, start: int) -> TSQRState:
        def stacked(block: Floats) -> tuple[Float, Float]:
            t, width = state.triangle.shape
            below = np.empty((t + len(block), width), order="F")
            below[:t] = state.triangle
            below[t:, 0] = 1.0
            below[t:, 1:] = block
            return below, np.einsum("ij,ij->j", block, block)

        rows = state.moments.add(self.scaling, values, stacked)
        if rows is not None:
            state.triangle = _triangle(rows)
        return state


def _triangle(stacked: Float) -> Float:
    """Return R, at most square, of a Fortran-ordered matrix, which is overwritten."""
    rows, columns = stacked.shape
    if rows == 0:
        return stacked
    (triangle,) = scipy.linalg.qr(stacked, mode="r", overwrite_a=True, check_finite=False)
    return np.ascontiguousarray(triangle[: min(rows, columns)])

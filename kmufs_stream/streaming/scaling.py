"""Shift and scale that keep block products exact enough, found from a few rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.sources.matrix import Matrix

Precision = Literal["float32", "float64"]
Floats = NDArray[np.floating[Any]]

PROBE_PLACES = 16
PROBE_ROWS = 64
SLAB_BYTES = 2**18  # of a block worked on at a time: stays in a core's cache
REACH = 2.0**40  # |b| up to here: float32 sums of squares are far from overflow
CANCELS = 16.0  # a block this many spreads away from the shift loses digits in float32


def probe_starts(n: int, chunk_rows: int) -> list[int]:
    """First rows of the places that a probe visits, spread over the store, one chunk each."""
    unit = max(chunk_rows, PROBE_ROWS)
    units = -(-n // unit)
    places = min(max(units // 32, 2), PROBE_PLACES, units)
    return [int((i + 0.5) * units / places) * unit for i in range(places)]


def read_probe(matrix: Matrix) -> NDArray[Any]:
    """A few rows from all over the matrix, at most 1024 x p; reads one chunk per place."""
    n = matrix.shape[0]
    starts = probe_starts(n, matrix.chunk_rows)
    length = min(max(matrix.chunk_rows, 1), PROBE_ROWS) if matrix.chunk_rows > 1 else PROBE_ROWS
    return np.concatenate([matrix.rows.read(a, min(a + length, n)) for a in starts])


@dataclass(frozen=True)
class ScaledBlock:
    """A block b = (x - shift) / scale ready for BLAS, and the range of x in x's own dtype.

    ``values`` is None where the block holds NaN or infinity; ``invalid`` then counts them.
    """

    values: Floats | None
    low: NDArray[Any]
    high: NDArray[Any]
    invalid: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Scaling:
    """Per-feature shift and power-of-two scale, shared by all blocks.

    Attributes
    ----------
    shift : (p,) float64, near each feature's mean and exact in the data's dtype.
    scale : (p,) float64, a power of two near each feature's standard deviation, never 0.
    known : (p,) bool, False where the probe saw one value only, so that the scale is arbitrary.
    precision : dtype of block products.
    """

    shift: NDArray[np.float64]
    scale: NDArray[np.float64]
    known: NDArray[np.bool_]
    precision: Precision

    @classmethod
    def from_probe(cls, probe: NDArray[Any], precision: Precision) -> Scaling:
        """From rows of any numeric dtype; what is not finite is passed over."""
        rows = probe.astype(np.float64)
        ok = np.isfinite(rows)
        rows[~ok] = 0.0
        count = np.maximum(ok.sum(axis=0), 1)
        # In units of the largest number, so that no sum or difference overflows.
        unit = _power_of_two(np.abs(rows).max(axis=0, initial=0.0))
        rows /= unit
        mean = rows.sum(axis=0) / count
        rows -= mean
        rows[~ok] = 0.0
        peak = _power_of_two(np.abs(rows).max(axis=0, initial=0.0))
        std = np.sqrt(((rows / peak) ** 2).sum(axis=0) / count) * peak
        exact = probe.dtype.type if probe.dtype.kind == "f" else np.rint
        shift = np.asarray(exact(mean * unit), dtype=np.float64)
        known = std > 0
        std *= unit
        limit = 2.0**120 if precision == "float32" else 2.0**1000
        scale = np.clip(_power_of_two(np.where(known, std, 1.0)), 1 / limit, limit)
        return cls(shift, scale, known, precision)

    def block(self, x: NDArray[Any]) -> ScaledBlock:
        """Shift, scale and check one block, (rows, p); float64 where float32 would not do."""
        inverse = 1.0 / self.scale
        dtype = np.dtype(self.precision)
        scaled, low, high = self._apply(x, inverse, dtype)
        finite = np.isfinite(low) & np.isfinite(high)
        if not finite.all():
            return ScaledBlock(None, low, high, np.asarray((~np.isfinite(x)).sum(axis=0)))
        lowest, highest = low.astype(np.float64), high.astype(np.float64)
        if dtype == np.float32 and not self._fits_float32(lowest, highest, inverse):
            del scaled  # before the larger one is made
            scaled, low, high = self._apply(x, inverse, np.dtype(np.float64))
        return ScaledBlock(scaled, low, high)

    def _apply(
        self, x: NDArray[Any], inverse: NDArray[np.float64], dtype: np.dtype[Any]
    ) -> tuple[Floats, NDArray[Any], NDArray[Any]]:
        rows, p = x.shape
        # Wider data than the products are shifted before they are rounded.
        work = np.promote_types(dtype, x.dtype)
        shift, inverse = self.shift.astype(work), inverse.astype(dtype)
        scaled = np.empty((rows, p), dtype)
        lows, highs = [], []
        step = max(SLAB_BYTES // (p * x.dtype.itemsize), 8)
        with np.errstate(over="ignore", invalid="ignore"):
            for a in range(0, rows, step):
                slab, out = x[a : a + step], scaled[a : a + step]
                lows.append(slab.min(axis=0))
                highs.append(slab.max(axis=0))
                if x.dtype.kind in "iu" and x.dtype.itemsize == 8:
                    self._subtract_integers(slab, out)
                else:
                    np.subtract(slab, shift, out=out, dtype=work, casting="unsafe")
                out *= inverse
        return scaled, np.min(lows, axis=0), np.max(highs, axis=0)

    def _subtract_integers(self, x: NDArray[Any], out: Floats) -> None:
        """x - shift for 64-bit integers, exact where float64 cannot hold x."""
        near = np.abs(x - self.shift).max(axis=0) < 2.0**62
        # Differences that wrap around come out right, as long as they fit.
        wrapped = x.astype(np.int64, copy=False) - _wrapped(self.shift, x.dtype)
        out[:] = np.where(near, wrapped, x - self.shift)

    def _fits_float32(
        self,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        inverse: NDArray[np.float64],
    ) -> bool:
        reach = np.maximum(np.abs(low - self.shift), np.abs(high - self.shift)) * inverse
        half = (high - low) / 2 * inverse
        middle = np.abs((low - self.shift) / 2 + (high - self.shift) / 2) * inverse
        vanishes = ~self.known & (half > 0) & (half < 1 / REACH)
        cancels = middle > CANCELS * np.maximum(half, 1.0)
        return not ((reach > REACH) | vanishes | cancels).any()


def _wrapped(whole: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[np.int64]:
    """Whole numbers in the range of a 64-bit dtype as int64, modulo 2^64."""
    with np.errstate(invalid="ignore"):
        return whole.astype(dtype).astype(np.int64)


def _power_of_two(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The power of two below each positive x; 1 for 0."""
    return np.where(x > 0, np.ldexp(0.5, np.frexp(x)[1]), 1.0)

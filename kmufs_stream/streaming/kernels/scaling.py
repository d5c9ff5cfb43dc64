"""Shift and scale of features that keep block products accurate, from a probe of a few rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from kmufs_stream.sources.layout import Block, joined_rows
from kmufs_stream.sources.matrix import Matrix
from kmufs_stream.typing import Array, Bool, Float, Floats, Int

Precision = Literal["float32", "float64"]
PROBE_PLACES = 16
PROBE_ROWS = 64
PROBE_COLUMNS = 128  # of a probe at a time: they stay in a core's cache
SLAB_BYTES = 2**18  # of a block at a time: stays in a core's cache
REACH = 2.0**40  # |b| up to here: float32 sums of squares are far from overflow
CANCELS = 16.0  # spreads away from the shift at which a block loses digits in float32


def probe_starts(n: int, chunk_rows: int) -> list[int]:
    """Return the first rows of the chunks that a probe reads, spread over n rows."""
    unit = max(chunk_rows, PROBE_ROWS)
    units = -(-n // unit)
    places = min(max(units // 32, 2), PROBE_PLACES, units)
    return [int((i + 0.5) * units / places) * unit for i in range(places)]


def read_probe(matrix: Matrix) -> Block:
    """Read a few rows from all over a matrix, at most 1024 x p."""
    n, chunk_rows = matrix.shape[0], matrix.layout.chunk_rows
    length = min(chunk_rows, PROBE_ROWS) if chunk_rows > 1 else PROBE_ROWS
    starts = probe_starts(n, chunk_rows)
    return joined_rows([matrix.rows.read(a, min(a + length, n)) for a in starts])


@dataclass(frozen=True)
class Scaling:
    """A shift and a power-of-two scale for each feature, the same for all blocks.

    Features with a single value in the probe are unsure: they may be constant, and their scale is
    arbitrary.
    """

    shift: Float  # (p,), near each feature's mean and exact in the data's dtype
    scale: Float  # (p,), powers of two near standard deviations, never 0
    unsure: Int  # (u,), ascending
    precision: Precision  # of block products

    @classmethod
    def from_probe(cls, probe: Array, precision: Precision) -> Scaling:
        """Derive shift and scale from rows of any numeric dtype; values not finite are ignored."""
        p = probe.shape[1]
        mean, std, varies = np.empty(p), np.empty(p), np.empty(p, bool)
        for a in range(0, p, PROBE_COLUMNS):
            some = slice(a, a + PROBE_COLUMNS)
            mean[some], std[some], varies[some] = _spread(probe[:, some])
        return cls.about(mean, std, np.flatnonzero(~varies), probe.dtype, precision)

    @classmethod
    def about(
        cls, mean: Float, std: Float, unsure: Int, dtype: np.dtype[Any], precision: Precision
    ) -> Scaling:
        """Round means and deviations, which may be 0 or NaN, to a shift and scale for a dtype."""
        exact = dtype.type if dtype.kind == "f" else np.rint
        shift = np.asarray(exact(np.nan_to_num(mean)), dtype=np.float64)
        limit = 2.0**120 if precision == "float32" else 2.0**1000
        scale = np.clip(power_of_two(np.where(std > 0, std, 1.0)), 1 / limit, limit)
        return cls(shift, scale, unsure, precision)

    def centred(self, mean: Float) -> Scaling:
        """Shift by the mean, as near as the precision holds it: missing values then become 0."""
        shift = np.nan_to_num(mean).astype(self.precision).astype(np.float64)
        return replace(self, shift=shift)

    def of(self, features: Int) -> Scaling:
        """Restrict to some features, all of which vary in the probe."""
        none = np.empty(0, np.int64)
        return replace(self, shift=self.shift[features], scale=self.scale[features], unsure=none)

    def apply(self, x: Array, precision: Precision, *, gaps: bool = False) -> Floats:
        """Return b = (x - shift) / scale of a block; with ``gaps``, 0 where x is missing."""
        rows, p = x.shape
        dtype = np.dtype(precision)
        # Wider data than the products are shifted before they are rounded.
        work = np.promote_types(dtype, x.dtype)
        shift, inverse = self.shift.astype(work), (1.0 / self.scale).astype(dtype)
        scaled = np.empty((rows, p), dtype)
        step = max(SLAB_BYTES // (p * x.dtype.itemsize), 8)
        with np.errstate(over="ignore", invalid="ignore"):
            for a in range(0, rows, step):
                slab, out = x[a : a + step], scaled[a : a + step]
                if x.dtype.kind in "iu" and x.dtype.itemsize == 8:
                    self._subtract_integers(slab, out)
                else:
                    np.subtract(slab, shift, out=out, dtype=work, casting="unsafe")
                out *= inverse
                if gaps:
                    out[np.isnan(slab)] = 0.0
        return scaled

    def range_of_unsure(self, x: Array) -> tuple[Array, Array]:
        """Return the smallest and largest values, (u,) in x's dtype, of the unsure features.

        NaN where all values are missing.
        """
        if not len(self.unsure):
            return x[0, :0], x[0, :0]
        lows, highs = [], []
        step = max(SLAB_BYTES // (len(self.unsure) * x.dtype.itemsize), 8)
        for a in range(0, len(x), step):
            slab = x[a : a + step, self.unsure]
            lows.append(np.fmin.reduce(slab, axis=0))
            highs.append(np.fmax.reduce(slab, axis=0))
        return np.fmin.reduce(lows, axis=0), np.fmax.reduce(highs, axis=0)

    def float32_holds(
        self, rows: int, total: Float, squares: Float, low: Array, high: Array
    ) -> bool:
        """Check that a block's products in float32 neither overflow, underflow nor cancel.

        Parameters
        ----------
        total, squares : (p,) sums of b and of b^2, in float32 or better.
        low, high : from ``range_of_unsure``.
        """
        mean = total / rows
        spread = np.sqrt(np.maximum(squares / rows - mean**2, 1.0))
        half = (high.astype(np.float64) - low.astype(np.float64)) / 2
        vanishes = (half > 0) & (half < self.scale[self.unsure] / REACH)
        # Not any(squares > ...): NaN must fail too.
        held = (squares <= REACH**2).all() and (np.abs(mean) <= CANCELS * spread).all()
        return bool(held) and not vanishes.any()

    def _subtract_integers(self, x: Array, out: Floats) -> None:
        """Write x - shift of 64-bit integers, exact where float64 cannot hold x."""
        near = np.abs(x - self.shift).max(axis=0) < 2.0**62
        # Differences that wrap around are right as long as they fit.
        wrapped = x.astype(np.int64, copy=False) - _wrapped(self.shift, x.dtype)
        out[:] = np.where(near, wrapped, x - self.shift)


def _spread(probe: Array) -> tuple[Float, Float, Bool]:
    """Return mean and standard deviation of each column's finite values, and if they differ."""
    rows = probe.astype(np.float64)
    ok = np.isfinite(rows)
    rows[~ok] = 0.0
    count = np.maximum(ok.sum(axis=0), 1)
    # In units of the largest number, so that no sum or difference overflows.
    unit = power_of_two(np.abs(rows).max(axis=0, initial=0.0))
    rows /= unit
    mean = rows.sum(axis=0) / count
    rows -= mean
    rows[~ok] = 0.0
    peak = power_of_two(np.abs(rows).max(axis=0, initial=0.0))
    std = np.sqrt(((rows / peak) ** 2).sum(axis=0) / count) * peak
    # Not std > 0: the mean of equal values may be off by rounding.
    one = probe[ok.argmax(axis=0), np.arange(probe.shape[1])]
    varies = ((probe != one) & ok).any(axis=0) & (std > 0)
    return mean * unit, np.where(varies, std * unit, 0.0), varies


def _wrapped(whole: Float, dtype: np.dtype[Any]) -> Int:
    """Convert whole numbers in the range of a 64-bit dtype to int64, modulo 2^64."""
    with np.errstate(invalid="ignore"):
        return whole.astype(dtype).astype(np.int64)


def power_of_two(x: Float) -> Float:
    """Round each positive x down to a power of two; 0 becomes 1."""
    return np.where(x > 0, np.ldexp(0.5, np.frexp(x)[1]), 1.0)

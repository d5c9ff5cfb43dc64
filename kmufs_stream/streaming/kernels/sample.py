"""A uniform sample of rows that depends on row numbers alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.sources.layout import Block, dense
from kmufs_stream.streaming.kernels.kernel import Kernel
from kmufs_stream.typing import Array, Int

SAMPLE_ROWS = 20_000
SAMPLE_BYTES = 256_000_000
HASHED_AT_ONCE = 2**20


def sample_size(n: int, row_bytes: int) -> int:
    """Return the rows of a sample: min(n, 20000, 256 MB of rows), at least one."""
    return min(n, SAMPLE_ROWS, max(SAMPLE_BYTES // max(row_bytes, 1), 1))


def sample_index(n: int, m: int, seed: int = 0) -> Int:
    """Return the m of n row numbers with the smallest seeded hashes, ascending. O(n)."""
    best = np.empty(0, np.uint64)
    index = np.empty(0, np.int64)
    for start in range(0, n, HASHED_AT_ONCE):
        fresh = np.arange(start, min(start + HASHED_AT_ONCE, n), dtype=np.int64)
        hashes = _splitmix64(fresh.astype(np.uint64), seed)
        if len(best) == m:
            below = hashes < best.max()
            fresh, hashes = fresh[below], hashes[below]
        best, index = np.concatenate([best, hashes]), np.concatenate([index, fresh])
        if len(best) > m:
            keep = np.argpartition(best, m - 1)[:m]
            best, index = best[keep], index[keep]
    return np.sort(index)


def smallest_hashes(index: Int, m: int, seed: int = 0) -> Int:
    """Return the ascending positions of the m row numbers, or all, with the smallest hashes.

    Among ``sample_index`` of earlier rows and all later rows these are ``sample_index`` of all.
    """
    if len(index) <= m:
        return np.arange(len(index))
    hashes = _splitmix64(index.astype(np.uint64), seed)
    return np.sort(np.argpartition(hashes, m - 1)[:m])


def _splitmix64(x: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """SplitMix64 (Steele, Lea and Flood 2014): a bijection, so hashes never collide."""
    x = x + np.uint64((0x9E3779B97F4A7C15 * (seed + 1)) % 2**64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True)
class TakeRows(Kernel[list[Array]]):
    """Keep the rows of ``index`` (ascending), in order, as one dense piece of each block."""

    index: Int

    def init(self) -> list[Array]:
        return []

    def update(self, state: list[Array], values: Block, start: int) -> list[Array]:
        first, last = np.searchsorted(self.index, [start, start + values.shape[0]])
        state.append(dense(values[self.index[first:last] - start]))
        return state


def stack(pieces: list[Array]) -> Array:
    """Join pieces to one array, removing each from the list, so that one is held twice at most."""
    if len(pieces) == 1:
        return pieces.pop()
    rows = sum(len(piece) for piece in pieces)
    stacked = np.empty((rows, pieces[0].shape[1]), pieces[0].dtype)
    while pieces:
        stacked[rows - len(pieces[-1]) : rows] = pieces[-1]
        rows -= len(pieces.pop())
    return stacked

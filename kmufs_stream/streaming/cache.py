"""Keep blocks in memory between reads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.sources.layout import Block
from kmufs_stream.sources.matrix import Rows


class CachedRows:
    """Rows of which the blocks before row ``limit`` are read once and then kept as read."""

    def __init__(self, rows: Rows, limit: int) -> None:
        self._rows = rows
        self._limit = limit
        self._blocks: dict[tuple[int, int], Block] = {}

    def read(self, start: int, stop: int) -> Block:
        if stop > self._limit:
            return self._rows.read(start, stop)
        block = self._blocks.get((start, stop))
        if block is None:
            block = self._blocks[start, stop] = self._rows.read(start, stop)
        return block

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        return self._rows.take(start, stop, columns)

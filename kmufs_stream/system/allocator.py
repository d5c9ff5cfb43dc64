"""How the C library hands out memory, for a process whose peak is a promise."""

from __future__ import annotations

import ctypes
import sys

# From glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
LARGEST_FROM_HEAP = 32 * 2**20  # as large as glibc allows
KEPT_AT_TOP = 512 * 2**20

ONE_HEAP = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(LARGEST_FROM_HEAP),
    "MALLOC_TRIM_THRESHOLD_": str(KEPT_AT_TOP),
}
"""The same as :func:`share_one_heap`, as the environment of a process to be started."""


def share_one_heap() -> None:
    """Have all threads take blocks from one heap, and keep what is freed for the next block.

    By default each thread's heap keeps its own free memory, half as much again as the blocks in
    flight; and blocks mapped one by one are cleared, page by page, each time. Does nothing where
    the C library is another than glibc. Must run before there are threads.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)
        mallopt(M_MMAP_THRESHOLD, LARGEST_FROM_HEAP)
        mallopt(M_TRIM_THRESHOLD, KEPT_AT_TOP)

"""Settings of the C library's allocator that keep the peak memory of a process predictable."""

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
"""The settings of :func:`share_one_heap` as environment variables of a new process."""


def share_one_heap() -> None:
    """Let all threads allocate from one heap that keeps freed memory, where glibc is used.

    By default every thread's heap keeps its own free memory, half as much again as the blocks in
    flight, and blocks mapped one by one are cleared, page by page, each time. Must run before
    there are threads.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)
        mallopt(M_MMAP_THRESHOLD, LARGEST_FROM_HEAP)
        mallopt(M_TRIM_THRESHOLD, KEPT_AT_TOP)

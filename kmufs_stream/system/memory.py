"""Available memory, and the memory of this process."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import psutil

CGROUP_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)


def size(number: int) -> str:
    """Write a number of bytes in decimal units, as options take them."""
    amount, unit = float(number), "bytes"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{number} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"


def available_memory() -> int:
    """Return the bytes that this process may still take, within its control group too."""
    free = int(psutil.virtual_memory().available)
    for limit_file, used_file in CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # no such group, or no limit ("max")
            limit = int(Path(limit_file).read_text())
            free = min(free, max(limit - int(Path(used_file).read_text()), 0))
    return free


def peak_memory() -> int:
    """Return the peak of the resident bytes of this process.

    Returns
    -------
    int
        Bytes, from the start of the process until now.
    """
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    if sys.platform == "linux":
        # Not getrusage: its peak outlives exec, and so includes the parent's.
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024

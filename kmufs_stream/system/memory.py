"""Available memory, and the memory of this process."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil

from kmufs_stream.system.control_groups import memory_left


def size(number: int) -> str:
    """Write a number of bytes in decimal units, as options take them."""
    amount, unit = float(number), "bytes"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{number} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"


def available_memory() -> int:
    """Return the bytes that this process may still take, by its control groups and limits too."""
    left = [psutil.virtual_memory().available, memory_left()]
    if sys.platform == "linux":
        process = psutil.Process()
        most = process.rlimit(psutil.RLIMIT_AS)[0]  # ulimit -v
        if most != psutil.RLIM_INFINITY:
            left.append(max(most - process.memory_info().vms, 0))
    return int(min(left))


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

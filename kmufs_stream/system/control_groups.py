"""Limits of the Linux control groups that this process runs in, as containers and SLURM set them.

Of both versions: https://docs.kernel.org/admin-guide/cgroup-v2.html and
https://docs.kernel.org/admin-guide/cgroup-v1/memory.html. A group is limited by those around it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

ROOT = Path("/")
# The limit, what is used, and how much of that is page cache, which is dropped when needed.
MEMORY = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def memory_left(root: Path = ROOT) -> float:
    """Return the bytes that may still be taken in the tightest group, infinite without any."""
    left = math.inf
    for group in _groups("memory", root):
        for limit, used, cached in MEMORY:
            with suppress(OSError, ValueError):  # files of the other version, or no limit ("max")
                most = int((group / limit).read_text())
                stat = dict(
                    line.split() for line in (group / "memory.stat").read_text().splitlines()
                )
                taken = int((group / used).read_text()) - int(stat[cached])
                left = min(left, max(most - taken, 0))
    return left


@cache  # the number of BLAS threads, and with it the last bits, must not change within a run
def cpu_quota(root: Path = ROOT) -> float:
    """Return the number of cores whose time the tightest group has, infinite without any."""
    quota = math.inf
    for group in _groups("cpu", root):
        for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
            with suppress(OSError, ValueError):  # as above
                time, period = map(int, " ".join((group / f).read_text() for f in files).split())
                quota = min(quota, time / period if time > 0 else math.inf)
    return quota


def _groups(controller: str, root: Path) -> Iterator[Path]:
    """Yield the folders of the groups of this process, each with those around it."""
    with suppress(OSError):  # not Linux
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            mounted = [controllers, controller] if controllers else ["", "unified"]
            for name in dict.fromkeys(mounted):
                top = root / "sys/fs/cgroup" / name
                inner = top / path.lstrip("/")  # in a container it may name a folder of the host
                yield from (group for group in (inner, *inner.parents) if group.is_relative_to(top))

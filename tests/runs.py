"""A selection that reads long enough to be disturbed, and what it leaves where nothing disturbs it.

Killed at a random moment it leaves nothing half-written, and goes on.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from commands import begun, ended
from helpers import planted, write_bare
from processes import until

SELECT = ("select", "rows.zarr", "--k", 3, "--h", 5, "--method", "lanczos", "--threads", 2)
PAUSE, SOLVING = 0.01, 0.3  # seconds, of a run to be killed

SLOW_WORKER = """
import time
from kmufs_stream.sources.zarr_store import StoredRows
def dask_setup(worker):
    fast = StoredRows._stored
    def slow(self, *where):
        time.sleep(0.03)
        return fast(self, *where)
    StoredRows._stored = slow
"""


def slow_workers(folder: Path) -> dict[str, str]:
    """Environment in which the workers of a cluster read slowly."""
    (folder / "slow.py").write_text(SLOW_WORKER)
    return {"DASK_DISTRIBUTED__WORKER__PRELOAD": str(folder / "slow.py")}


def write_rows(folder: Path) -> Path:
    """rows.zarr: 1500 x 60 in 100 chunks; a Lanczos run reads them more than once."""
    X = planted(1500, 60, k=3, dtype=np.float32)
    return write_bare(folder / "rows.zarr", X, chunks=(15, 60)).relative_to(folder)


def chosen(out: Path) -> list[bytes]:
    """The bits of what a written selection says and holds."""
    with xr.open_zarr(out) as found, xr.open_zarr(out, group="all_features") as every:
        names = ["data", "feature_index", "score", "rank"]
        return [found[name].values.tobytes() for name in names] + [every["score"].values.tobytes()]


def wait_until_gone(session: int) -> None:
    """Wait until no process of a session is left."""

    def gone() -> bool:
        try:
            os.killpg(session, 0)
        except ProcessLookupError:
            return True
        return False

    until(gone)


def undisturbed(folder: Path, *more: object, **environs: str) -> tuple[list[bytes], float]:
    """Let a selection from rows end: what it wrote, and in how many seconds."""
    command = (*SELECT[:-2], "--out", "alone.zarr", *more)
    began = time.monotonic()
    done = ended(begun(PAUSE, *command, cwd=folder, solving=SOLVING, **environs))
    assert done.code == 0, done
    return chosen(folder / "alone.zarr"), time.monotonic() - began


def killed_and_resumed(
    rng: random.Random,
    folder: Path,
    alone: tuple[list[bytes], float],
    *more: object,
    **environs: str,
) -> int:
    """Kill the same selection once or twice, and let it end; how often it was killed."""
    bits, seconds = alone
    command = (*SELECT[:-2], "--out", "out.zarr", "--checkpoint", "kept", "--resume")
    out, killed = folder / "out.zarr", 0
    for _ in range(rng.choice([1, 1, 2])):
        process = begun(PAUSE, *command, *more, cwd=folder, solving=SOLVING, **environs)
        time.sleep(rng.uniform(0, seconds))
        with contextlib.suppress(ProcessLookupError):
            process.send(signal.SIGKILL)
        killed += process.end() == -signal.SIGKILL
        wait_until_gone(process.pid)  # with its workers, if any
        if out.exists():  # it was whole before the end came
            assert chosen(out) == bits
            shutil.rmtree(out)
    done = ended(begun(0, *command, *rng.choice([(), more]), cwd=folder))
    assert done.code == 0, done
    assert chosen(out) == bits
    assert not (folder / "kept").exists()
    assert not list(folder.glob(".*"))
    shutil.rmtree(out)
    return killed


@contextlib.contextmanager
def mounted(place: Path, **options: object) -> Iterator[Path]:
    """A file system with options of mount, where this process may mount one."""
    place.mkdir()
    said = ",".join(f"{name}={value}" for name, value in options.items())
    command = ["mount", "-t", "tmpfs", "-o", said, "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs to mount a tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
        place.rmdir()

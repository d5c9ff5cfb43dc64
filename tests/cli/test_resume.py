"""Killed, interrupted or out of disk at any moment: nothing half-written, and on it goes."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import SLOW, Run, environment
from helpers import planted, same_bits, write_bare

from kmufs_stream import load_factor

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


def begun(pause: float, *arguments: object) -> subprocess.Popen[str]:
    """The command line as a process of its own, each read slowed down, many partitions."""
    return subprocess.Popen(
        [sys.executable, "-c", SLOW, str(pause), *map(str, arguments)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> Run:
    out, err = process.communicate(timeout=60)
    return Run(process.returncode, out, err)


@pytest.fixture
def rows(folder: Path) -> Path:
    """rows.zarr: 1500 x 60 in 100 chunks; a Lanczos run reads them more than once."""
    X = planted(1500, 60, k=3, dtype=np.float32)
    return write_bare(folder / "rows.zarr", X, chunks=(15, 60)).relative_to(folder)


SELECT = ("select", "rows.zarr", "--k", 3, "--h", 5, "--method", "lanczos", "--threads", 2)


LOCAL_WORKERS = ("--workers", "2", "--json", "--out", "there.zarr")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_how_to_go_on(
    rows: Path, folder: Path, number: signal.Signals
) -> None:
    process = begun(0.03, *SELECT, "--checkpoint", "kept")
    while not list((folder / "kept").rglob("*.state")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    asked = time.monotonic()
    done = ended(process)
    assert time.monotonic() - asked < 10
    assert done.code == 130
    command = "kmufs-stream select rows.zarr --k 3 --h 5 --method lanczos --threads 2"
    assert f"To go on, type: {command} --checkpoint kept --resume" in done.err
    assert f"The checkpoint {folder / 'kept'} is kept" in done.err
    assert "Traceback" not in done.err
    assert sorted(p.name for p in folder.iterdir()) == ["kept", "rows.zarr"]

    resumed = ended(begun(0, *SELECT, "--checkpoint", "kept", "--resume", "--json"))
    assert resumed.code == 0, resumed
    assert f"going on from the checkpoint {folder / 'kept'}" in resumed.err
    whole = ended(begun(0, *SELECT, "--out", "whole.zarr", "--json"))
    for key in ("selected", "scores", "objective", "residuals"):
        assert resumed.json()[key] == whole.json()[key]
    assert not (folder / "kept").exists()


def killed_at_random(folder: Path, rng: random.Random, kills: int, *more: object) -> int:
    """Kill a decomposition at random moments until it ends; how often it was killed."""
    command = ("decompose", "rows.zarr", "--k", 3, "--method", "lanczos", "--out", "factor.zarr")
    began = time.monotonic()
    assert ended(begun(0.01, *command, *more)).code == 0
    span = time.monotonic() - began
    same = load_factor("factor.zarr")
    killed = 0
    for number in range(2 * kills):
        if killed == kills:
            break
        for path in folder.glob("factor.zarr"):
            path.rename(folder / f"older-{number}")
        process = begun(0.01, *command, "--resume", *more)
        time.sleep(rng.uniform(0, span))
        process.kill()  # SIGKILL
        process.communicate(timeout=60)
        killed += process.returncode == -signal.SIGKILL
        if (folder / "factor.zarr").exists():  # it was whole before the end came
            assert same_bits(load_factor("factor.zarr"), same)
            continue
        if rng.random() < 0.5:
            continue  # the next one goes on and is killed again
        done = ended(begun(0, *command, "--resume", "--overwrite"))
        assert done.code == 0, done
        assert same_bits(load_factor("factor.zarr"), same)
        assert not list(folder.glob("*checkpoint*"))
    return killed


def test_killed_at_random_moments(rows: Path, folder: Path) -> None:
    assert killed_at_random(folder, random.Random(1), 3) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--workers", 2)], ids=["threads", "cluster"])
def test_killed_at_thirty_random_moments(rows: Path, folder: Path, more: Any) -> None:
    assert killed_at_random(folder, random.Random(7), 30, *more) == 30


def test_the_command_line_on_local_workers(rows: Path, folder: Path) -> None:
    here = ended(begun(0, *SELECT, "--json", "--out", "here.zarr"))
    there = subprocess.run(
        [sys.executable, "-m", "kmufs_stream_cli", *map(str, SELECT[:-2]), *LOCAL_WORKERS],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert there.returncode == 0, there.stderr
    assert there.stderr.startswith("cluster dashboard: http://127.0.0.1:")
    assert there.stderr.count("\n") == 1
    assert json.loads(there.stdout)["selected"] == here.json()["selected"]


def test_a_full_disk_is_reported(rows: Path, folder: Path) -> None:
    """A small file system, where this process may mount one."""
    small = folder / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=40k", "tmpfs", str(small)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("needs to mount a tmpfs")
    try:
        for place in (("--out", "small/out.zarr"), ("--out", "o.zarr", "--checkpoint", "small/c")):
            done = ended(begun(0, *SELECT, *place))
            assert done.code == 1, done
            assert "No space left on device" in done.err
            assert "Traceback" not in done.err
            assert not (folder / "o.zarr").exists()
            assert [p.name for p in small.iterdir() if "out" in p.name] == []
    finally:
        subprocess.run(["umount", str(small)], check=True)

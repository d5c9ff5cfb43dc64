"""Killed, interrupted or out of disk at any moment: nothing half-written, and on it goes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from commands import Gate, Run, begun, ended
from helpers import contents, environment, planted, slow, write_bare
from processes import until

from kmufs_stream_cli.interrupt import Interrupted

Cli = Callable[..., Run]
Whole = tuple[dict[str, Any], list[bytes]]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

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


PROGRAM = (sys.executable, "-m", "kmufs_stream_cli")
SELECT = ("select", "rows.zarr", "--k", 3, "--h", 5, "--method", "lanczos", "--threads", 2)


@pytest.fixture
def slow_workers(folder: Path) -> dict[str, str]:
    """Environment in which the workers of a cluster read slowly."""
    (folder / "slow.py").write_text(SLOW_WORKER)
    return {"DASK_DISTRIBUTED__WORKER__PRELOAD": str(folder / "slow.py")}


def write_rows(folder: Path) -> Path:
    """rows.zarr: 1500 x 60 in 100 chunks; a Lanczos run reads them more than once."""
    X = planted(1500, 60, k=3, dtype=np.float32)
    return write_bare(folder / "rows.zarr", X, chunks=(15, 60)).relative_to(folder)


@pytest.fixture
def rows(folder: Path) -> Path:
    return write_rows(folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """What a run that nothing disturbs says, and the bits that it writes."""
    folder = tmp_path_factory.mktemp("whole")
    write_rows(folder)
    done = ended(begun(0, *SELECT, "--out", "whole.zarr", "--json", cwd=folder))
    assert done.code == 0, done
    return done.json(), chosen(folder / "whole.zarr")


@pytest.mark.parametrize("number", [signal.SIGINT, slow(signal.SIGTERM)])
def test_an_interrupted_run_says_how_to_go_on(
    rows: Path, folder: Path, here: Cli, whole: Whole, gate: Gate, number: signal.Signals
) -> None:
    process = begun(0.03, *SELECT, "--checkpoint", "kept", gate=gate)
    process.until(lambda: list((folder / "kept").rglob("*.state")))
    process.send(number)
    done = ended(process)
    assert done.code == 130
    command = "kmufs-stream select rows.zarr --k 3 --h 5 --method lanczos --threads 2"
    assert f"To go on, type: {command} --checkpoint kept --resume" in done.err
    assert f"The checkpoint {folder / 'kept'} is kept" in done.err
    assert "Traceback" not in done.err
    assert sorted(p.name for p in folder.iterdir()) == ["kept", "rows.zarr"]

    told = here("info", "kept")
    assert told.out.endswith(f"Next: {command} --checkpoint kept --resume\n")
    resumed = here(*SELECT, "--checkpoint", "kept", "--resume", "--json")
    assert resumed.code == 0, resumed
    assert f"going on from the checkpoint {folder / 'kept'}: what has been read" in resumed.err
    for key in ("selected", "scores", "objective", "residuals"):
        assert resumed.json()[key] == whole[0][key]
    assert not (folder / "kept").exists()


def test_a_checkpoint_is_left_alone_by_who_reads_nothing_with_it(
    rows: Path, here: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunk, kept = rows / "c" / "70" / "0", Path("kept")
    sound = chunk.read_bytes()
    chunk.write_bytes(b"not a chunk")
    assert here(*SELECT, "--checkpoint", kept).code == 1
    before = contents(kept)
    assert any(name.endswith(".state") for name in before)

    def stop(*given: Any, **named: Any) -> None:
        raise Interrupted

    for where in ("kmufs_stream_cli.options.Showing.opened", "kmufs_stream.selection.find_factor"):
        with monkeypatch.context() as patched:
            patched.setattr(where, stop)
            done = here(*SELECT, "--checkpoint", kept, "--resume")
        assert done.code == 130
        command = "kmufs-stream select rows.zarr --k 3 --h 5 --method lanczos --threads 2"
        assert f"To go on, type: {command} --checkpoint kept --resume\n" in done.err
        assert contents(kept) == before
    chunk.write_bytes(sound)
    assert here("decompose", rows, "--k", 3).code == 0
    by_factor = ("--factor", "rows.factor.zarr", "--checkpoint", kept, "--resume")
    assert here(*SELECT, *by_factor).code == 0
    assert contents(kept) == before


@pytest.mark.parametrize("stage", ["solve", "take"])
def test_interrupted_after_the_last_read(
    rows: Path, folder: Path, here: Cli, whole: Whole, gate: Gate, stage: str
) -> None:
    command = (*SELECT, "--checkpoint", "kept", "--out", "out.zarr")
    process = begun(0, *command, gate=gate, before=stage)
    process.until(gate.reached.exists)
    assert bool(list(folder.glob(".*.partial-*"))) == (stage == "take")
    process.send(signal.SIGINT)
    gate.opened.touch()
    done = ended(process)
    assert done.code == 130
    assert "--checkpoint kept --out out.zarr --resume" in done.err
    assert "Traceback" not in done.err
    assert sorted(p.name for p in folder.iterdir()) == ["kept", "rows.zarr"]
    resumed = here(*command, "--resume", "--json")
    assert resumed.code == 0, resumed
    assert chosen(folder / "out.zarr") == whole[1]
    assert resumed.json()["objective"] == whole[0]["objective"]
    assert not (folder / "kept").exists()


def test_interrupted_on_a_cluster(
    rows: Path,
    folder: Path,
    here: Cli,
    whole: Whole,
    gate: Gate,
    slow_workers: dict[str, str],
) -> None:
    """Ctrl-C reaches all processes of a terminal: the workers go, and nobody complains."""
    command = (*SELECT[:-2], "--workers", 2, "--checkpoint", "kept", "--out", "out.zarr")
    process = begun(0, *command, gate=gate, **slow_workers)
    process.until(lambda: list((folder / "kept").rglob("*.state")))
    os.killpg(process.pid, signal.SIGINT)
    done = ended(process)
    assert done.code == 130, done
    assert f"The checkpoint {folder / 'kept'} is kept" in done.err
    assert "Traceback" not in done.err
    wait_until_gone(process.pid)
    assert not (folder / "out.zarr").exists()
    resumed = here(*command[:-6], "--checkpoint", "kept", "--out", "out.zarr", "--resume")
    assert resumed.code == 0, resumed
    assert chosen(folder / "out.zarr") == whole[1]


def wait_until_gone(session: int) -> None:
    """Wait until no process of a session is left."""

    def gone() -> bool:
        try:
            os.killpg(session, 0)
        except ProcessLookupError:
            return True
        return False

    until(gone)


def test_a_corrupt_chunk_is_mended_and_the_run_goes_on(
    rows: Path, folder: Path, here: Cli, whole: Whole
) -> None:
    chunk = rows / "c" / "70" / "0"
    sound = chunk.read_bytes()
    chunk.write_bytes(sound[: len(sound) // 2])
    command = (*SELECT, "--checkpoint", "kept", "--out", "out.zarr")
    done = here(*command)
    assert done.code == 1
    assert "chunk c/70/0 of " in done.err
    assert f"The checkpoint {folder / 'kept'} is kept" in done.err
    assert list((folder / "kept").rglob("*.state"))
    assert here(*command, "--resume").code == 1  # as long as it is corrupt
    chunk.write_bytes(sound)
    other, was = rows / "c" / "3" / "0", (rows / "c" / "3" / "0").stat()
    other.write_bytes(other.read_bytes())  # which is no excuse for any other change
    refused = here(*command, "--resume")
    assert refused.code == 2
    assert "belongs to another run (data chunks: " in refused.err
    os.utime(other, ns=(was.st_atime_ns, was.st_mtime_ns))
    resumed = here(*command, "--resume")
    assert resumed.code == 0, resumed
    assert chosen(folder / "out.zarr") == whole[1]


def chosen(out: Path) -> list[bytes]:
    """The bits of what a written selection says and holds."""
    with xr.open_zarr(out) as found, xr.open_zarr(out, group="all_features") as every:
        names = ["data", "feature_index", "score", "rank"]
        return [found[name].values.tobytes() for name in names] + [every["score"].values.tobytes()]


def killed_at_random(
    folder: Path, rng: random.Random, kills: int, *more: object, **environs: str
) -> int:
    """Kill a selection at random moments until it ends; how often it was killed."""
    command = (*SELECT[:-2], "--out", "out.zarr", "--checkpoint", "kept")
    began = time.monotonic()
    assert ended(begun(0.01, *command, *more, solving=0.3, **environs)).code == 0
    span = time.monotonic() - began
    same = chosen(folder / "out.zarr")
    killed = 0
    for number in range(2 * kills):
        if killed == kills:
            break
        for path in folder.glob("out.zarr"):
            path.rename(folder / f"older-{number}")
        process = begun(0.01, *command, "--resume", *more, solving=0.3, **environs)
        time.sleep(rng.uniform(0, span))
        with contextlib.suppress(ProcessLookupError):
            process.send(signal.SIGKILL)
        killed += process.end() == -signal.SIGKILL
        wait_until_gone(process.pid)  # with its workers, if any
        if (folder / "out.zarr").exists():  # it was whole before the end came
            assert chosen(folder / "out.zarr") == same
            continue
        if rng.random() < 0.5:
            continue  # the next one goes on and is killed again
        done = ended(begun(0, *command, "--resume", *rng.choice([(), more])))
        assert done.code == 0, done
        assert chosen(folder / "out.zarr") == same
        assert not (folder / "kept").exists()
        assert not list(folder.glob(".*"))
    return killed


def test_killed_at_random_moments(rows: Path, folder: Path) -> None:
    assert killed_at_random(folder, random.Random(1), 2) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--workers", 2)], ids=["threads", "cluster"])
def test_killed_at_thirty_random_moments(
    rows: Path, folder: Path, more: Any, slow_workers: dict[str, str]
) -> None:
    assert killed_at_random(folder, random.Random(7), 30, *more, **slow_workers) == 30


def test_the_command_line_on_local_workers(rows: Path, whole: Whole) -> None:
    there = subprocess.run(
        [
            sys.executable,
            "-m",
            "kmufs_stream_cli",
            *map(str, SELECT[:-2]),
            "--workers",
            "1",
            "--json",
        ],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert there.returncode == 0, there.stderr
    assert there.stderr.startswith("cluster dashboard: http://127.0.0.1:")
    assert there.stderr.count("\n") == 1
    assert json.loads(there.stdout)["selected"] == whole[0]["selected"]


def test_a_full_disk_is_reported_and_leaves_the_older_output(rows: Path, folder: Path) -> None:
    """A small file system, where this process may mount one."""
    assert ended(begun(0, *SELECT, "--out", "older.zarr")).code == 0
    files = (p for p in (folder / "older.zarr").rglob("*") if p.is_file())
    pages = sum(-(-p.stat().st_size // 4096) for p in files)
    small = folder / "small"
    small.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={4 * pages * 3 // 2}k", "tmpfs", str(small)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs to mount a tmpfs")
    try:
        shutil.copytree("older.zarr", small / "out.zarr")
        before = contents(small)
        for place in ("--out small/out.zarr --overwrite", "--out o.zarr --checkpoint small/c"):
            done = ended(begun(0, *SELECT, *place.split()))
            assert done.code == 1, done
            assert "No space left on device" in done.err
            assert "Traceback" not in done.err
            assert contents(small).items() >= before.items()
            assert not (folder / "o.zarr").exists()
            assert [p.name for p in small.iterdir() if p.name != "c"] == ["out.zarr"]
    finally:
        subprocess.run(["umount", str(small)], check=True)


LATE = """
import atexit, os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs of a shell may ignore it
from kmufs_stream_cli import main
atexit.register(lambda: (os.kill(os.getpid(), signal.SIGINT), time.sleep(5)))
sys.argv = ["kmufs-stream", "--version"]
sys.exit(main())
"""


def test_a_signal_at_the_very_end_leaves_no_traceback(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LATE], env=environment(), capture_output=True, timeout=60
    )
    assert done.stdout.startswith(b"kmufs-stream ")
    assert done.stderr == b""
    assert done.returncode == -signal.SIGINT

"""Killed, interrupted or out of disk at any moment: nothing half-written, and on it goes."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import Cli, Gate, begun, ended
from helpers import contents, environment, slow
from runs import (
    SELECT,
    chosen,
    killed_and_resumed,
    mounted,
    slow_workers,
    undisturbed,
    wait_until_gone,
    write_rows,
)

from kmufs_stream_cli.interrupt import Interrupted

Whole = tuple[dict[str, Any], list[bytes]]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


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

    assert here("info", "kept").out.endswith(f"Next: {command} --checkpoint kept --resume\n")
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
    rows: Path, folder: Path, here: Cli, whole: Whole, gate: Gate
) -> None:
    """Ctrl-C reaches all processes of a terminal: the workers go, and nobody complains."""
    command = (*SELECT[:-2], "--workers", 2, "--checkpoint", "kept", "--out", "out.zarr")
    process = begun(0, *command, gate=gate, **slow_workers(folder))
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
    assert "belongs to another run (data chunks: " in here(*command, "--resume").refused().err
    os.utime(other, ns=(was.st_atime_ns, was.st_mtime_ns))
    resumed = here(*command, "--resume")
    assert resumed.code == 0, resumed
    assert chosen(folder / "out.zarr") == whole[1]


def test_killed_at_random_moments(rows: Path, folder: Path, whole: Whole) -> None:
    alone, rng = undisturbed(folder), random.Random(1)
    assert alone[0] == whole[1]
    assert sum(killed_and_resumed(rng, folder, alone) for _ in range(2)) >= 1


def test_the_command_line_on_local_workers(rows: Path, shell: Cli, whole: Whole) -> None:
    there = shell(*SELECT[:-2], "--workers", 1, "--json")
    assert there.code == 0, there
    assert re.fullmatch("cluster dashboard: http://127.0.0.1:.*\n", there.err)
    assert there.json()["selected"] == whole[0]["selected"]


def test_a_full_disk_is_reported_and_leaves_the_older_output(rows: Path, folder: Path) -> None:
    """A small file system, where this process may mount one."""
    assert ended(begun(0, *SELECT, "--out", "older.zarr")).code == 0
    files = (p for p in (folder / "older.zarr").rglob("*") if p.is_file())
    pages = sum(-(-p.stat().st_size // 4096) for p in files)
    with mounted(folder / "small", size=f"{4 * pages * 3 // 2}k") as small:
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

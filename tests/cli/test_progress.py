"""What stderr shows while a command works: on a real terminal, in a log, and nowhere else."""

from __future__ import annotations

import fcntl
import itertools
import os
import pty
import re
import select
import signal
import struct
import termios
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from commands import Cli, Run, begun
from helpers import planted, write_bare
from processes import LIMIT

from kmufs_stream import Advanced, Noticed, Started
from kmufs_stream.streaming.planning import plan
from kmufs_stream.system.memory import size
from kmufs_stream_cli.stages import Run as Told
from kmufs_stream_cli.stages import Stage, duration

HIDDEN, SHOWN = b"\x1b[?25l", b"\x1b[?25h"


@pytest.fixture
def rows(folder: Path) -> Path:
    """rows.zarr: 1500 x 60 in 100 chunks."""
    X = planted(1500, 60, k=3, dtype=np.float32)
    return write_bare(folder / "rows.zarr", X, chunks=(15, 60)).relative_to(folder)


def on_terminal(
    *arguments: object,
    columns: int = 100,
    pause: float = 0.0,
    stop_at: bytes | None = None,
    stdout: int | None = None,
    **variables: str,
) -> tuple[int, bytes]:
    """Run the command line on a terminal of its own; its exit code and all that was shown.

    Each read takes ``pause`` seconds longer. It is interrupted once it has shown ``stop_at``.
    ``stdout`` goes elsewhere where one is given.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = begun(
        pause,
        *arguments,
        streams=(theirs, theirs if stdout is None else stdout, theirs),
        **{"TERM": "xterm-256color", "COLUMNS": None, "LINES": None, **variables},
    )
    os.close(theirs)
    seen = b""
    while True:
        ready, _, _ = select.select([ours], [], [], LIMIT)
        assert ready, seen
        try:
            part = os.read(ours, 65536)
        except OSError:  # nobody holds the other end any more
            break
        if not part:
            break
        seen += part
        if stop_at is not None and stop_at in seen:
            process.send(signal.SIGINT)
            stop_at = None
    os.close(ours)
    return process.end(), seen


def plain(seen: bytes) -> str:
    """What was shown, without what moves the cursor or colours."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode()).replace("\r", "")


def test_a_terminal_shows_stages_rows_rates_memory_and_threads(rows: Path) -> None:
    code, seen = on_terminal("select", rows, "--k", 3, "--h", 5, "--threads", 1, pause=0.01)
    shown = plain(seen)
    assert code == 0
    for said in (
        r"read 1 of 1 .*%, \d:\d\d left of reading",
        r"[\d,]+ of 1,500 rows · [\d.]+ [kMG]B/s · reading alone about [\d.]+ [kMG]B/s",
        r"memory [\d.]+ MB of [\d.]+ GB · 1 thread · \d:\d\d so far",
        r"read 1 of 1 · \d:\d\d · 1,500 rows",
    ):
        assert re.search(said, shown), said
    assert shown.index("opening") < shown.index("read 1 of 1")
    assert shown.rindex("Chose 5 of 60") > shown.rindex("so far")
    assert seen.rindex(SHOWN) > seen.rindex(HIDDEN)


@pytest.mark.parametrize("columns", [12, 40])
def test_no_line_is_longer_than_the_terminal(genes: Path, columns: int) -> None:
    code, seen = on_terminal("decompose", genes, "--k", 3, "--out", "f.zarr", columns=columns)
    assert code == 0
    # A frame ends without a new line; the next one goes back to where that line begins.
    lines = [plain(line) for line in re.split(rb"[\r\n]", seen[: seen.rindex(SHOWN)])]
    assert [line for line in lines if len(line) > columns] == []


def test_only_what_a_terminal_takes_is_sent_to_it(genes: Path) -> None:
    asked = ("select", genes, "--k", 3, "--h", 5, "--overwrite")
    _, plainer = on_terminal(*asked, NO_COLOR="1")
    assert b"so far" in plainer
    assert not re.search(rb"\x1b\[[0-9;]*3[0-9]", plainer)
    code, seen = on_terminal(*asked, TERM="dumb")
    assert code == 0
    assert b"\x1b" not in seen
    assert b"so far" not in seen
    reading, writing = os.pipe()
    code, seen = on_terminal(*asked, "--json", stdout=writing)
    os.close(writing)
    with os.fdopen(reading) as out:
        assert Run(code, out.read(), "").ok().json()["h"] == 5  # and nothing else on stdout
    assert "so far" in plain(seen)
    code, seen = on_terminal(*asked, "--json", "--quiet")
    assert b"\x1b" not in seen
    assert Run(code, seen.decode().replace("\r", ""), "").ok().json()["h"] == 5


def test_an_interrupt_and_an_error_leave_a_clean_terminal(rows: Path) -> None:
    arguments = ("select", rows, "--k", 3, "--h", 5, "--threads", 1)
    code, seen = on_terminal(*arguments, pause=0.1, stop_at=b"read 1")
    assert code == 130
    assert seen.rindex(SHOWN) > seen.rindex(HIDDEN)
    after = plain(seen[seen.rindex(SHOWN) :])
    assert after.strip().startswith("Interrupted; no partial output is left.")
    assert "so far" not in after
    (rows / "c" / "7" / "0").unlink()
    code, seen = on_terminal(*arguments)
    assert code == 1
    assert plain(seen[seen.rindex(SHOWN) :]).strip().startswith("Error: ")


def test_a_log_has_the_plan_and_each_stage(
    cli: Cli, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = itertools.count(4_000_000_000, 1_000_000_000)  # changes from look to look
    monkeypatch.setattr(plan, "available_memory", lambda: next(free))
    done = cli("select", table, "--k", 3, "--h", 5, "--log", "--json")
    assert done.json()["h"] == 5
    lines = done.err.splitlines()
    assert "shape: 300 samples (sample) x 12 features (feature)" in lines
    budget = size(done.json()["budget_bytes"])
    assert any(re.fullmatch(rf"memory: .* predicted at most, of {budget}", line) for line in lines)
    assert "read 1 of 1: 300 rows" in lines
    assert any(re.match(r"read 1 of 1: done in .* s, 300 rows, .*B/s", line) for line in lines)
    assert any(re.match(r"solving \(admm\): done .* iterations.*objective", x) for x in lines)
    assert any(re.match(r"writing: done in .* s, 300 rows", line) for line in lines)
    done = cli("sweep", table, "--k", "2,3", "--h", "2,4", "--solver", "css,exact", "--log")
    assert "css, k = 2, h = 2, trial 1 of 8" in done.err
    assert "exact, k = 3, h = 4, trial 8 of 8" in done.err


@pytest.mark.usefixtures("small_blocks")
def test_a_log_tells_where_a_stage_stands_every_so_often(
    cli: Cli, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kmufs_stream_cli.progress.EVERY", 0.001)
    done = cli("select", rows, "--k", 3, "--h", 5, "--log", "--threads", 1)
    now = (
        r"read 1 of 1: [\d,]+ of 1,500 rows, \d+%, .*B/s, reading alone about .*B/s, "
        r"\d:\d\d left of reading, memory .*, 1 thread"
    )
    assert re.search(now, done.err)


def begun_stage(run: Told, name: str, **told: Any) -> Stage:
    run.take(Started(name, **told))
    assert run.stage is not None
    return run.stage


def test_rate_and_time_left_leave_out_what_a_checkpoint_restored() -> None:
    clock = mock.Mock(return_value=0.0)
    run = Told(clock)
    stage = begun_stage(run, "read", total=1000, unit="rows", unit_bytes=1_000_000, number=2, of=3)
    run.take(Advanced(400, restored=True))
    clock.return_value = 2.0
    run.take(Advanced(100))
    assert (stage.title, stage.percent, stage.amount) == ("read 2 of 3", "50%", "500 of 1,000 rows")
    assert stage.rates == ["50.0 MB/s"]
    assert stage.left == "0:10 left, 0:30 of all reading"
    clock.return_value = 4.0
    assert run.take(Started("writing")) is stage
    assert (stage.amount, stage.rates, stage.left) == ("500 of 1,000 rows", ["25.0 MB/s"], "")
    assert run.take(Noticed("a checkpoint")) is None


def test_no_event_is_lost_between_threads() -> None:
    run = Told()
    stage = begun_stage(run, "read", total=40_000, unit="rows")
    with ThreadPoolExecutor(8) as threads:
        for _ in range(8):
            threads.submit(lambda: [run.take(Advanced(1)) for _ in range(5_000)])
    assert stage.done == 40_000


def test_the_time_left_counts_the_reads_to_come() -> None:
    for reads, left in [
        ({"number": 2, "of": 4, "at_most": True}, "0:10 left, at most 0:50 of all reading"),
        ({"number": 4, "of": 4, "at_most": True}, "0:10 left of reading"),
        ({}, "0:10 left"),
    ]:
        run = Told(clock := mock.Mock(return_value=0.0))
        stage = begun_stage(run, "read", total=100, unit="rows", **reads)
        clock.return_value = 10.0
        run.take(Advanced(50))
        assert stage.left == left
    said = {0.4: "0:00", 59.6: "1:00", 760: "12:40", 10931: "3:02:11"}
    assert {seconds: duration(seconds) for seconds in said} == said


def test_the_limit_is_the_rate_of_tasks_that_only_read() -> None:
    clock = mock.Mock(return_value=0.0)
    run = Told(clock)
    read: dict[str, Any] = {"total": 1000, "unit": "rows", "unit_bytes": 1_000_000, "of": 2}
    stage = begun_stage(run, "read", number=1, **read)
    clock.return_value = 2.0
    run.take(Advanced(50, reading=3.0, working=4.0))
    run.take(Advanced(50, reading=1.0, working=4.0))
    rates = ["50.0 MB/s", "reading alone about 100.0 MB/s"]
    assert stage.rates == rates
    again = begun_stage(run, "read", number=2, **read)
    assert stage.rates == rates
    clock.return_value = 4.0
    run.take(Advanced(50, reading=0.001, working=4.0))  # from memory
    assert again.rates == ["25.0 MB/s"]

"""What somebody types who has read no more than the first page, and what is then said."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from commands import Cli
from helpers import planted, write_bare

from kmufs_stream_cli import next_commands
from kmufs_stream_cli.typed import shell_line

SIZE = ("--k", 2, "--h", 3)


@pytest.mark.parametrize("command", [("info",), ("select", *SIZE)])
def test_a_folder_of_everything(cli: Cli, folder: Path, command: tuple[str, ...]) -> None:
    name, *rest = command
    asked = (name, ".", *rest)
    assert "The folder holds no store" in cli(*asked).refused().err
    write_bare(folder / "x.zarr", planted(20, 6), chunks=(10, 6))
    for other in ("a.npy", "b.csv", "c.txt"):
        (folder / other).write_text("a,b\n1,2\n")
    assert "Give one of what is in it: x.zarr, a.npy, b.csv.\n" in cli(*asked).err
    for i in range(5):
        (folder / f"t{i}.csv").write_text("a,b\n1,2\n")
    assert "x.zarr, a.npy, b.csv, t0.csv, t1.csv and 3 more.\n" in cli(*asked).err


def test_memory_too_small_for_any_table(cli: Cli, folder: Path) -> None:
    write_bare(folder / "x.zarr", planted(200, 6), chunks=(200, 6))
    done = cli("plan", "x.zarr", *SIZE, "--memory", "100MB").refused()
    enough = done.err.partition("Give --memory ")[2].split(" ")[0]
    assert cli("plan", "x.zarr", *SIZE, "--memory", enough).code == 0


def test_a_cube_is_proposed_before_a_mask(cli: Cli, folder: Path) -> None:
    cube = planted(50, 12).reshape(50, 3, 4)
    flags = np.ones((60, 3, 4), np.int8)
    dims = ("lat", "lon")
    xr.Dataset({"flag": (("level", *dims), flags), "t": (("time", *dims), cube)}).to_zarr("f.zarr")
    assert "--variable t --sample-dims time.\n" in cli("plan", "f.zarr", *SIZE).refused().err
    assert cli("plan", "f.zarr", *SIZE, "--variable", "t", "--sample-dims", "time").code == 0
    xr.open_zarr("f.zarr").to_netcdf("f.nc", engine="h5netcdf")
    made = cli("convert", "f.nc", "again.zarr")
    assert "plan again.zarr --variable t --sample-dims time " in made.out


@pytest.mark.parametrize(("k", "told"), [(1, ["--k 2"]), (5, ["--h 4 or more"]), (4, [])])
def test_sizes_that_tell_no_clusters_apart_are_noted(
    cli: Cli, table: Path, k: int, told: list[str]
) -> None:
    for command in ("plan", "select"):
        done = cli(command, table, "--k", k, "--h", 3, "--solver", "exact").ok()
        notes = [line for line in done.out.splitlines() if line.split()[:1] == ["note"]]
        assert [word in note for word, note in zip(told, notes, strict=True)] == [
            True for _ in told
        ]


def test_words_in_quotes_are_read_as_they_were() -> None:
    words = ["batch == 'b 1'", "a b", "it's $HOME", "'`!`'", '"']
    echo = ["sh", "-c", f"printf '%s\\n' {shell_line(words)}"]
    assert subprocess.run(echo, capture_output=True, text=True).stdout.splitlines() == words
    assert shell_line(words[:1]) == "\"batch == 'b 1'\""
    assert not shell_line(["'!'"]).startswith('"')  # which interactive shells replace


def test_next_commands_run_where_the_environment_is_not_active(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "kmufs-stream").touch(mode=0o755)
    monkeypatch.setattr("sys.argv", [".venv/bin/kmufs-stream", "demo"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert next_commands.command("info", "x.zarr") == ".venv/bin/kmufs-stream info x.zarr"
    monkeypatch.setenv("PATH", str(folder))
    assert next_commands.command("info", "x.zarr") == "kmufs-stream info x.zarr"

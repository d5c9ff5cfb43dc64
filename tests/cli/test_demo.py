"""kmufs-stream demo: an embedded example through the same path as select."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from commands import Cli
from helpers import contents


def test_it_chooses_pixels_and_leaves_the_result(cli: Cli) -> None:
    done = cli("demo").ok()
    with (
        xr.open_zarr("kmufs-demo/digits.zarr") as source,
        xr.open_zarr("kmufs-demo/digits.selected.zarr") as result,
    ):
        assert source.sizes["image"] > 100 * source.sizes["pixel"]
        chosen = result["feature_index"].values
        np.testing.assert_array_equal(result["pixels"], source["pixels"][:, chosen])
        np.testing.assert_array_equal(result["digit"], source["digit"])
        assert result["pixel"].values.tolist() == source["pixel"].values[chosen].tolist()
        for label in result["pixel"].values[result["rank"].values <= 5]:
            assert f" {label}\n" in done.out
        assert "3 constant (pixel_0_0, pixel_4_0, pixel_4_7)" in done.out
        assert "kmufs-demo/digits.selected.zarr" in done.out
        picture = [line.split() for line in done.out.splitlines()[-8:]]
        ranks = np.full(64, ".", dtype=object)
        ranks[chosen] = [str(rank) for rank in result["rank"].values]
        ranks[[0, 32, 39]] = "x"
        assert picture == ranks.reshape(8, 8).tolist()


def test_it_runs_what_it_says_it_ran_and_leaves_what_is_not_its_own(
    cli: Cli, folder: Path, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kmufs_stream_cli.commands.demo.COPIES", 1)
    Path("kmufs-demo").mkdir()
    Path("kmufs-demo/notes.txt").write_text("mine")
    done = cli("demo")
    first = contents(folder / "kmufs-demo")
    factor = ("--factor", "f.zarr", "--k", 10, "--h", 5, "--out", "s.zarr")
    assert cli("decompose", "kmufs-demo/digits.zarr", *factor[2:4], "--out", "f.zarr").code == 0
    command = next(line for line in done.out.splitlines() if line.startswith("Ran: "))
    shown = cli("demo", "--json").json()
    again = cli(*command.split()[2:], "--json").json()
    for key in ("selected", "labels", "scores", "objective", "optimum", "iterations", "output"):
        assert shown[key] == again[key], key
    assert cli("select", "kmufs-demo/digits.zarr", *factor).code == 0  # the data are the same
    assert contents(folder / "kmufs-demo").keys() == first.keys()
    assert Path("kmufs-demo/notes.txt").read_text() == "mine"


def test_it_goes_where_it_is_told(
    cli: Cli, folder: Path, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kmufs_stream_cli.commands.demo.COPIES", 1)
    assert cli("demo", "--folder", folder / "else where").code == 0
    assert sorted(p.name for p in (folder / "else where").iterdir()) == [
        "digits.selected.zarr",
        "digits.zarr",
    ]
    assert [p.name for p in folder.iterdir()] == ["else where"]


def test_it_overwrites_nothing_that_is_not_a_store(cli: Cli, folder: Path) -> None:
    Path("kmufs-demo/digits.zarr").mkdir(parents=True)
    Path("kmufs-demo/digits.zarr/thesis.txt").write_text("mine")
    before = contents(folder)
    done = cli("demo").refused()
    assert "kmufs-demo/digits.zarr is not a Zarr store" in done.err
    assert contents(folder) == before


def test_a_folder_that_cannot_be_made_is_named(cli: Cli) -> None:
    Path("taken").write_text("")
    for place in ("taken", "not/here"):
        done = cli("demo", "--folder", place).refused()
        assert f"{place} of the output" in done.err

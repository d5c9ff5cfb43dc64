"""kmufs-stream demo: an embedded example through the same path as select."""

from __future__ import annotations

import shlex
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
    place = folder / "else where"
    place.mkdir()
    (place / "notes.txt").write_text("mine")
    asked = ("demo", "--folder", place.name)
    done = cli(*asked)
    first = contents(folder)
    data = {name: digest for name, digest in first.items() if "digits.zarr" in name}
    command = next(line for line in done.out.splitlines() if line.startswith("Ran: "))
    shown = cli(*asked, "--json").json()
    again = cli(*shlex.split(command)[2:], "--json").json()
    for key in ("selected", "labels", "scores", "objective", "optimum", "iterations", "output"):
        assert shown[key] == again[key], key
    last = contents(folder)
    assert last.keys() == first.keys()
    assert last.items() >= data.items()  # the data are the same
    assert {path.partition("/")[0] for path in first} == {place.name}
    assert {path.name for path in place.iterdir()} == {
        *("notes.txt", "digits.zarr", "digits.selected.zarr")
    }
    assert (place / "notes.txt").read_text() == "mine"

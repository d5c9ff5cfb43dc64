"""kmufs-stream evaluate"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from commands import Cli
from helpers import planted, write_xarray

from kmufs_stream import evaluate, select


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cells.zarr, and chosen.zarr and other.zarr that were selected from it."""
    folder = tmp_path_factory.mktemp("made")
    coords = {"gene": [f"g{i}" for i in range(12)], "kind": ("cell", np.arange(300) % 3)}
    array = xr.DataArray(planted(300, 12), coords, ("cell", "gene"), name="counts")
    with contextlib.chdir(folder):
        write_xarray(folder / "cells.zarr", array, chunks=(50, 12))
        select("cells.zarr", 3, 5, out="chosen.zarr")
        select("cells.zarr", 3, 4, solver="exact", out="other.zarr", selection_only=True)
    return folder


@pytest.fixture
def chosen(folder: Path, made: Path) -> Path:
    """chosen.zarr, selected from cells.zarr, and other.zarr beside it."""
    shutil.copytree(made, folder, dirs_exist_ok=True)
    return Path("chosen.zarr")


def test_measures_are_shown_and_what_is_missing_is_named(cli: Cli, chosen: Path) -> None:
    alone = cli("evaluate", chosen).ok()
    assert "--labels VAR compares with known classes; the samples have kind\n" in alone.out
    assert "--data cells.zarr\n" in alone.out
    asked = ("--labels", "kind", "--k", 4, "--data", "cells.zarr")
    whole, found = cli("evaluate", chosen, *asked), cli("evaluate", chosen, *asked, "--json").json()
    assert whole.next() == ["report", str(chosen)]
    for word in ("k = 4", "accuracy", "NMI", "ARI", "cost ratio", "effective rank", "g"):
        assert word in whole.out, word
    assert f"{found['cost_ratio']:.4f}, 1 = as good as K-means on all features" in whole.out


def test_what_k_means_on_a_large_table_goes_over_is_foretold(
    cli: Cli, chosen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("evaluate", chosen, "--data", "cells.zarr")
    assert cli(*asked).err == ""
    monkeypatch.setattr("kmufs_stream.streaming.kmeans.IN_MEMORY_BYTES", 8 * 300 * 5)
    # The five chosen fit, all twelve do not.
    (told,) = cli(*asked).err.splitlines()
    assert told.startswith("K-means on 12 features of 300 samples takes most of the time")
    assert "from 10 starts; fewer --starts are sooner" in told
    (told,) = cli(*asked, "--starts", 1).err.splitlines()
    assert told.endswith("from 1 start")
    assert cli(*asked, "--quiet").err == ""


def test_several_results_stand_side_by_side(cli: Cli, chosen: Path) -> None:
    given = (chosen, "other.zarr", "--labels", "kind", "--data", "cells.zarr")
    found = [evaluate(path, labels="kind", data="cells.zarr").summary() for path in given[:2]]
    alone = cli("evaluate", chosen, *given[2:], "--json").ok().json()
    both = cli("evaluate", *given, "--json").ok().json()["evaluations"]
    measured = ("seconds", "peak_rss_bytes", "predicted_peak_bytes")
    for one, expected in zip([alone, *both], [found[0], *found], strict=True):
        assert one.keys() == expected.keys()
        assert one == expected | {key: one[key] for key in measured}
    assert (alone["k"], alone["h"], alone["samples"], alone["classes"]) == (3, 5, 300, 3)
    assert [one["solver"] for one in found] == ["admm", "exact"]
    rows = [line.split() for line in cli("evaluate", *given).out.splitlines()]
    for path, one in zip(given, found, strict=False):
        row = next(words for words in rows if words[-1:] == [str(path)])
        assert row[:4] == [one["solver"], "3", str(one["h"]), f"{one['accuracy']:.2%}"]
    long = f"{'a-long-name' * 9}.zarr"
    shutil.copytree(chosen, long)
    bare = cli("evaluate", chosen, long, "--starts", 3)
    assert "accuracy" not in bare.out
    assert f"  {long}\n" in bare.out
    assert bare.next() == ["report", str(chosen), long]


def test_classes_that_the_samples_seem_to_have_are_proposed(cli: Cli, folder: Path) -> None:
    n = 300
    coords = {
        "id": ("cell", [f"c{i}" for i in range(n)]),
        "depth": ("cell", np.linspace(0, 1, n)),
        "batch": ("cell", np.arange(n) // 150),
        "kind": ("cell", np.array(["a", "b", "c"])[np.arange(n) % 3]),
    }
    table = xr.DataArray(planted(n, 12), dims=("cell", "gene"), name="x", coords=coords)
    write_xarray(folder / "both.zarr", table)
    write_xarray(folder / "none.zarr", table.drop_vars(["batch", "kind"]))
    asked = ("--k", 3, "--h", 5, "--solver", "exact")
    both = cli("select", "both.zarr", *asked).out
    fewer = cli("select", "both.zarr", *asked, "--k", 2, "--out", "fewer.zarr").out
    assert "kmufs-stream evaluate fewer.zarr --labels batch\n" in fewer
    assert "kmufs-stream evaluate both.selected.zarr --labels kind\n" in both
    assert "evaluate none.selected.zarr\n" in cli("select", "none.zarr", *asked).out
    bare = cli("select", "both.zarr", *asked, "--selection-only", "--overwrite").out
    assert "--labels kind --data both.zarr" in bare


def test_errors_name_what_to_give(cli: Cli, chosen: Path) -> None:
    for asked, said in (
        ("chosen.zarr --labels sort", "kind"),
        ("cells.zarr", "not a selection"),
        ("chosen.zarr --where nonsense", "--where tells how to open --data"),
        ("chosen.zarr --variable counts", "--variable tells how to open --data"),
    ):
        assert said in cli("evaluate", *asked.split()).refused().err


def test_a_condition_that_other_data_do_not_meet(cli: Cli, chosen: Path) -> None:
    asked = ("--k", 3, "--h", 5, "--solver", "exact", "--where", "kind < 2")
    assert cli("select", "cells.zarr", *asked, "--out", "part.zarr").code == 0
    without = xr.open_zarr("cells.zarr").drop_vars("kind")
    without.to_zarr("without.zarr", consolidated=False)
    done = cli("evaluate", "part.zarr", "--data", "without.zarr").refused()
    said = " ".join(done.err.split())
    assert "--where 'kind < 2' cannot be answered: the samples have no coordinate kind" in said
    others = without.assign_coords(kind=("cell", np.full(without.sizes["cell"], 7)))
    others.to_zarr("others.zarr", consolidated=False)
    done = cli("evaluate", "part.zarr", "--data", "others.zarr").refused()
    assert "No sample of others.zarr meets --where 'kind < 2'.\n" in done.err


def test_what_apply_wrote_says_what_the_table_is_for(cli: Cli, chosen: Path) -> None:
    assert cli("apply", chosen, "cells.zarr", "--out", "applied.zarr").code == 0
    done = cli("evaluate", "applied.zarr", "--data", "cells.zarr")
    assert done.code == 0
    assert "not known of what apply wrote: it has no means of the features left out" in done.out


def test_missing_values_are_said(cli: Cli, folder: Path) -> None:
    table = planted(300, 6)
    table[[3, 50], [1, 4]] = np.nan
    xr.DataArray(table, dims=("cell", "gene"), name="x").to_dataset().to_zarr("gaps.zarr")
    asked = ("select", "gaps.zarr", "--k", 3, "--h", 6, "--missing", "mean", "--out", "all.zarr")
    assert cli(*asked).code == 0
    assert evaluate("all.zarr").missing_values == 2
    assert "means stand in for 2 values" in cli("evaluate", "all.zarr").out

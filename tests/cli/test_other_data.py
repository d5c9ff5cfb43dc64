"""kmufs-stream convert and apply, and what select says of files that have to be converted."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from commands import Cli
from helpers import planted

pytestmark = pytest.mark.usefixtures("hasty")


def test_select_says_what_to_type_and_that_works(cli: Cli, folder: Path) -> None:
    pd.DataFrame(planted(100, 6)).to_csv("my table.csv", index=False)
    refused = cli("select", "my table.csv", "--k", 3, "--h", 2).refused()
    assert "--index-column, --coordinate" in refused.err
    command = refused.err.partition("First type: ")[2].partition("\n")[0]
    words = shlex.split(command)
    assert words[:2] == ["kmufs-stream", "convert"]
    assert "sample 100, feature 6" in cli(*words[1:]).ok().out
    assert cli("select", "my table.zarr", "--k", 3, "--h", 2).code == 0


def test_convert_as_json(cli: Cli, folder: Path) -> None:
    np.save("x.npy", planted(100, 6))
    said = cli("convert", "x.npy", "x.zarr", "--json").json()
    assert said.keys() == {
        *("output", "format", "sizes", "coordinates", "missing", "notes", "seconds"),
        *("peak_rss_bytes", "version"),
    }
    assert set(said["missing"].values()) == {0}
    assert (said["format"], said["sizes"]) == ("npy", {"sample": 100, "feature": 6})


def test_a_table_with_text(cli: Cli, folder: Path) -> None:
    table = pd.DataFrame(planted(90, 8), columns=[f"g{i}" for i in range(8)])
    table["station name"], table["year"] = ["Ulm", "Bonn", ""] * 30, range(90)
    table.to_csv("x.csv", index=False)
    done = cli("convert", "x.csv", "x.zarr", "--coordinate", "year", "--dtype", "float32").ok()
    assert "station_name, year" in done.out
    assert "g0, g1, g2, g3, g4 and 3 more" in done.out
    asked = ("--where", "station_name == 'Ulm' and year > 9", "--out", "s.zarr")
    assert cli("select", "x.zarr", "--k", 3, "--h", 2, *asked).code == 0
    assert xr.open_zarr("s.zarr").sizes["sample"] == 26
    cli("select", "x.zarr", "--k", 3, "--h", 2, "--out", "s.zarr", "--overwrite")
    said = cli("evaluate", "s.zarr", "--labels", "station_name", "--json").json()
    assert (said["classes"], said["samples_with_class"]) == (2, 60)
    small = cli("convert", "x.csv", "y.zarr", "--memory", "1MB").refused()
    least = small.err.partition("--memory ")[2].split()[0]
    assert cli("convert", "x.csv", "y.zarr", "--memory", least).code == 0


def test_missing_values_are_counted_and_the_next_command_deals_with_them(
    cli: Cli, folder: Path
) -> None:
    table = pd.DataFrame(planted(90, 8), columns=[f"g{i}" for i in range(8)])
    table["g7"] = np.nan
    table.to_csv("x.csv", index=False)
    done = cli("convert", "x.csv", "x.zarr")
    assert "90 values, in 1 feature and 90 samples" in done.out
    assert "--missing" not in done.out
    table.loc[[3, 4, 80], "g1"] = np.nan
    table.to_csv("x.csv", index=False)
    done = cli("convert", "x.csv", "x.zarr", "--overwrite")
    assert "93 values, in 2 features and 90 samples" in done.out
    assert "--missing mean" in " ".join(done.next())
    planned = cli(*done.next())
    assert "missing mean" in planned.words()
    assert cli(*planned.next()).code == 0
    assert "missing raise" in cli("plan", "x.zarr", "--k", 3, "--h", 2).words()
    said = cli("plan", "x.zarr", "--k", 3, "--h", 2, "--missing", "drop-samples", "--json").json()
    assert said["missing"] == "drop-samples"


def test_apply(cli: Cli, genes: Path) -> None:
    first = cli("select", genes, "--k", 3, "--h", 4, "--out", "chosen.zarr", "--json").json()
    done = cli("apply", "chosen.zarr", genes, "--out", "again.zarr").ok()
    assert "4 features of 300 samples, matched by label" in done.words()
    xr.testing.assert_equal(
        xr.open_zarr("again.zarr")["counts"], xr.open_zarr("chosen.zarr")["counts"]
    )
    said = cli("apply", "chosen.zarr", genes, "--out", "again.zarr", "--overwrite", "--json").json()
    assert (said["columns"], said["labels"]) == (first["selected"], first["labels"])
    assert said["matched"] == "label"


def test_rechunk(cli: Cli, genes: Path) -> None:
    made = cli("rechunk", genes, "rows.zarr", "--memory", "1GB", "--json").ok()
    said = made.json()
    assert (said["samples"], said["features"]) == (300, 14)
    assert (said["chunks_before"], said["chunks"][1]) == ([50, 14], 14)
    xr.testing.assert_identical(xr.open_zarr("rows.zarr").load(), xr.open_zarr(genes).load())
    assert "50 x 14" in cli("rechunk", genes, "rows.zarr", "--overwrite").ok().out


def test_times_that_cannot_be_decoded_stop_only_who_asks_for_them(cli: Cli, folder: Path) -> None:
    late = {"units": "fortnights since the flood"}
    data = xr.Dataset(
        {"x": (("time", "gene"), planted(120, 8))},
        coords={
            "time": ("time", np.arange(120.0), late),
            "kind": ("time", np.arange(120) % 3),
            "gene": [f"g{i}" for i in range(8)],
        },
    )
    data.to_zarr("late.zarr", consolidated=False)
    asked = ("select", "late.zarr", "--k", 3, "--h", 3)
    refused = cli(*asked, "--where", "time > 5").refused()
    assert "the coordinate time cannot be read as times" in refused.err
    assert cli(*asked, "--where", "kind < 2", "--out", "part.zarr").code == 0
    assert cli("apply", "part.zarr", "late.zarr", "--out", "applied.zarr").code == 0
    for judged in ("part.zarr", "applied.zarr"):
        done = cli("evaluate", judged, "--labels", "kind", "--data", "late.zarr", "--k", 2)
        assert done.code == 0, done.err
    assert cli("report", "part.zarr", "--out", "page.html").code == 0

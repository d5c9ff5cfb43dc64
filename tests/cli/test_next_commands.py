"""Every command ends with what to type next, and that runs as it is printed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import xarray as xr
from commands import Cli, Run
from helpers import planted, write_bare
from sources import anndata_stores as stores

pytestmark = pytest.mark.usefixtures("hasty")

X = planted(150, 18)
GENES = [f"g{i}" for i in range(18)]


def csv(folder: Path) -> tuple[str, ...]:
    """A table with gaps, classes and years."""
    table = pd.DataFrame(X.copy(), columns=GENES)
    table.iloc[3, 4] = np.nan
    table = table.assign(kind=np.where(X[:, 0] > 0, "a", "b"), year=2000 + np.arange(150) % 7)
    table.to_csv(folder / "my table.csv.gz", index_label="id")
    return "my table.csv.gz", "--index-column", "id", "--coordinate", "year"


def parquet(folder: Path) -> tuple[str, ...]:
    """A folder of two files."""
    (folder / "parts").mkdir()
    table = pd.DataFrame(X, columns=GENES)
    table[:70].to_parquet(folder / "parts" / "a.parquet")
    table[70:].to_parquet(folder / "parts" / "b.parquet")
    return ("parts/",)


def netcdf(folder: Path) -> tuple[str, ...]:
    """Two variables on a grid, in a group."""
    dims = ("time", "lat", "lon")
    cube = X.reshape(150, 3, 6)
    data = xr.Dataset({"air": (dims, cube), "rain": (dims, cube**2), "height": (dims[1:], cube[0])})
    data.to_netcdf(folder / "field.nc", group="deep")
    return ("field.nc::deep",)


def grouped(folder: Path) -> tuple[str, ...]:
    """The second of two tables in a group, by other labels, of some of its samples."""
    dims = ("cell", "gene")
    coords = {"gene": GENES, "id": ("gene", [f"ENS{i}" for i in range(18)])}
    data = xr.Dataset({"a": (dims, X), "b": (dims, X**2)}, {**coords, "batch": ("cell", X[:, 0])})
    data.to_zarr(folder / "x.zarr", group="deep/er")
    where = ("--where", "batch > 0", "--exclude-features", "ENS1?")
    return "x.zarr", "--group", "deep/er", "--variable", "b", "--feature-labels", "id", *where


def cells(folder: Path) -> tuple[str, ...]:
    """A layer of a sparse AnnData file, normalised."""
    layers = {"more": stores.counts(seed=1)}
    adata = stores.annotated(sp.csr_matrix(stores.counts()), layers=layers)
    stores.write_h5ad(adata, folder / "cells")
    steps = ("--transform", "normalise-rows:500", "--transform", "log1p", "--missing", "mean")
    return "cells.h5ad", "--layer", "more", "--features", "gene*1*", *steps


def field(folder: Path) -> tuple[str, ...]:
    """A field of three dimensions, in one chunk for all times."""
    air = xr.DataArray(X.reshape(150, 3, 6), dims=("time", "lat", "lon"), name="air")
    air.chunk({"lon": 2}).to_dataset().to_zarr(folder / "air.zarr")
    return "air.zarr", "--sample-dims", "time"


def followed(cli: Cli, done: Run, passed: list[str]) -> None:
    """Run what is said to come next, and what comes after it, in the order of the chain."""
    assert done.code == 0, done.err
    assert not re.search(r" $", done.out, re.M)
    words = done.next()
    if words and words[0] not in passed:
        passed.append(words[0])
        followed(cli, cli(*words), passed)


@pytest.mark.parametrize("write", [csv, parquet, netcdf])
def test_from_a_file_to_a_report(cli: Cli, folder: Path, write: Callable[..., object]) -> None:
    passed: list[str] = []
    followed(cli, cli("convert", *write(folder)), passed)  # type: ignore[misc]
    assert passed == ["plan", "select", "evaluate", "report"]


@pytest.mark.parametrize("write", [grouped, cells, field])
def test_from_data_to_a_factor_and_on(
    cli: Cli, folder: Path, write: Callable[[Path], tuple[str, ...]]
) -> None:
    data, *options = write(folder)
    followed(cli, cli("plan", data, *options, "--k", 2, "--h", 3), passed := ["evaluate"])
    assert passed[1:] == ["select"]
    made = cli("decompose", data, *options, "--k", 2, "--method", "tsqr", "--retries", 3)
    assert made.next()[0] == "sweep"
    swept = cli("sweep", f"{Path(data).stem}.factor.zarr", "--k", 2, "--h", "2,3")
    assert f"kmufs-stream select {data} " in swept.out
    followed(cli, swept, passed := [])
    assert passed == ["select", "evaluate", "report"]
    by_factor = cli("info", f"{Path(data).stem}.selected-2.zarr", "--json").json()
    again = cli("sweep", data, *options, "--k", 2, "--h", "2,3", "--method", "tsqr")
    assert "--method tsqr" in again.out
    followed(cli, again, ["evaluate"])
    anew = cli("info", f"{Path(data).stem}.selected-3.zarr", "--json").json()
    for key in ("identity", "shape", "options"):
        assert by_factor[key] == anew[key]


def test_what_was_applied_is_judged(cli: Cli, folder: Path) -> None:
    kinds = {"kind": ("cell", np.arange(150) % 3), "batch": ("cell", np.arange(150) // 15)}
    for name in ("a.zarr", "b.zarr"):
        xr.DataArray(X, kinds, ("cell", "gene"), name="x").to_dataset().to_zarr(name)
    assert cli("select", "a.zarr", "--k", 2, "--h", 3).code == 0
    done = cli("apply", "a.selected.zarr", "b.zarr")
    assert "kmufs-stream evaluate b.selected.zarr --labels kind\n" in done.out
    followed(cli, done, passed := [])
    assert passed == ["evaluate"]
    lost = cli("apply", "c.selected.zarr", "nowhere.zarr").refused()
    assert "c.selected.zarr does not exist" in lost.err


def test_no_report_is_offered_without_what_draws(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bare(folder / "a.zarr", X, chunks=(50, 18))
    assert cli("select", "a.zarr", "--k", 2, "--h", 3).next() == ["evaluate", "a.selected.zarr"]
    assert cli("info", "a.selected.zarr").out.endswith("kmufs-stream report a.selected.zarr\n")
    monkeypatch.setattr("kmufs_stream.reporting.find_spec", lambda name: None)
    assert "kmufs-stream report" not in cli("evaluate", "a.selected.zarr").out
    assert "Next" not in cli("info", "a.selected.zarr").out


def test_a_table_that_is_one_block_is_said_to_be_one(cli: Cli, folder: Path) -> None:
    data, *options = field(folder)
    assert "see rechunk" in cli("plan", data, *options, "--k", 2, "--h", 3).out
    followed(cli, cli("rechunk", data, *options), passed := ["evaluate"])
    assert passed[1:] == ["plan", "select"]


def test_what_is_there_is_left_by_what_is_printed(cli: Cli, folder: Path) -> None:
    data, *options = field(folder)
    for last in ("none", "evaluate", "evaluate"):
        followed(cli, cli("plan", data, *options, "--k", 2, "--h", 3), [last])
    places = {f"air.selected{number}.zarr" for number in ("", "-2", "-3")}
    assert {str(path) for path in Path().glob("air.selected*.zarr")} == places
    again = cli("info", "air.selected.zarr").out
    assert again.endswith("report air.selected.zarr --out air.selected.report-2.html\n")


def test_outputs_have_names_and_are_not_replaced(cli: Cli, folder: Path) -> None:
    parquet(folder)
    write_bare(folder / "a.zarr", X, chunks=(50, 18))
    asked = ("--k", 2, "--h", 3, "--solver", "exact")
    assert cli("select", "a.zarr", *asked, "--out", "old.selected.zarr").code == 0
    commands: list[tuple[tuple[object, ...], str]] = [
        (("select", "a.zarr", *asked), "a.selected.zarr"),
        (("apply", "old.selected.zarr", "a.zarr", "--overwrite"), "a.selected.zarr"),
        (("decompose", "a.zarr", "--k", 2), "a.factor.zarr"),
        (("rechunk", "a.zarr"), "a.rechunked.zarr"),
        (("convert", "parts"), "parts.zarr"),
    ]
    for command, made in commands:
        assert cli(*command, "--json").json()["output"] == made
        refused = cli(*[word for word in command if word != "--overwrite"]).refused()
        assert f"The output {made} exists" in refused.err
    assert cli(*commands[-1][0], "--overwrite").code == 0

"""kmufs-stream sweep"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import zarr
from commands import Cli
from helpers import few_telling

from kmufs_stream import decompose, sweep
from kmufs_stream.factors.structure import KSuggestion


def test_the_table_is_the_library_s(cli: Cli, table: Path) -> None:
    assert cli("decompose", table, "--k", 3, "--out", "factor.zarr").code == 0
    asked = ("--k", "2,3", "--h", "2:6:2", "--solver", "exact,css")
    done = cli("sweep", "factor.zarr", *asked, "--json").ok()
    found = sweep(decompose(table, 3), [2, 3], [2, 4, 6], solvers=["exact", "css"]).summary()
    said = done.json()
    for key in ("trials", "suggested_k", "suggested_h", "passes"):
        assert said[key] == found[key], key
    assert said["passes"] == 0
    read = cli("sweep", table, *asked, "--json").json()
    assert read["passes"] == 1
    assert read["trials"] == said["trials"]

    shown = cli("sweep", "factor.zarr", "--k", 2, "--h", "3,5", "--solver", "exact").words()
    assert f"kmufs-stream select {table} --k 2 --h 5 --solver exact --factor factor.zarr" in shown
    refused = cli("select", "factor.zarr", "--k", 2, "--h", 5).refused()
    assert "is a factor" in refused.err
    assert f"Give {table}; select and plan then take --factor factor.zarr" in refused.err
    refused = cli("sweep", "factor.zarr", *asked, "--workers", 2).refused()
    assert "Leave out --scheduler and --workers" in refused.err


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.usefixtures("quick_workers")
def test_workers_read_and_the_trials_are_the_same(cli: Cli, table: Path) -> None:
    asked = ("--k", "2,3", "--h", "2,4", "--solver", "exact", "--json")
    there = cli("sweep", table, *asked, "--workers", 2)
    assert there.code == 0, there.err
    assert there.json()["trials"] == cli("sweep", table, *asked).json()["trials"]


def test_suggestions_are_shown_as_such(cli: Cli, table: Path) -> None:
    done = cli("sweep", table, "--suggest-k", "--suggest-h", "--solver", "exact").ok()
    assert {"suggested", "knee"} <= set(done.out.split())
    assert "#" in done.out
    plain = cli("sweep", table, "--k", 3, "--h", 4, "--solver", "exact")
    assert not {"suggested", "knee"} & set(plain.out.split())


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (KSuggestion(9, "noise edge", 3, 8, 1.2, 21), ["k = 9, by", "8 of 21", "widest gap k = 3"]),
        (KSuggestion(3, "widest gap", 3, 21, 1.2, 21), ["k = 3, by the widest gap", "21 of 21"]),
        (KSuggestion(None, "noise edge", None, 0, 1.2, 21), ["none: no component", "0 of 21"]),
    ],
)
def test_a_suggested_k_says_by_what_signs(
    cli: Cli, table: Path, monkeypatch: pytest.MonkeyPatch, found: KSuggestion, said: list[str]
) -> None:
    monkeypatch.setattr("kmufs_stream.sweeping.suggest_k", lambda factor: found)
    asked = ("--suggest-k", "--k", 3, "--h", 4, "--solver", "exact")
    shown = cli("sweep", table, *asked).words()
    assert all(words in shown for words in said)


def test_of_many_trials_one_of_each_k_and_solver_is_shown(cli: Cli, table: Path) -> None:
    asked = ("sweep", table, "--k", "2,3", "--solver", "exact,css", "--h")
    done = cli(*asked, "1:11", "--csv", "all.csv")
    lines = [line.split() for line in done.out.splitlines()]
    shown = [words for words in lines if words[1:2] in (["exact"], ["css"])]
    assert [words[:2] for words in shown] == [[k, s] for k in "23" for s in ("exact", "css")]
    assert "one h of each k and solver, of 44 selections; all of them: all.csv" in done.out
    assert len(pd.read_csv("all.csv").value_counts(["k", "solver", "h"])) == 44


def test_csv_is_written_where_nothing_is_lost(cli: Cli, table: Path) -> None:
    asked = ("sweep", table, "--k", 3, "--h", "4,5", "--solver", "exact", "--csv")
    assert "  output  a.csv\n" in cli(*asked, "a.csv").out
    assert pd.read_csv("a.csv")["h"].tolist() == [4, 5]
    refused = cli(*asked, "a.csv").refused()
    assert "--overwrite" in refused.err
    assert cli(*asked, "a.csv", "--overwrite").code == 0
    for place, said in (
        ("nowhere/a.csv", "nowhere of the output does not exist"),
        (table / "a.csv", "overlaps the input"),
    ):
        assert said in cli(*asked, place, "--overwrite").refused().err


def test_a_grid_of_some_numbers_is_needed_unless_one_is_suggested(cli: Cli, table: Path) -> None:
    for grid in ("x", "5:", "5:1", "1:9:0", "1:9:-2", "1:2:3:4", "", "1.5", ","):
        assert "--h" in cli("sweep", table, "--k", 3, "--h", grid).refused().err
    many = "2,1:99999999999:1"
    for given, said in (
        (("--k", many, "--h", 4), f"--k {many} asks for more than 10,000 numbers"),
        (("--k", 3, "--h", many), f"--h {many} asks for more than 10,000 numbers"),
        (("--h", 4), "--suggest-k"),
        (("--k", 3), "--suggest-h"),
    ):
        assert said in cli("sweep", table, *given).refused().err


def test_rows_that_lie_in_no_one_store_are_told_of(cli: Cli, table: Path) -> None:
    zarr.save_array("more.zarr", zarr.open_array(table, mode="r")[:50] + 1)
    assert cli("decompose", table, "--k", 3).code == 0
    assert cli("update", "data.factor.zarr", "--with", "more.zarr", "--out", "all.zarr").code == 0
    assert cli("info", "all.zarr", "--json").json()["source"] == "data.zarr, then more.zarr"
    done = cli("sweep", "all.zarr", "--k", 2, "--h", 4, "--solver", "exact")
    assert "DATA has to hold the rows of data.zarr, then more.zarr" in done.out
    assert done.out.endswith("select DATA --k 2 --h 4 --solver exact --factor all.zarr\n")
    shutil.move(table, "moved.zarr")
    done = cli("sweep", "data.factor.zarr", "--k", 2, "--h", 4, "--solver", "exact")
    assert "DATA has to hold the rows of data.zarr\n" in done.out
    rows = [zarr.open_array(x, mode="r")[:] for x in ("moved.zarr", "more.zarr")]
    zarr.create_array("both.zarr", data=np.concatenate(rows), chunks=(50, 12))
    assert cli("select", "both.zarr", "--k", 2, "--h", 4, "--factor", "all.zarr").code == 0


def test_what_comes_next_leaves_features_out(cli: Cli, table: Path) -> None:
    asked = ("sweep", table, "--k", 2, "--solver", "exact", "--h")
    assert f"kmufs-stream select {table} --k 2 --h 11" in cli(*asked, "3,11,12").words()
    assert "Next" not in cli(*asked, 12).out


def test_what_is_proposed_does_not_follow_what_is_explained_mechanically(
    cli: Cli, folder: Path
) -> None:
    zarr.save_array("few.zarr", few_telling(800, 60, 4, 12))

    def said(*asked: object, data: str = "few.zarr") -> str:
        return cli("sweep", data, *asked).words().partition("Next: ")[2]

    # Most is explained of the smallest k, by the most features, and by css.
    assert " --k 4 --h 8 " in said("--k", "2,4", "--h", "8,40", "--solver", "exact")
    assert " --k 3 --h 8 " in said("--k", "2,3", "--h", "8", "--solver", "exact")
    assert " --solver css" in said("--k", "4", "--h", "6", "--solver", "css,exact")
    assert " --solver consensus" in said("--k", "4", "--h", "6", "--solver", "css,consensus")
    zarr.save_array("none.zarr", np.random.default_rng(1).normal(size=(400, 30)))
    none = said("--k", "2,4", "--h", "5,9", "--solver", "exact", data="none.zarr")
    assert " --k 2 --h 5 " in none
    one = cli("sweep", "none.zarr", "--k", 2, "--h", 5, "--solver", "exact", "--suggest-k").words()
    assert "so there may be no clusters" in one

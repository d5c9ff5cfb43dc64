"""kmufs-stream plan: what would run, without running it."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Cli
from helpers import chunk_files, contents


def test_json_tells_what_would_run(cli: Cli, genes: Path) -> None:
    done = cli("plan", genes, "--k", 3, "--h", 5, "--memory", "1GB", "--threads", 1, "--json").ok()
    plan = done.json()
    assert (plan["source"], plan["variable"]) == ("genes.zarr", "counts")
    assert (plan["samples"], plan["features"], plan["dtype"]) == (300, 14, "float64")
    assert (plan["sample_dim"], plan["feature_dim"]) == ("cell", "gene")
    assert (plan["chunk_rows"], plan["chunk_columns"]) == (50, 14)
    assert plan["first_labels"] == [f"[gene] {i} é" for i in range(5)]
    assert (plan["method"], plan["reads"], plan["threads"]) == ("gram", 1, 1)
    assert plan["budget_bytes"] == 10**9
    assert plan["predicted_peak_bytes"] == max(plan["stages_bytes"].values()) <= 10**9
    assert plan["output_bytes"] == 300 * 5 * 8


def test_the_plan_is_the_one_that_select_runs_and_reads_no_chunk(
    cli: Cli, table: Path, folder: Path
) -> None:
    asked = (table, "--k", 3, "--h", 5, "--memory", "1GB", "--json")
    result = cli("select", *asked).json()
    for chunk in chunk_files(table):
        chunk.write_bytes(b"not a chunk")
    before = contents(folder)
    plan = cli("plan", *asked).json()
    assert contents(folder) == before
    assert plan["method"] == result["method"]
    assert plan["precision"] == result["precision"]
    assert plan["reads"] == result["passes"]
    assert plan["predicted_peak_bytes"] == result["predicted_peak_bytes"]


def test_a_factor_of_data_of_another_shape_is_refused(cli: Cli, table: Path, genes: Path) -> None:
    assert cli("decompose", genes, "--k", 3, "--out", "factor.zarr").code == 0
    done = cli("plan", table, "--k", 3, "--h", 5, "--factor", "factor.zarr", "--json")
    assert (done.code, done.json()["error"]["code"]) == (2, "wrong_factor")
    assert cli("plan", genes, "--k", 3, "--h", 5, "--factor", "factor.zarr", "--json").code == 0


def test_what_is_shown(cli: Cli, genes: Path) -> None:
    done = cli("plan", genes, "--k", 3, "--h", 5, "--memory", "1GB").ok()
    shown = done.words()
    assert "300 samples (cell) x 14 features (gene)" in shown
    assert "[gene] 0 é, [gene] 1 é" in shown
    assert "gram, products of blocks in float64" in shown
    assert "50 samples x 14 features" in shown
    assert "missing raise" in shown
    assert "of 1.0 GB" in shown
    assert shown.count("predicted at most") == 1
    assert "12.0 kB before compression" in shown
    assert done.out.endswith("Next: kmufs-stream select genes.zarr --k 3 --h 5 --memory 1GB\n")
    more = ("--variable", "counts", "--method", "lanczos", "--max-passes", 5)
    again = cli("plan", genes, "--k", 3, "--h", 5, *more).out
    assert " --variable counts --method lanczos --max-passes 5\n" in again


def test_a_long_solve_is_foretold(cli: Cli, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("plan", table, "--k", 3, "--h", 5)
    assert "may take minutes" not in cli(*asked).words()
    monkeypatch.setattr("kmufs_stream.factors.solving.LONG", 1.0)
    assert "note the solver admm may take minutes" in cli(*asked).words()
    assert "may take minutes" not in cli(*asked, "--solver", "exact").words()

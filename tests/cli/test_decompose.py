"""kmufs-stream decompose, and select from the factor that it leaves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from commands import Cli

from kmufs_stream import decompose, load_factor


def test_the_factor_is_the_library_s(cli: Cli, genes: Path, hasty: None) -> None:
    done = cli("decompose", genes, "--k", 3, "--out", "a factor.zarr", "--json").ok()
    summary, factor = done.json(), load_factor(Path("a factor.zarr"))
    np.testing.assert_array_equal(factor.components, decompose(genes, 3).components)
    assert summary["singular_values"] == factor.singular_values.tolist()
    assert summary["eigenvalues"] == factor.eigenvalues.tolist()
    assert (summary["k"], summary["components"], summary["rank"]) == (3, 7, 7)
    assert (summary["samples"], summary["features"], summary["usable"]) == (300, 14, 12)
    assert summary["excluded"] == {"constant": [12, 13]}
    assert summary["output"] == "a factor.zarr"
    assert summary["seconds"]["total"] > 0

    done = cli("decompose", genes, "--k", 3, "--out", "a factor.zarr", "--overwrite").ok()
    assert "into 7 components" in done.out
    shares = [f"{value / 12:.2%}" for value in factor.eigenvalues]
    rows = [line for line in done.out.splitlines() if "#" in line]
    assert [row.split()[2] for row in rows[: len(shares)]] == shares
    assert "7: select takes --k up to this" in done.out
    assert done.next()[:2] == ["sweep", "a factor.zarr"]
    assert cli(*done.next()).code == 0


def test_one_factor_answers_every_k_up_to_its_rank_unread(cli: Cli, table: Path) -> None:
    asked = ("select", table, "--k", 3, "--h", 5, "--overwrite", "--json")
    whole = cli(*asked).json()
    assert cli("decompose", table, "--k", 3, "--out", "factor.zarr").code == 0
    by_factor = ("--factor", "factor.zarr", "--solver", "exact", "--overwrite")
    done = cli(*asked, *by_factor[:2], "--log")
    summary = done.json()
    assert (whole["passes"], summary["passes"]) == (1, 0)
    for key in ("selected", "scores", "objective", "optimum", "iterations"):
        assert summary[key] == whole[key], key
    assert "read 1" not in done.err
    assert "reads 0 for the factor" in cli("select", table, "--k", 7, "--h", 4, *by_factor).words()
    refused = cli("select", table, "--k", 8, "--h", 4, *by_factor).refused()
    assert "k is 8" in refused.err
    assert "7" in refused.err

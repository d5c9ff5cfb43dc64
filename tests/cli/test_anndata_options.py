"""AnnData and transforms on the command line."""

from __future__ import annotations

from pathlib import Path

import anndata
import pytest
import scipy.sparse as sp
from commands import Cli
from sources import anndata_stores as stores

pytestmark = pytest.mark.usefixtures("hasty")


@pytest.fixture
def cells(folder: Path) -> Path:
    """cells.h5ad: 240 x 30, a sparse X and a dense layer."""
    adata = stores.annotated(sp.csr_matrix(stores.counts()), layers={"more": stores.counts(seed=1)})
    stores.write_h5ad(adata, folder / "cells")
    return Path("cells.h5ad")


ASKED = ("--k", 3, "--h", 5)
STEPS = ("--transform", "normalise-rows:500", "--transform", "log1p")


def test_one_command_selects_and_annotates(cli: Cli, cells: Path) -> None:
    done = cli("select", cells, *ASKED, *STEPS, "--anndata-out", "chosen.h5ad", "--json").ok()
    result = done.json()
    assert result["transforms"] == ["normalise-rows:500", "log1p"]
    assert result["anndata_output"] == "chosen.h5ad"
    assert result["output"] == "cells.selected.zarr"
    var = anndata.read_h5ad("chosen.h5ad").var
    assert var.index[var["kmufs_selected"]].tolist() == result["labels"]
    said = cli(
        "select", cells, *ASKED, *STEPS, "--anndata-out", "again.h5ad", "--overwrite"
    ).words()
    assert "transformed by normalise-rows:500, then log1p" in said
    assert "anndata again.h5ad" in said
    again = cli("plan", "cells.selected.zarr", "--k", 3, "--h", 2, "--json")  # it is data, too
    assert (again.code, again.json()["features"]) == (0, 5)


def test_next_commands_judge_by_columns_with_spaces(cli: Cli, cells: Path) -> None:
    adata = anndata.read_h5ad(cells)
    adata.obs = adata.obs.rename(columns={"kind": "cell type"})
    adata.write_h5ad("typed.h5ad")
    done = cli("select", "typed.h5ad", *ASKED, "--out", "chosen.zarr").ok()
    assert "evaluate chosen.zarr --labels 'cell type'" in done.out
    assert cli("apply", "chosen.zarr", "typed.h5ad", "--out", "applied.zarr").code == 0
    for made in ("chosen.zarr", "applied.zarr"):
        judged = cli("evaluate", made, "--labels", "cell type", "--json")
        assert (judged.code, judged.json()["classes"]) == (0, 3)
    assert cli("report", "chosen.zarr").code == 0


def test_the_plan_repeats_what_was_asked(cli: Cli, cells: Path) -> None:
    asked = ("plan", cells, *ASKED, "--layer", "more", "--feature-labels", "gene_ids", *STEPS)
    options = "--layer more --feature-labels gene_ids --transform normalise-rows:500"
    assert f"{options} --transform log1p" in cli(*asked).words()
    assert cli(*asked, "--json").json()["first_labels"][0].startswith("ENSG")
    plan = cli("plan", cells, *ASKED, *STEPS, "--json").json()
    assert plan["entries"] == int((stores.counts() > 0).sum())
    assert (plan["precision"], plan["transforms"]) == ("float64", ["normalise-rows:500", "log1p"])


def test_a_factor_is_used_with_its_transform_only(cli: Cli, cells: Path) -> None:
    assert cli("decompose", cells, "--k", 3, *STEPS, "--out", "factor.zarr").code == 0
    asked = ("select", cells, *ASKED, "--factor", "factor.zarr", "--json", "--overwrite")
    known, said = cli(*asked).json(), cli(*asked, *STEPS).json()
    assert known["transforms"] == said["transforms"] == ["normalise-rows:500", "log1p"]
    assert known["selected"] == said["selected"]
    done = cli(*asked[:-2], "--overwrite", "--transform", "log1p").refused()
    assert "opened with no other --transform" in done.err

"""kmufs-stream select: the result, what is shown of it, and what --json promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from commands import Cli
from helpers import few_telling, planted, tied_table, write_bare

from kmufs_stream import select

KEYS: dict[Any, str] = {
    list: "selected scores at_noise near_copies ambiguous notes",
    float: "objective optimum solver_objective",
    int: "iterations beyond_noise passes samples features usable peak_rss_bytes "
    "predicted_peak_bytes",
    bool: "converged",
    str: "solver method version",
    dict: "excluded seconds",
    list | None: "labels primal_residuals",
    dict | None: "tied_components",
    str | None: "output",
}


def test_json_is_the_summary_of_the_library_and_the_result_holds_the_columns(
    cli: Cli, genes: Path
) -> None:
    done = cli("select", genes, "--k", 3, "--h", 5, "--json").ok()
    summary = done.json()
    for kind, keys in KEYS.items():
        for key in keys.split():
            assert isinstance(summary[key], kind), key
    assert set(summary["seconds"]) == {"read", "factor", "solve", "write", "total"}
    assert summary["excluded"] == {"constant": [12, 13]}
    assert summary["output"] == "genes.selected.zarr"
    expected = select(genes, 3, 5).summary()
    assert summary.keys() == expected.keys()
    measured = {"seconds", "peak_rss_bytes", "output", "predicted_peak_bytes", "budget_bytes"}
    for key in expected.keys() - measured:
        assert summary[key] == expected[key], key
    with xr.open_zarr("genes.selected.zarr") as result, xr.open_zarr(genes) as source:
        np.testing.assert_array_equal(result["counts"], source["counts"][:, summary["selected"]])
        assert result["feature_index"].values.tolist() == summary["selected"]


def test_what_is_shown(cli: Cli, genes: Path) -> None:
    done = cli("select", genes, "--k", 3, "--h", 11, "--out", 'it\'s "mine".zarr')
    result = select(genes, 3, 11)
    assert (done.code, done.err) == (0, "")
    assert "Chose 11 of 14 features for k = 3 from 300 samples." in done.out
    assert result.labels is not None
    best = [result.labels[i] for i in np.argsort(result.ranks)]
    rows = [line for line in done.out.splitlines() if "[gene]" in line and "excluded" not in line]
    assert [row.strip().split("  ")[-1].strip() for row in rows] == best[:5]
    assert "and 6 more" in done.out
    assert f"of the optimum {result.optimum:.6g}" in done.out
    assert f"converged after {result.solution.iterations} iterations" in done.out
    assert "2 constant ([gene] 12 é, [gene] 13 é)" in done.out
    assert "ambiguous" not in done.out
    assert "predicted at most" in done.out
    assert 'output     it\'s "mine".zarr\n' in done.out
    assert done.next()[:2] == ["evaluate", 'it\'s "mine".zarr']
    assert cli(*done.next()).code == 0


def test_running_out_of_iterations_is_not_hidden(cli: Cli, table: Path) -> None:
    arguments = ("select", table, "--k", 3, "--h", 5, "--max-iter", 2, "--overwrite")
    shown = cli(*arguments).words()
    assert "NOT CONVERGED after 2 iterations" in shown
    assert "give --max-iter 4" in shown
    assert cli(*arguments, "--json").json()["converged"] is False


def test_ties_and_near_copies_are_told_where_the_solver_takes_them(cli: Cli, folder: Path) -> None:
    X = planted(200, 4)
    write_bare(folder / "twins.zarr", np.hstack([X, X + 0.01 * planted(200, 4, seed=1)]))

    def said(solver: str, h: int) -> str:
        asked = ("--k", 2, "--h", h, "--solver", solver, "--overwrite")
        return cli("select", "twins.zarr", *asked).words()

    copies = select("twins.zarr", 2, 6, solver="exact").near_copies
    told = f"{len(copies)} of the 6 are near copies of others of them: compare with --solver cons"
    assert told in said("exact", 6)
    assert "are near copies of others of them" in said("admm", 6)
    assert "near copies" not in said("consensus", 6)
    assert "near copies" not in said("exact", 1)
    write_bare(folder / "tied.zarr", np.hstack([X, X]))
    asked = ("select", "tied.zarr", "--h", 3, "--solver", "exact", "--overwrite", "--k")
    assert "2 features score the same at the cutoff" in cli(*asked, 2).words()
    write_bare(folder / "tied.zarr", tied_table((3, 2, 2, 1)), overwrite=True)
    told = cli(*asked, 2).words()
    assert "eigenvalues 2 to 3 differ by less than" in told
    assert "the scores are not unique; try --k 1 or 3" in told
    assert "not unique" not in cli(*asked, 3).words()


def test_selection_only_copies_no_data_and_missing_chunks_may_be_filled(
    cli: Cli, table: Path
) -> None:
    (table / "c" / "2" / "0").unlink()
    asked = ("--k", 3, "--h", 5, "--solver", "exact", "--selection-only", "--fill-missing-chunks")
    assert cli("select", table, *asked).code == 0
    with xr.open_zarr("data.selected.zarr") as result:
        assert not result.data_vars
        assert result["score"].shape == (5,)


def test_options_reach_the_solver_and_the_plan(cli: Cli, table: Path) -> None:
    options = {"mu0": 1e-3, "mu-max": 10.0, "rho": 1.2, "max-iter": 77, "patience": 5}
    given = [part for name, value in options.items() for part in (f"--{name}", value)]
    given += ["--precision", "float64", "--memory", "1GB", "--threads", 1]
    lanczos = ("--method", "lanczos", "--tol", 1e-3, "--max-passes", 9, "--seed", 3)
    summary = cli("select", table, "--k", 3, "--h", 5, *given, *lanczos, "--json").json()
    assert (summary["method"], summary["precision"]) == ("lanczos", "float64")
    assert summary["passes"] <= 9
    with xr.open_zarr("data.selected.zarr") as result:
        for name, value in options.items():
            assert result.attrs["solver_" + name.replace("-", "_")] == value


def test_a_label_that_the_terminal_cannot_show_breaks_nothing(
    shell: Cli, genes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert "\\xe9" in shell("select", genes, "--k", 3, "--h", 5, "--solver", "exact").ok().out


def test_that_what_was_chosen_is_noise_is_told_with_what_to_type(cli: Cli, folder: Path) -> None:
    zarr.save_array("few.zarr", few_telling(800, 60, 4, 12))
    asked = ("select", "few.zarr", "--k", 4, "--selection-only", "--overwrite")

    def said(*more: object) -> str:
        words = cli(*asked, *more).words()
        return words.partition(" noise ")[2].partition(" excluded ")[0]

    assert said("--h", 11, "--solver", "exact") == ""
    assert "vary more: compare with --solver exact" in said("--h", 12, "--solver", "css")
    many = said("--h", 40, "--solver", "exact")
    assert "27 of the 40 vary with the leading components no more than" in many
    assert "13 of 60 vary more: compare with --h 13" in many
    zarr.save_array("none.zarr", np.random.default_rng(1).normal(size=(400, 30)))
    done = cli("select", "none.zarr", "--k", 3, "--h", 5, "--solver", "exact")
    assert "there may be no clusters; see sweep --suggest-k" in done.words()


def test_what_block_lanczos_leaves_open_is_told_as_it_is(cli: Cli, folder: Path) -> None:
    zarr.save_array("wide.zarr", few_telling(900, 600, 5, 60))
    asked = ("select", "wide.zarr", "--h", 50, "--method", "lanczos", "--overwrite")
    asked = (*asked, "--solver", "exact")
    assert "not unique" not in cli(*asked, "--k", 5, "--tol", 0.1).words()
    more = cli(*asked, "--k", 8, "--tol", 0.1).words()
    assert "lie in the noise: the scores are not unique; try --k 5" in more
    early = cli(*asked, "--k", 5, "--max-passes", 2).words()
    assert "NOT SETTLED after 2 reads" in early
    assert "give --max-passes 4" in early
    assert "--k" not in early.partition("NOT SETTLED")[2].partition("Next")[0]
    assert "independent noise" not in cli(*asked, "--k", 5, "--max-passes", 1).words()
    late = cli(*asked, "--k", 5, "--tol", 1e-9, "--max-passes", 7, "--h", 90).words()
    assert "NOT SETTLED" in late
    assert "compare with --h 6" in late
    kept = cli("decompose", "wide.zarr", "--k", 5, "--method", "lanczos", "--max-passes", 2,
               "--out", "f.zarr")  # fmt: skip
    assert "NOT SETTLED after 2 reads" in kept.words()

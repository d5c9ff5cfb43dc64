"""sweep(): the same answers as select(), all from one factor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers import counted, few_telling, labelled, planted

from kmufs_stream import RequestError, decompose, open_matrix, select, sweep
from kmufs_stream.factors.solving import SOLVERS

X = planted(300, 12)
X[:, 7] = 1


def test_every_trial_is_the_selection() -> None:
    factor = decompose(X, 4)
    found = sweep(factor, [2, 4], [3, 6], solvers=SOLVERS)  # all, for what each says of itself
    wanted = [(k, h, solver) for k in (2, 4) for solver in SOLVERS for h in (3, 6)]
    assert [(t.k, t.h, t.solver) for t in found.trials] == wanted
    assert found.passes == 0
    for trial in found.trials:
        chosen = select(X, trial.k, trial.h, solver=trial.solver, factor=factor)
        assert trial.selected.tolist() == chosen.selected.tolist()
        assert trial.objective == pytest.approx(chosen.objective, rel=1e-14)
        assert trial.optimum == pytest.approx(chosen.optimum, rel=1e-14)
        assert trial.solver_objective == chosen.solution.solver_objective
        assert trial.iterations == chosen.solution.iterations
        assert trial.converged == chosen.solution.converged
        correlation = np.abs(np.corrcoef(X[:, chosen.selected].T))
        off = correlation[np.triu_indices(trial.h, 1)].mean()
        assert trial.mean_correlation == pytest.approx(off, abs=1e-9)
        assert 0 < trial.explained <= 1


def test_what_is_proposed_is_a_trial_and_no_choice_of_all() -> None:
    factor = decompose(X, 4)
    found = sweep(factor, [2, 3, 4], [3, 6, 11], solvers=["exact", "css"])
    assert found.proposal in found.trials
    assert found.proposal.h < found.usable
    assert sweep(factor, [3], [11], solvers=["exact"]).proposal is None


def test_data_are_read_once_and_a_factor_is_enough(tmp_path: Path) -> None:
    matrix, rows = counted(open_matrix(X))
    once = sweep(matrix, [2, 3], [2, 5, 9], solvers=["exact"])
    read = sum(b - a for a, b in rows.reads)
    assert once.passes == 1
    assert read <= 300 + 2 * 64  # and the probe
    decompose(X, 3, out=tmp_path / "factor.zarr")
    kept = sweep(tmp_path / "factor.zarr", [2, 3], [2, 5, 9], solvers=["exact"])
    assert kept.passes == 0
    assert kept.table().equals(once.table())
    assert kept.suggested_h == once.suggested_h


def test_what_is_not_given_is_suggested() -> None:
    found = sweep(few_telling(1000, 40, 5, 40), solvers=["exact"])
    assert {t.k for t in found.trials} == {5} == {found.suggested_k.k}
    hs = [t.h for t in found.trials]
    assert hs == sorted(set(hs))
    assert (hs[0], hs[-1]) == (1, 40)
    assert found.suggested_h[5, "exact"] in hs


def test_grids_are_ordered_without_repeats_and_one_needs_no_list() -> None:
    factor = decompose(X, 3)
    for ks, hs, pairs in (
        ([3, 2, 3], [5, 2], [(2, 2), (2, 5), (3, 2), (3, 5)]),
        (np.array([2, 3]), range(1, 3), [(2, 1), (2, 2), (3, 1), (3, 2)]),
        (2, np.int64(3), [(2, 3)]),
    ):
        for solvers in ("exact", ["exact", "exact"]):
            found = sweep(factor, ks, hs, solvers=solvers)
            assert [(t.k, t.h, t.solver) for t in found.trials] == [(*p, "exact") for p in pairs]
            json.dumps(found.summary())


def test_summary_and_table_hold_the_trials(tmp_path: Path) -> None:
    names, path = [f"gene {i}, é" for i in range(X.shape[1])], tmp_path / "a.csv"
    for given, labels in ((labelled(X).assign_coords(gene=names), names), (X, None)):
        found = sweep(
            decompose(given, 3), [2, 3], [2, 5], solvers="exact", csv=path, overwrite=True
        )
        chosen = found.trials[0].selected
        wanted = labels and [labels[i] for i in chosen]
        summary = json.loads(json.dumps(found.summary(), allow_nan=False))
        assert summary["trials"][0]["selected"] == chosen.tolist()
        assert summary["trials"][0]["labels"] == wanted
        assert summary["suggested_h"][0].keys() == {"k", "solver", "h"}
        keys = {"k", "by", "widest_gap", "above_noise", "noise_edge", "components"}
        assert set(summary["suggested_k"]) == keys
        table, written = found.table(), pd.read_csv(path)
        assert len(table) == 4
        assert table["selected"][0] == " ".join(map(str, chosen))
        assert written["h"].tolist() == [2, 5, 2, 5]
        np.testing.assert_allclose(written["explained"], table["explained"], rtol=1e-12)
        label = written["labels"][0]
        assert pd.isna(label) if wanted is None else json.loads(label) == wanted
    for csv, said in ((path, "exists"), (tmp_path / "none" / "a.csv", "does not exist")):
        with pytest.raises(RequestError, match=said):
            sweep(X, 2, 3, solvers="exact", csv=csv)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"k": [8]}, "bad_k"),
        ({"k": []}, "bad_option"),
        ({"h": []}, "bad_option"),
        ({"h": [12]}, "bad_h"),
        ({"solvers": ["magic"]}, "bad_option"),
        ({"solvers": []}, "bad_option"),
    ],
    ids=str,
)
def test_refused(arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(RequestError) as caught:
        sweep(decompose(X, 3), **{"k": [3], "h": [4], **arguments})
    assert caught.value.code == code
    assert caught.value.remedy

"""What select() answers, and what it refuses."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from helpers import counted, labelled, planted, tied_table, write_bare, write_xarray
from reference import assert_optimal, reference

from kmufs_stream import (
    AdmmOptions,
    KMeansUFS,
    RequestError,
    decompose,
    open_matrix,
    plan_selection,
    select,
)
from kmufs_stream.factors.factor import RowSample
from kmufs_stream.factors.solving import SOLVERS
from kmufs_stream.streaming.planning import sizing

X = planted(300, 12)
EXPECTED = reference(X)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("k", "h"), [(1, 1), (3, 12), (5, 2)])
def test_answer(solver: str, k: int, h: int) -> None:
    constant = np.full((300, 1), 5.0)  # never selected
    whole = np.hstack([constant, X, constant])
    chosen = select(whole, k, h, solver=solver)
    assert chosen.summary()["excluded"] == {"constant": [0, 13]}
    assert chosen.summary()["usable"] == 12
    scores = np.concatenate([[np.nan], EXPECTED.every_score(k), [np.nan]])
    assert chosen.selected.dtype == np.int64
    assert (np.diff(chosen.selected) > 0).all()
    assert len(chosen.selected) == h
    np.testing.assert_allclose(chosen.scores, scores[chosen.selected], rtol=1e-11)
    assert ((chosen.scores > 0) & (chosen.scores <= 1 + 1e-12)).all()
    assert sorted(chosen.ranks.tolist()) == list(range(1, h + 1))
    assert (np.diff(chosen.scores[np.argsort(chosen.ranks)]) <= 0).all()
    np.testing.assert_allclose(chosen.objective, scores[chosen.selected].sum(), rtol=1e-11)
    np.testing.assert_allclose(chosen.optimum, np.sort(scores[1:13])[-h:].sum(), rtol=1e-11)
    assert chosen.objective <= chosen.optimum * (1 + 1e-14)
    assert chosen.passes == 1
    assert chosen.summary()["solver_objective"] == chosen.solver_objective > 0
    done = solver == "exact" or (solver == "admm" and h == 12)  # nothing is left to choose
    assert (chosen.solution.iterations == 0) is done
    if done:
        assert_optimal(chosen.selected, scores, h, 1e-12)
        assert chosen.objective == pytest.approx(chosen.optimum, rel=1e-14)
        assert chosen.solution.converged


def test_ties_go_to_the_lower_index_and_are_counted() -> None:
    whole = np.concatenate([X, X], axis=1)[:, np.r_[12:24, 0:12]]
    for dtype in (np.float32, np.float64):
        chosen = select(whole.astype(dtype), 3, 1, solver="exact")
        best = int(np.argmax(reference(whole).every_score(3)[:12]))
        assert chosen.selected.tolist() == [best]
        assert chosen.ambiguous.tolist() == [best, best + 12]
        assert len(select(whole.astype(dtype), 3, 1).ambiguous) == 0
        assert len(select(whole.astype(dtype), 3, 2, solver="exact").ambiguous) == 0


@pytest.mark.parametrize("method", ["gram", "lanczos"])
def test_near_copies_among_the_chosen_are_counted(tmp_path: Path, method: str) -> None:
    whole = np.concatenate([X, -X[:, :3] + 0.01 * X[:, 3:6]], axis=1)
    chosen = select(whole, 3, 15, solver="exact", method=method, out=tmp_path / "out")
    related = np.abs(np.corrcoef(whole, rowvar=False)) - np.eye(15) > 0.95
    assert chosen.near_copies.tolist() == np.flatnonzero(related.any(axis=1)).tolist()
    assert chosen.summary()["near_copies"] == chosen.near_copies.tolist()
    assert chosen.dataset.attrs["near_copies"] == len(chosen.near_copies) >= 6


def test_scores_that_are_not_unique_are_told(tmp_path: Path) -> None:
    X = tied_table((3, 2, 2, 1))
    chosen = select(X, 2, 3, solver="exact", out=tmp_path / "tied.zarr")
    told = json.loads(json.dumps(chosen.summary()))["tied_components"]
    within = told["within"]
    assert told == {"first": 2, "last": 3, "within": within, "noise": False, "try_k": [1, 3]}
    assert chosen.dataset.attrs["tied_components"] == 2
    for k in (1, 3):
        assert select(X, k, 3, solver="exact").summary()["tied_components"] is None


def test_summary_is_json_and_running_out_of_iterations_is_not_hidden() -> None:
    chosen = select(labelled(X), 3, 5)
    text = json.loads(json.dumps(chosen.summary(), allow_nan=False))
    assert text["selected"] == chosen.selected.tolist()
    assert text["labels"] == [f"gene {i} é" for i in chosen.selected]
    assert (text["samples"], text["features"], text["usable"]) == (300, 12, 12)
    assert text["excluded"] == {}
    assert text["output"] is None
    assert text["converged"] is True
    assert len(text["primal_residuals"]) == 2
    assert set(text["seconds"]) == {"read", "factor", "solve", "write", "total"}
    assert text["peak_rss_bytes"] > 0
    assert text["predicted_peak_bytes"] == chosen.plan.peak
    ended = select(X, 3, 5, options=AdmmOptions(max_iter=4))
    assert ended.summary()["converged"] is False
    assert ended.parameters == {"rho": 1.05, "max_iter": 4, "patience": 30}
    assert len(ended.solution.history["objective"]) == ended.solution.iterations == 4


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ({"h": 0}, "bad_h", "h is 0"),
        ({"h": 13}, "bad_h", "h is 13, but the number of features is 12"),
        ({"k": 13}, "bad_k", "number of features is 12"),
        ({"solver": "magic"}, "bad_option", "'magic' is unknown"),
        ({"precision": "float16"}, "bad_option", "'float16'"),
        ({"threads": 0}, "bad_option", "`threads` is 0"),
        ({"memory": "1MB"}, "does_not_fit", "are needed"),
        ({"method": "svd"}, "bad_option", "'svd'"),
    ],
    ids=str,
)
def test_refused(tmp_path: Path, arguments: dict[str, Any], code: str, message: str) -> None:
    matrix, rows = counted(open_matrix(X))
    with pytest.raises(RequestError, match=message) as caught:
        select(matrix, **{"k": 3, "h": 5, "out": tmp_path / "out.zarr", **arguments})
    assert caught.value.code == code
    assert caught.value.remedy
    assert rows.reads == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [2.7, 2.0, "2", None, True, np.True_])
def test_k_and_h_are_whole_numbers(number: Any) -> None:
    for name, ask in [
        ("k", lambda: select(X, number, 3)),
        ("k", lambda: decompose(X, number)),
        ("k", lambda: KMeansUFS(number, 3).partial_fit(X)),
        ("k", lambda: plan_selection(X, number, 3)),
        ("h", lambda: select(X, 2, number)),
        ("h", lambda: plan_selection(X, 2, number)),
    ]:
        with pytest.raises(RequestError, match=re.escape(f"{name} is {number!r}")) as caught:
            ask()
        assert caught.value.code == f"bad_{name}"
    whole = select(X, np.int64(2), np.uint8(3), solver="exact")
    assert whole.selected.tolist() == select(X, 2, 3, solver="exact").selected.tolist()
    json.dumps(whole.summary())


def test_a_plan_takes_what_select_takes_and_computes_nothing(tmp_path: Path) -> None:
    path = write_xarray(tmp_path / "x.zarr", labelled(X), chunks=(100, 12))
    factor = decompose(path, 3, out=tmp_path / "f.zarr")
    matrix, rows = counted(open_matrix(path))
    plan = plan_selection(matrix, 3, 5, memory="10GB")
    assert rows.reads == []
    assert plan.method == plan_selection(path, 3, 5).method == "gram"
    assert plan.partitions == plan_selection(str(path), 3, 5).partitions
    assert plan.peak <= 10 * 10**9
    assert plan.output_bytes == 300 * 5 * 8
    for known in (factor, tmp_path / "f.zarr"):
        assert plan_selection(path, 3, 5, factor=known).method == "factor"
        with pytest.raises(RequestError, match="its shape is 300 x 12, that of the data 299 x 12"):
            plan_selection(X[:-1], 3, 5, factor=known)


@pytest.mark.parametrize("solver", ["admm", "consensus"])
@pytest.mark.usefixtures("small_blocks")
def test_selection_is_the_same_under_any_memory_and_threads(solver: str) -> None:
    data = da.from_array(X, chunks=(10, 12))
    first = select(data, 3, 5, solver=solver, memory="20GB", threads=1)
    for asked in ({"threads": 4}, {"threads": 4, "memory": first.plan.peak}):
        other = select(data, 3, 5, solver=solver, **asked)
        assert other.selected.tolist() == first.selected.tolist()
        assert other.scores.tobytes() == first.scores.tobytes()
    cut = select(da.from_array(X, chunks=(17, 5)), 3, 5, solver=solver, threads=4)
    assert cut.selected.tolist() == first.selected.tolist()
    assert cut.solver_objective == pytest.approx(first.solver_objective, rel=1e-9)


def test_each_stored_chunk_is_read_once_and_copied_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_bare(tmp_path / "x.zarr", X, chunks=(20, 5))
    matrix, rows = counted(open_matrix(path))
    chosen = select(matrix, 3, 5, solver="exact", out=tmp_path / "out.zarr")
    read = np.zeros(15, int)
    for a, b in rows.reads:
        read[a // 20 : -(-b // 20)] += 1
    # The probe's two places are read once more.
    assert set(read.tolist()) <= {1, 2}
    assert (read == 2).sum() <= 4
    copied = np.zeros(300, int)
    for a, b in rows.takes:
        assert a % 20 == 0
        copied[a:b] += 1
    assert (copied == 1).all()
    assert_optimal(chosen.selected, EXPECTED.every_score(3), 5, 1e-12)
    monkeypatch.setattr(sizing, "OUTPUT_CHUNK_BYTES", 5 * 8 * 30)
    matrix, rows = counted(open_matrix(write_bare(tmp_path / "tall.zarr", X, chunks=(150, 12))))
    select(matrix, 3, 5, solver="exact", out=tmp_path / "of_tall.zarr")
    assert sum(-(-b // 150) - a // 150 for a, b in rows.takes) == 2


@pytest.mark.parametrize(
    ("solver", "method"), [("joint", "tsqr"), ("css", "lanczos"), ("consensus", "tsqr")]
)
def test_solvers_that_use_correlations_do_without_the_matrix(solver: str, method: str) -> None:
    # Twelve components of twelve features: what the factor says of the matrix is all of it.
    factor = decompose(X, 6, method=method)
    assert factor.correlation is None
    expected = select(X, 6, 5, solver=solver)
    chosen = select(X, 6, 5, solver=solver, factor=factor)
    assert chosen.selected.tolist() == expected.selected.tolist()
    assert chosen.solver_objective == pytest.approx(expected.solver_objective, rel=1e-3)


@pytest.mark.parametrize("solver", ["joint", "consensus"])
def test_a_stored_factor_gives_the_same_and_nothing_is_read(tmp_path: Path, solver: str) -> None:
    factor, out = decompose(X, 3, out=tmp_path / "factor.zarr"), tmp_path / "out.zarr"
    matrix, rows = counted(open_matrix(X))
    first = select(X, 3, 5, solver=solver, factor=factor)
    again = select(matrix, 3, 5, solver=solver, factor=tmp_path / "factor.zarr", out=out)
    assert again.selected.tolist() == first.selected.tolist()
    assert again.solver_objective == first.solver_objective
    assert all(b - a < 300 for a, b in rows.reads)  # the probe alone, to know whose factor it is
    with xr.open_datatree(out) as written:
        path = written["diagnostics"]["solver_objective"].values
        assert path[-1] == written.attrs["solver_objective"] == first.solver_objective


def test_consensus_says_that_a_sample_is_missing() -> None:
    factor = decompose(X, 3)
    bare = replace(factor, sample=RowSample(factor.sample.index[:0], [factor.sample.values[:0]]))
    with pytest.raises(RequestError, match="consensus cannot run: a sample of 0 rows"):
        select(X, 3, 5, solver="consensus", factor=bare)

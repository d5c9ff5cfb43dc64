"""Missing values, rare features and kept features, against NumPy on completed tables."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from helpers import every_score, labelled, planted, same_bits, write_bare, write_xarray
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import assert_same_scores, reference

from kmufs_stream import (
    LanczosOptions,
    RequestError,
    Screening,
    decompose,
    load_factor,
    open_matrix,
    save_factor,
    select,
)

N, P, K = 600, 30, 3
X = planted(N, P)
EMPTY, HOLEY = 4, [7, 11, 19]
SETTLED = LanczosOptions(tol=1e-9, max_passes=20)


def holes(dtype: Any = np.float64) -> Any:
    """One feature without values, three with gaps, a constant one that has gaps too."""
    whole = X.astype(dtype)
    rng = np.random.default_rng(3)
    for j in HOLEY:
        whole[rng.random(N) < 0.2, j] = np.nan
    whole[:, EMPTY] = np.nan
    whole[:, 25] = 7
    whole[5, 25] = np.nan
    return whole


def completed(x: Any, missing: str) -> tuple[Any, list[int]]:
    """Apply a policy for missing values to a table; return it and the features left."""
    x = x.astype(np.float64)
    left = [j for j in range(x.shape[1]) if not np.isnan(x[:, j]).all()]
    if missing == "drop-features":
        left = [j for j in left if not np.isnan(x[:, j]).any()]
    if missing == "drop-samples":
        x = x[~np.isnan(x[:, left]).any(axis=1)]
    if missing == "mean":
        with np.errstate(invalid="ignore"):
            count = (~np.isnan(x)).sum(axis=0)
            x = np.where(np.isnan(x), np.nansum(x, axis=0) / np.maximum(count, 1), x)
    return x[:, left], left


def expected_scores(x: Any, missing: str, k: int = K) -> Any:
    table, left = completed(x, missing)
    scores = np.full(x.shape[1], np.nan)
    scores[left] = reference(table).every_score(k)
    return scores


@pytest.mark.parametrize("method", ["gram", "tsqr", "lanczos"])
@pytest.mark.parametrize(
    ("missing", "dtype"),
    [("drop-features", "f4"), ("drop-samples", "f8"), ("mean", "f4"), ("mean", "f8")],
)
def test_policies_on_every_method(method: str, missing: str, dtype: str) -> None:
    x = holes(dtype)
    lazy = da.from_array(x, chunks=(50, P))
    options: Any = {"method": method, "screening": Screening(missing), "lanczos": SETTLED}
    factor = decompose(lazy, K, threads=2, **options)
    exact = dtype == "f8" or method == "tsqr"
    assert_same_scores(every_score(factor, K), expected_scores(x, missing), 1e-9 if exact else 2e-5)
    features = factor.features
    table, left = completed(x, missing)
    assert features.samples == len(table)
    assert features.excluded["all_missing"].tolist() == [EMPTY]
    np.testing.assert_allclose(features.mean[left], table.mean(axis=0), rtol=1e-5, atol=1e-6)
    if missing == "drop-samples":
        assert len(features.dropped) == N - len(table)
    else:
        assert features.missing.tolist() == np.isnan(x).sum(axis=0).tolist()
    if method == "gram":
        assert factor.passes == 1
    if method == "tsqr":
        assert factor.passes == (2 if missing == "mean" else 1)
    assert same_bits(factor, decompose(lazy, K, threads=1, **options))


@pytest.mark.parametrize("method", ["gram", "lanczos"])
def test_filters_on_every_method(method: str) -> None:
    x = np.abs(X) * np.where(np.arange(P) % 5 == 0, 1e-4, 1.0)
    x[: N * 3 // 4, 1::5] = 0
    factor = decompose(
        x,
        K,
        method=method,
        screening=Screening(min_std=1e-2, min_nonzero=0.5),
        lanczos=SETTLED,
    )
    assert factor.features.excluded["low_std"].tolist() == list(range(0, P, 5))
    assert factor.features.excluded["rare"].tolist() == list(range(1, P, 5))
    at_the_limit = Screening(min_std=float(factor.features.std[2]))
    limited = decompose(x, K, method=method, screening=at_the_limit, lanczos=SETTLED)
    assert 2 not in limited.features.excluded["low_std"]
    left = factor.features.usable
    scores = np.full(P, np.nan)
    scores[left] = reference(x[:, left]).every_score(K)
    assert_same_scores(every_score(factor, K), scores, 1e-9)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    share=st.sampled_from([0.0, 0.01, 0.3, 0.9]),
    offset=st.sampled_from([0.0, 1e3]),
    missing=st.sampled_from(["drop-features", "drop-samples", "mean"]),
)
def test_any_gaps_in_one_read(seed: int, share: float, offset: float, missing: str) -> None:
    rng = np.random.default_rng(seed)
    x = planted(90, 8, seed=seed % 7) + offset
    x[rng.random(x.shape) < share * rng.random(8)] = np.nan
    table, left = completed(x, missing)
    known = len(table) > 10 and len(left) > 2 and len(reference(table).usable) > 2
    if not known:
        return
    factor = decompose(x, 2, screening=Screening(missing))
    assert_same_scores(every_score(factor, 2), expected_scores(x, missing, 2), 1e-7)


def test_features_that_are_empty_in_the_probe_alone_cost_a_second_read(tmp_path: Path) -> None:
    x = np.tile(X, (20, 1))
    x[:, 3] = np.nan
    x[1000:1010, 3] = np.arange(10)  # between the places that the probe reads
    x[1003, 8] = np.nan
    path = write_bare(tmp_path / "a", x, chunks=(1000, P))
    factor = decompose(path, K, screening=Screening("drop-samples"))
    assert factor.passes == 2
    assert factor.features.samples == 9
    assert_same_scores(every_score(factor, K), expected_scores(x, "drop-samples"), 1e-9)


def test_dropped_samples_are_not_in_the_output(tmp_path: Path) -> None:
    x = holes()
    path = write_xarray(tmp_path / "a.zarr", labelled(x), chunks=(70, 13))
    drop = Screening("drop-samples")
    result = select(path, K, 5, solver="exact", screening=drop, out=tmp_path / "out.zarr")
    keep = ~np.isnan(np.delete(x, EMPTY, 1)).any(axis=1)
    with xr.open_zarr(tmp_path / "out.zarr") as written:
        np.testing.assert_array_equal(written["counts"], x[keep][:, result.selected])
        np.testing.assert_array_equal(written["number"], np.flatnonzero(keep))
        assert written.attrs["samples"] == keep.sum()
        assert written.attrs["samples_dropped"] == N - keep.sum()
    save_factor(result.factor, tmp_path / "f.zarr")
    factor = load_factor(tmp_path / "f.zarr")
    again = select(path, K, 5, solver="exact", factor=factor)
    np.testing.assert_array_equal(again.dataset["counts"], x[keep][:, result.selected])
    assert not np.isnan(factor.sample.values[:, factor.features.usable]).any()
    assert keep[factor.sample.index].all()


def test_output_keeps_what_is_missing(tmp_path: Path) -> None:
    x, out = holes(), tmp_path / "out.zarr"
    result = select(x, K, 20, solver="exact", screening=Screening("mean"), out=out)
    with xr.open_zarr(out) as written, xr.open_zarr(out, group="all_features") as every:
        np.testing.assert_array_equal(written["data"], x[:, result.selected])
        assert written.attrs["missing"] == "mean"
        assert written.attrs["missing_values"] == np.isnan(x[:, HOLEY]).sum()
        assert written.attrs["excluded_all_missing"] == 1
        assert every["missing"].values.tolist() == np.isnan(x).sum(axis=0).tolist()
    (standardised,) = result.factor.sample_blocks()
    assert (standardised[np.isnan(x)[:, result.factor.features.usable]] == 0).all()


def test_a_factor_answers_only_what_it_was_made_for(tmp_path: Path) -> None:
    x = holes()
    factor = decompose(x, K, screening=Screening("mean"))
    select(x, K, 4, factor=factor, solver="exact")
    with pytest.raises(RequestError, match=r"missing='mean'.*, not drop-samples") as caught:
        select(x, K, 4, factor=factor, solver="exact", screening=Screening("drop-samples"))
    assert caught.value.code == "wrong_factor"
    part = open_matrix(x, features=["1*"])
    with pytest.raises(RequestError, match="other features"):
        select(part, K, 4, factor=factor, solver="exact")


def test_features_not_asked_for_are_there_and_counted(tmp_path: Path) -> None:
    path, out = write_xarray(tmp_path / "a.zarr", labelled(X)), tmp_path / "out.zarr"
    matrix = open_matrix(path, features="gene 1*", where="batch != 'batch 1'")
    asked = np.isin(np.arange(P), [1, *range(10, 20)])
    result = select(matrix, K, 4, solver="exact", out=out)
    rows = np.arange(N) % 3 != 1
    assert asked[result.selected].all()
    not_asked = result.factor.features.excluded["not_asked"]
    assert not_asked.tolist() == np.flatnonzero(~asked).tolist()
    assert result.factor.sample.values.shape == (rows.sum(), P)
    with xr.open_zarr(out) as written, xr.open_zarr(out, group="all_features") as every:
        np.testing.assert_array_equal(written["counts"], X[rows][:, result.selected])
        np.testing.assert_array_equal(written["number"], np.flatnonzero(rows))
        assert written["feature_index"].values.tolist() == result.selected.tolist()
        assert ((every["excluded"] == "not_asked") == ~asked).all()


def test_kept_features_leave_the_best_of_the_rest() -> None:
    x = planted(200, 9)
    scores = reference(x).every_score(2)
    keep = [int(i) for i in np.argsort(scores)[:2]]
    result = select(x, 2, 4, solver="exact", keep=[str(i) for i in keep])
    best = max(
        (c for c in combinations(range(9), 4) if set(keep) <= set(c)),
        key=lambda chosen: scores[list(chosen)].sum(),
    )
    assert result.selected.tolist() == list(best)
    assert result.kept.tolist() == sorted(keep)
    assert result.objective == pytest.approx(scores[list(best)].sum())
    assert result.objective < result.optimum
    assert set(keep) <= set(select(x, 2, 4, keep=[str(i) for i in keep]).selected.tolist())


def test_rows_of_a_condition_are_read_in_bounded_runs(tmp_path: Path) -> None:
    array = labelled(X).assign_coords(rare=("cell", np.arange(N) % 97 == 0))
    matrix = open_matrix(write_xarray(tmp_path / "a.zarr", array, chunks=(20, P)), where="rare")
    source = matrix.rows.rows  # type: ignore[attr-defined]
    spans = []

    class Noting:
        def read(self, start: int, stop: int) -> Any:
            spans.append(stop - start)
            return source.read(start, stop)

    object.__setattr__(matrix.rows, "rows", Noting())
    np.testing.assert_array_equal(matrix.rows.read(0, 7), X[::97])
    assert max(spans) <= 20

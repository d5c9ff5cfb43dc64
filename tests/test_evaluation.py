"""What evaluate() measures, against scikit-learn on whole arrays."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import xarray as xr
import zarr
from helpers import chunk_files, no_warnings, planted, write_xarray
from sklearn import metrics
from sklearn.cluster import KMeans

from kmufs_stream import (
    BrokenError,
    Evaluation,
    RequestError,
    Screening,
    apply,
    evaluate,
    evaluation,
    open_matrix,
    select,
)
from kmufs_stream.streaming import kmeans

K, H = 3, 5


def clustered(n: int = 400, p: int = 12) -> xr.DataArray:
    """Three clusters, named along the samples; feature 4 is constant."""
    rng = np.random.default_rng(3)
    y = rng.integers(3, size=n)
    X = rng.normal(size=(3, p))[y] * np.linspace(0.1, 3, p) + rng.normal(size=(n, p))
    X[:, 4] = 2
    partly = np.where(rng.random(n) < 0.2, np.nan, y)
    return xr.DataArray(
        X.astype("f4"),
        dims=("cell", "gene"),
        name="counts",
        coords={
            "gene": [f"g{i}" for i in range(p)],
            "kind": ("cell", np.array(["a", "b", "c"])[y]),
            "partly": ("cell", partly),
            "depth": ("cell", np.arange(n) / 7),
        },
    )


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, xr.DataArray]:
    array, folder = clustered(), tmp_path_factory.mktemp("stored")
    path = write_xarray(folder / "x.zarr", array, chunks=(50, 12))
    select(path, K, H, solver="exact", out=folder / "chosen.zarr")
    return path, folder / "chosen.zarr", array


@pytest.fixture(scope="module")
def judged(stored: tuple[Path, Path, xr.DataArray]) -> Evaluation:
    return evaluate(stored[1], labels="kind", data=stored[0])


def test_measures(stored: tuple[Path, Path, xr.DataArray], judged: Evaluation) -> None:
    array, found = stored[2], judged
    X = np.asarray(array, dtype=float)
    Z = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1)
    chosen = Z[:, found.selected]
    ours = KMeans(K, n_init=10, random_state=0).fit(chosen)
    kinds = array["kind"].values
    assert found.clustering.method == "scikit-learn"
    assert found.clustering.converged
    assert found.clustering.cost == pytest.approx(ours.inertia_, rel=1e-5)
    assert sorted(found.sizes) == sorted(np.bincount(ours.labels_))
    assert found.agreement.nmi == pytest.approx(
        metrics.normalized_mutual_info_score(kinds, ours.labels_)
    )
    assert found.agreement.ari == pytest.approx(metrics.adjusted_rand_score(kinds, ours.labels_))
    means = np.array([Z[ours.labels_ == c].mean(axis=0) for c in range(K)])[ours.labels_]
    np.testing.assert_allclose(found.between, (means**2).mean(axis=0)[found.selected], rtol=1e-5)
    best = KMeans(K, n_init=10, random_state=0).fit(Z)
    assert found.full_cost.ratio == pytest.approx(
        ((Z - means) ** 2).sum() / best.inertia_, rel=1e-5
    )
    assert found.full_cost.best == pytest.approx(best.inertia_ / (11 * 400), rel=1e-5)
    correlation = np.corrcoef(chosen.T)
    assert found.mean_correlation == pytest.approx(
        np.abs(correlation[np.triu_indices(H, 1)]).mean(), rel=1e-5
    )
    assert found.names == [f"g{i}" for i in found.selected]


def test_without_data_and_classes_of_all(
    stored: tuple[Path, Path, xr.DataArray], judged: Evaluation
) -> None:
    partly = evaluate(stored[1], labels="partly").agreement
    assert partly.samples == int(stored[2]["partly"].notnull().sum())  # those that have a class
    assert partly.classes == 3
    alone = evaluate(stored[1])
    np.testing.assert_allclose(alone.between, judged.between, rtol=1e-12)
    summary = json.loads(json.dumps(alone.summary(), allow_nan=False))
    for key in ("accuracy", "nmi", "ari", "classes", "cost_ratio", "full_cost", "best_full_cost"):
        assert summary[key] is None, key
    assert summary.keys() == judged.summary().keys()
    assert summary["cost"] == pytest.approx(1 - np.mean(summary["between"]))


@pytest.mark.usefixtures("small_blocks")
def test_full_lloyd_steps_end_where_scikit_learn_does(
    stored: tuple[Path, Path, xr.DataArray], judged: Evaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, result, _ = stored
    monkeypatch.setattr(kmeans, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(kmeans, "sample_size", lambda n, row_bytes: 60)
    streamed = evaluate(result, labels="kind", data=path, threads=3)
    assert (streamed.clustering.method, streamed.clustering.converged) == ("lloyd", True)
    assert streamed.clustering.cost == pytest.approx(judged.clustering.cost, rel=1e-4)
    assert streamed.full_cost.best == pytest.approx(judged.full_cost.best, rel=1e-4)
    assert sorted(streamed.sizes) == sorted(judged.sizes)
    assert streamed.agreement.accuracy == judged.agreement.accuracy
    assert streamed.agreement.ari == pytest.approx(judged.agreement.ari, rel=1e-12)
    again = evaluate(result, labels="kind", data=path, threads=1)
    assert again.clustering.centres.tobytes() == streamed.clustering.centres.tobytes()
    assert again.full_cost.ratio == streamed.full_cost.ratio


def test_a_small_budget_streams_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kmeans, "sample_size", lambda n, row_bytes: 1000)
    select(planted(20_000, 20), K, 10, solver="exact", out=tmp_path / "chosen.zarr")
    ample = evaluate(tmp_path / "chosen.zarr", starts=1, memory="10GB")
    tight = evaluate(tmp_path / "chosen.zarr", starts=1, memory=ample.predicted_peak - 10**6)
    assert ample.clustering.method == "scikit-learn"
    assert tight.clustering.method == "lloyd"
    assert "lloyd, not scikit-learn" in tight.concessions
    with pytest.raises(RequestError) as caught:
        evaluate(tmp_path / "chosen.zarr", memory="10MB")
    assert caught.value.code == "does_not_fit"


def test_what_a_selection_lacks_is_found_in_its_table(tmp_path: Path) -> None:
    array = clustered().assign_coords({"gene name": ("gene", list("abcdefghijkl"))})
    table = array.to_dataset().reset_coords("kind")  # classes that select does not copy
    matrix = open_matrix(table, variable="counts")
    whole, bare = tmp_path / "whole.zarr", tmp_path / "bare.zarr"
    select(matrix, K, H, solver="exact", out=whole)
    select(matrix, K, H, solver="exact", out=bare, selection_only=True)
    with pytest.raises(RequestError) as caught:
        evaluate(whole, labels="kind")
    assert caught.value.code == "unknown_labels"
    with pytest.raises(RequestError, match="holds no data"):
        evaluate(bare)
    found, same = (evaluate(path, labels="kind", data=matrix) for path in (whole, bare))
    assert found.agreement.classes == 3
    assert same.agreement == found.agreement
    np.testing.assert_array_equal(same.between, found.between)
    assert same.names == found.names


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"k": 401}, "bad_k"),
        ({"starts": 0}, "bad_option"),
        ({"seed": -1}, "bad_option"),
        ({"labels": "nothing"}, "unknown_labels"),
        ({"labels": "gene"}, "unknown_labels"),
        ({"data": planted(400, 11)}, "wrong_data"),
    ],
    ids=str,
)
def test_refused(
    stored: tuple[Path, Path, xr.DataArray], arguments: dict[str, Any], code: str
) -> None:
    with pytest.raises(RequestError) as caught:
        evaluate(stored[1], **arguments)
    assert caught.value.code == code
    assert caught.value.remedy


@pytest.mark.parametrize("selection_only", [False, True])
def test_other_data_are_refused(tmp_path: Path, selection_only: bool) -> None:
    genes = [f"gene {i}" for i in range(12)]
    array = xr.DataArray(planted(300, 12), {"gene": genes}, ("cell", "gene"), "counts")
    array[250, 3] = np.nan
    out, screening = tmp_path / "out.zarr", Screening("drop-samples")
    chosen = {"solver": "exact", "screening": screening, "selection_only": selection_only}
    select(array, 3, 4, out=out, **chosen)
    # In other order, with fewer rows, and with fewer than the complete ones.
    others = [array[:, ::-1], array[:200], array[:100]]
    if not selection_only:  # without its data nothing tells one order of rows from another
        others.append(array[::-1])
    for other in others:
        with pytest.raises(RequestError, match="was not made from") as caught:
            evaluate(out, data=other)
        assert caught.value.code == "wrong_data"
    assert evaluate(out, data=array, starts=1).full_cost is not None


@pytest.mark.parametrize("lost", ["x.zarr", "chosen.zarr"])
def test_a_lost_chunk_is_noticed(
    stored: tuple[Path, Path, xr.DataArray], tmp_path: Path, lost: str
) -> None:
    folder = shutil.copytree(stored[0].parent, tmp_path / "copy")
    chunk_files(folder / lost / "counts")[0].unlink()
    with pytest.raises(BrokenError) as caught:
        evaluate(folder / "chosen.zarr", data=folder / "x.zarr")
    assert caught.value.code == "missing_chunk"


def test_what_is_of_another_format_is_refused_by_name(tmp_path: Path) -> None:
    x, chosen, new = planted(60, 6), tmp_path / "chosen.zarr", tmp_path / "new.zarr"
    select(x, K, 2, solver="exact", out=chosen)
    apply(chosen, x, out=new)
    for path, version in ((chosen, 0), (new, 9)):
        zarr.open_group(path).attrs["format_version"] = version
        zarr.consolidate_metadata(path)
    with pytest.raises(RequestError, match="of format 0, this version reads 1") as caught:
        evaluate(chosen)
    assert caught.value.code == "selection_format"
    with pytest.raises(RequestError, match="an applied selection of format 9"):
        evaluate(new)


def in_two_ways(tmp_path: Path, array: xr.Dataset, plain: xr.Dataset, **asked: Any) -> None:
    """What is evaluated with ``asked`` on the one is what is evaluated plainly on the other."""
    screening = asked.pop("screening", None)
    results = Path(f"{tmp_path}.asked"), Path(f"{tmp_path}.plain")
    select(open_matrix(array, **asked), K, H, solver="exact", screening=screening, out=results[0])
    select(plain, K, H, solver="exact", out=results[1])
    row_by_row = "normalise-rows" in asked.get("transform", ())
    if row_by_row:
        with pytest.raises(RequestError, match="made of normalised rows"):
            evaluate(results[0], labels="kind")
    for tables in ((array, plain),) if row_by_row else ((array, plain), (None, None)):
        found, expected = (
            evaluate(result, labels="kind", data=table, starts=1)
            for result, table in zip(results, tables, strict=True)
        )
        assert found.agreement == expected.agreement
        assert found.names == expected.names
        assert found.sizes.tolist() == expected.sizes.tolist()
        np.testing.assert_allclose(found.between, expected.between, rtol=1e-6)
        assert found.mean_correlation == pytest.approx(expected.mean_correlation, rel=1e-6)
        assert found.effective_rank == pytest.approx(expected.effective_rank, rel=1e-6)
        assert (found.full_cost is None) is (tables[0] is None)
        if found.full_cost is not None and expected.full_cost is not None:
            assert found.full_cost.ratio == pytest.approx(expected.full_cost.ratio, rel=1e-6)


def table_of_counts(seed: int = 5) -> xr.Dataset:
    rng = np.random.default_rng(seed)
    kinds = rng.integers(K, size=240)
    rates = np.exp(rng.normal(size=(K, 12)))[kinds]
    return xr.Dataset(
        {"x": (("c", "g"), rng.poisson(4 * rates).astype(np.float64))},
        coords={"g": [f"g{i}" for i in range(12)], "kind": ("c", kinds), "n": ("c", range(240))},
    )


def test_samples_features_and_transforms_are_those_of_the_result(tmp_path: Path) -> None:
    counts = table_of_counts()
    normalised = counts["x"] * (1e4 / counts["x"].sum("g"))
    plain = counts.assign(x=np.log1p(normalised))
    in_two_ways(tmp_path / "rows", counts, plain, transform=("normalise-rows", "log1p"))
    part = counts.isel(g=[i for i in range(12) if i != 4], c=slice(51, None))
    asked = {"where": "n > 50", "exclude_features": "g4", "transform": ("log1p",)}
    in_two_ways(tmp_path / "part", counts, part.assign(x=np.log1p(part["x"])), **asked)


@pytest.mark.parametrize("missing", ["mean", "drop-samples", "drop-features"])
def test_missing_values_are_dealt_with_as_for_the_result(tmp_path: Path, missing: str) -> None:
    counts = table_of_counts()
    x = counts["x"].values
    x[np.random.default_rng(0).random(x.shape) < 0.02] = np.nan
    x[:, :8] = np.nan_to_num(x[:, :8], nan=3)
    x[:, 11] = np.nan
    complete = counts.isel(g=slice(11)).copy(deep=True)
    if missing == "mean":
        values = complete["x"].values
        values[:] = np.where(np.isnan(values), np.nanmean(values, axis=0), values)
    elif missing == "drop-samples":
        complete = complete.isel(c=~np.isnan(complete["x"].values).any(axis=1))
    else:
        complete = complete.isel(g=~np.isnan(complete["x"].values).any(axis=0))
    turned = counts.transpose("g", "c", ...)  # what stands first is for the options to say
    in_two_ways(tmp_path, turned, complete, sample_dims="c", screening=Screening(missing))


def test_what_apply_made_is_standardised_anew(tmp_path: Path) -> None:
    old, new = table_of_counts(), table_of_counts(6).isel(g=slice(None, None, -1))
    new["x"].values[3, 2] = np.nan
    matrix = open_matrix(old, transform="log1p")
    chosen = select(matrix, K, H, solver="exact", out=tmp_path / "chosen.zarr")
    apply(tmp_path / "chosen.zarr", new, out=tmp_path / "applied.zarr")
    found = evaluate(tmp_path / "applied.zarr", labels="kind")
    values = np.log1p(new["x"].sel(g=chosen.labels).values)
    values = np.where(np.isnan(values), np.nanmean(values, axis=0), values)
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    fitted = KMeans(K, n_init=10, random_state=0).fit(values)
    assert found.clustering.cost == pytest.approx(fitted.inertia_, rel=1e-6)
    assert found.agreement.ari == pytest.approx(
        metrics.adjusted_rand_score(new["kind"], fitted.labels_)
    )
    assert found.full_cost is None
    assert found.names == chosen.labels
    assert evaluate(tmp_path / "applied.zarr", data=new).full_cost is None
    raw = open_matrix(new, transform="normalise-rows")
    with pytest.raises(RequestError, match=r"log1p; that has normalise-rows"):
        evaluate(tmp_path / "applied.zarr", data=raw)


@pytest.mark.parametrize("table", ["a table", "score"])
def test_coordinates_with_spaces_are_taken_for_no_table(tmp_path: Path, table: str) -> None:
    array = clustered(150).drop_vars("gene").rename(table)
    path, made, quality = tmp_path / "chosen.zarr", tmp_path / "applied.zarr", np.ones(array.shape)
    found = []
    for name, label in (("quality", "kind"), ("a quality", "the kind"), ("z z", "a kind")):
        renamed = array.rename(kind=label).assign_coords({name: (array.dims, quality)})
        with no_warnings():
            select(renamed, K, H, solver="exact", out=path, overwrite=True)
            apply(path, renamed, out=made, overwrite=True)
        assert open_matrix(path).shape == open_matrix(made).shape == (150, H)
        found += [evaluate(place, labels=label, starts=1).summary() for place in (path, made)]
    for key in ("accuracy", "cost", "cluster_sizes", "between"):
        assert len({str(measures[key]) for measures in found[::2]}) == 1
        assert len({str(measures[key]) for measures in found[1::2]}) == 1
    assert found[0]["accuracy"] > 0.9


def test_dimensions_with_spaces(tmp_path: Path) -> None:
    array = xr.DataArray(
        planted(120, 12).reshape(10, 12, 3, 4),
        {"my time": range(10), "a class": ("my time", np.arange(10) % 2)},
        dims=("my time", "member", "the lat", "lon"),
    )
    matrix = open_matrix(array, sample_dims=["my time", "member"])
    select(matrix, K, H, solver="exact", out=tmp_path / "chosen.zarr")
    assert evaluate(tmp_path / "chosen.zarr", labels="a class").samples == 120


def test_all_features_are_clustered_once_for_several_results(
    stored: tuple[Path, Path, xr.DataArray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, result, array = stored
    select(path, K, H + 1, solver="exact", out=tmp_path / "other.zarr")
    second = array + np.arange(len(array)).reshape(-1, 1)
    select(second, K, H, solver="exact", out=tmp_path / "of_other_data.zarr")
    asked: dict[str, Any] = {"data": path, "starts": 2}
    alone = evaluate(tmp_path / "other.zarr", **asked)
    run = mock.Mock(side_effect=evaluation.kmeans)
    monkeypatch.setattr(evaluation, "kmeans", run)
    first = evaluate(result, **asked)
    after = evaluate(tmp_path / "other.zarr", beside=first, **asked)
    assert [call.args[0].shape[1] for call in run.mock_calls] == [H, 12, H + 1]
    assert after.summary()["cost_ratio"] == alone.summary()["cost_ratio"]
    assert after.summary()["full_iterations"] == alone.summary()["full_iterations"]
    run.reset_mock()
    for changed in ({"k": 2}, {"starts": 3}, {"seed": 1}):
        evaluate(tmp_path / "other.zarr", beside=first, **(asked | changed))
    evaluate(tmp_path / "of_other_data.zarr", beside=first, **(asked | {"data": second}))
    evaluate(result, beside=evaluate(result, starts=2), **asked)
    clustered = [call.args[0].shape[1] for call in run.mock_calls]
    assert clustered == [H + 1, 12] * 3 + [H, 12] + [H] + [H, 12]

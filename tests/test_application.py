"""The columns of a selection, from other data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from helpers import labelled, no_warnings, planted, write_xarray
from scipy import sparse

from kmufs_stream import RequestError, apply, decompose, evaluate, open_matrix, select

K, H = 3, 6
X = planted(200, 20)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_xarray(tmp_path_factory.mktemp("old") / "x.zarr", labelled(X), chunks=(50, 20))


@pytest.fixture(scope="module")
def chosen(old: Path) -> Path:
    select(old, K, H, solver="exact", out=old.parent / "chosen.zarr")
    return old.parent / "chosen.zarr"


def wanted(chosen: Path) -> list[str]:
    return [str(label) for label in xr.open_zarr(chosen)["gene"].values]


@pytest.mark.parametrize("selection_only", [False, True])
def test_the_same_columns_wherever_they_stand(
    tmp_path: Path, old: Path, selection_only: bool
) -> None:
    chosen = tmp_path / "chosen.zarr"
    first = select(old, K, H, solver="exact", out=chosen, selection_only=selection_only)
    rng = np.random.default_rng(1)
    new = labelled(planted(130, 20, seed=5, dtype=np.float32)).isel(gene=rng.permutation(20))
    if selection_only:  # and features stored first
        new = new.transpose("gene", "cell")
    matrix = open_matrix(
        write_xarray(tmp_path / "new.zarr", new, chunks=(10, 7)), sample_dims="cell"
    )
    with no_warnings():
        done = apply(chosen, matrix, out=tmp_path / "out.zarr")
        found = xr.open_zarr(tmp_path / "out.zarr").load()
    assert done.matched == "label"
    assert done.labels == first.labels
    expected = new.sel(gene=wanted(chosen))
    assert found["counts"].dtype == np.float32
    np.testing.assert_array_equal(found["counts"], expected)
    for name in expected.coords:
        np.testing.assert_array_equal(found[name], expected[name])
    np.testing.assert_array_equal(found["feature_index"], done.columns)
    np.testing.assert_array_equal(new["gene"][done.columns], wanted(chosen))
    np.testing.assert_array_equal(found["score"], first.scores)
    np.testing.assert_array_equal(found["rank"], first.ranks)


def test_other_labels_than_the_index_are_known_of_what_was_written(tmp_path: Path) -> None:
    named = labelled(X).assign_coords(symbol=("gene", [f"s{i}" for i in range(20)]))
    matrix, chosen = open_matrix(named, feature_labels="symbol"), tmp_path / "chosen.zarr"
    select(matrix, K, H, solver="exact", out=chosen)
    apply(chosen, named, out=tmp_path / "out.zarr")
    found = evaluate(tmp_path / "out.zarr", data=named, starts=1)
    assert found.names == [f"s{i}" for i in found.selected]


def test_what_was_written_of_stacked_features_keeps_their_names(tmp_path: Path) -> None:
    shape, dims = (200, 4, 5), ("time", "lat", "lon")
    cube = xr.DataArray(X.reshape(shape), {"lat": [75, 70.5, 65, 60]}, dims, name="air")
    cube.to_dataset().assign(kind=("time", np.arange(200) % 3)).to_zarr(tmp_path / "old.zarr")
    names = {"chosen": tmp_path / "chosen.zarr", "applied": tmp_path / "applied.zarr"}
    matrix = open_matrix(tmp_path / "old.zarr", sample_dims="time")
    first = select(matrix, K, H, solver="exact", out=names["chosen"])
    done = apply(names["chosen"], tmp_path / "old.zarr", out=names["applied"])
    expected = list(map(str, first.labels))
    for labels in (done.labels, decompose(names["applied"], K).labels):
        assert list(labels) == expected
    for made in names.values():
        judged = evaluate(made, data=tmp_path / "old.zarr", labels="kind", starts=1)
        assert judged.names == expected
        assert judged.agreement is not None
        part = open_matrix(made, features=expected[1:])
        again = select(part, 2, 3, solver="exact", keep=expected[4])
        assert expected[4] in (again.labels or [])
    turned = xr.open_zarr(tmp_path / "old.zarr").transpose("lon", "time", "lat").load()
    turned["lat"] = turned["lat"].astype(np.float32)
    by_name = apply(names["chosen"], turned, out=tmp_path / "turned.zarr")
    assert by_name.matched == "label"
    places = np.arange(20).reshape(4, 5).T.ravel()[by_name.columns]
    np.testing.assert_array_equal(places, first.selected)
    reduced = xr.open_zarr(names["applied"]).sel(feature=expected[2])["air"]
    np.testing.assert_array_equal(reduced, X[:, first.selected[2]])


def test_by_position_without_labels(tmp_path: Path, chosen: Path) -> None:
    Y = planted(90, 20, seed=2)
    done = apply(chosen, Y, out=tmp_path / "out.zarr")
    assert done.matched == "position"
    found = xr.open_zarr(tmp_path / "out.zarr")["data"]
    np.testing.assert_array_equal(found, Y[:, xr.open_zarr(chosen)["feature_index"].values])


def test_sparse_data(tmp_path: Path, chosen: Path) -> None:
    anndata = pytest.importorskip("anndata")
    dense = np.where(planted(70, 20, seed=4) > 1, 1.5, 0.0)
    cells = anndata.AnnData(sparse.csr_matrix(dense))
    cells.var_names = [f"gene {i} é" for i in reversed(range(20))]
    cells.write_h5ad(tmp_path / "new.h5ad")
    apply(chosen, str(tmp_path / "new.h5ad"), out=tmp_path / "out.zarr")
    found = xr.open_zarr(tmp_path / "out.zarr")
    np.testing.assert_array_equal(found["X"], cells[:, wanted(chosen)].X.toarray())


def test_it_says_whether_it_can_be_judged_alone(tmp_path: Path) -> None:
    counts = np.abs(planted(60, 8))
    for transform, alone in (("log1p", True), ("normalise-rows", False)):
        chosen, new = tmp_path / transform, tmp_path / f"{transform}.applied"
        select(open_matrix(counts, transform=transform), 2, 3, solver="exact", out=chosen)
        assert apply(chosen, counts, out=new).self_contained is alone
        assert evaluate(new, data=None if alone else counts, starts=1).clustering is not None


def test_what_cannot_be_applied_is_refused(tmp_path: Path, old: Path, chosen: Path) -> None:
    new = labelled(planted(50, 20))
    lost = wanted(chosen)[2]
    for other, code, said in (
        (new.drop_sel(gene=lost), "missing_features", lost),
        (xr.concat([new, new.sel(gene=[lost])], "gene"), "ambiguous_features", lost),
        (new.values[:, :19], "wrong_features", "20 features"),
    ):
        with pytest.raises(RequestError, match=said) as raised:
            apply(chosen, other, out=tmp_path / "out.zarr")
        assert raised.value.code == code
        assert not (tmp_path / "out.zarr").exists()
    for place in (chosen, tmp_path / "nowhere" / "out.zarr"):
        with pytest.raises(RequestError):
            apply(chosen, new, out=place, overwrite=True)


def test_repeated_labels_in_the_same_order_are_no_question(tmp_path: Path) -> None:
    names = [f"g{i // 2}" for i in range(20)]
    array = xr.DataArray(X, dims=("cell", "gene"), coords={"gene": names}, name="x")
    first = select(array, K, H, solver="exact", out=tmp_path / "chosen.zarr")
    done = apply(tmp_path / "chosen.zarr", array[:30], out=tmp_path / "out.zarr")
    np.testing.assert_array_equal(done.columns, first.selected)

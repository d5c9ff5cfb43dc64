"""AnnData of every kind, compared with the model of the same array in memory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import numpy.typing as npt
import pytest
import real_data
import scipy.sparse as sp
import xarray as xr
import zarr
from helpers import every_score
from reference import assert_optimal, assert_same_scores, reference
from sources import anndata_stores as stores
from sources.anndata_stores import KINDS, RAW, WRITERS, annotated, counts
from sources.checks import check_rows

from kmufs_stream import (
    BrokenError,
    RequestError,
    evaluate,
    open_matrix,
    rechunk,
    select,
)

K, H = 3, 8
Stored = Callable[[stores.Write], Path]


@pytest.fixture(params=WRITERS, ids=lambda write: write.__name__)
def path(request: pytest.FixtureRequest, stored: Stored) -> Path:
    return stored(request.param)


def layer(kind: str) -> npt.NDArray[Any]:
    made = KINDS[kind](counts(seed=1))
    return np.asarray(made.toarray() if sp.issparse(made) else made)


def copied(path: Path, folder: Path) -> Path:
    """Return a copy to be damaged."""
    copy = shutil.copytree if path.is_dir() else shutil.copy
    return Path(copy(path, folder / path.name))


def check_selection(
    path: Path, X: npt.NDArray[Any], out: Path | None = None, **where: Any
) -> xr.Dataset:
    """Select from the store, compare the result with X, and return it."""
    matrix = open_matrix(path, **where)
    assert matrix.shape == X.shape
    expected = reference(X).every_score(K)
    result = select(matrix, K, H, solver="exact", out=out)
    tolerance = 1e-5 if result.factor.precision == "float32" else 1e-10
    assert_optimal(result.selected, expected, H, tolerance)
    assert_same_scores(every_score(result.factor, K), expected, tolerance)
    written = result.dataset if out is None else xr.open_zarr(out)
    np.testing.assert_array_equal(written[matrix.metadata.name].values, X[:, result.selected])
    assert written[matrix.metadata.name].dtype == X.dtype
    assert written["var"].values.tolist() == result.labels
    return written


def check_copy(path: Path, adata: anndata.AnnData, out: Path, h: int = H) -> anndata.AnnData:
    """Select from the store, and return the copy that says what was chosen."""
    result = select(path, K, h, solver="exact", anndata_out=out)
    copy = anndata.read_h5ad(out) if path.suffix == ".h5ad" else anndata.read_zarr(out)
    assert copy.var_names[copy.var["kmufs_selected"]].tolist() == result.labels
    np.testing.assert_array_equal(copy.var["kmufs_rank"].dropna(), result.ranks)
    np.testing.assert_array_equal(copy.var["kmufs_score"], every_score(result.factor, K))
    assert np.isnan(copy.var["kmufs_score"].iloc[-1])
    assert copy.var["length"].tolist() == adata.var["length"].tolist()
    np.testing.assert_array_equal(copy.X.toarray() if sp.issparse(copy.X) else copy.X, counts())
    return copy


def test_columns_of_obs_and_var_come_along(path: Path, tmp_path: Path) -> None:
    written = check_selection(path, counts(), tmp_path / "out.zarr")
    chosen = written["feature_index"].values
    assert written["gene_ids"].values.tolist() == [f"ENSG{i:05}" for i in chosen]
    assert written["coding"].values.tolist() == (chosen % 2 == 0).tolist()
    assert written["var_both"].values.tolist() == (chosen / 8).tolist()
    assert written["obs_both"].values.tolist() == list(range(240))
    assert written["kind"].values.tolist()[:4] == ["a", "b é", "", "a"]
    np.testing.assert_array_equal(written["batch"].values[:3], [np.nan, 1, 2])
    assert written["X"].dims == ("obs", "var")


def test_layers_and_raw_are_read(path: Path) -> None:
    for kind in KINDS if path.name == "write_zarr3.zarr" else ("dense", "csr", "csc"):
        check_rows(open_matrix(path, layer=kind), layer(kind))
    check_rows(open_matrix(path, raw=True), RAW)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_x_is_selected_from(kind: str, stored: Stored) -> None:
    check_selection(stored(stores.write_h5ad), layer(kind), layer=kind)


@pytest.mark.parametrize(
    ("write", "kind"),
    [
        (stores.write_legacy_h5ad, np.asarray),
        (stores.write_legacy_h5ad, sp.csr_matrix),
        (stores.write_legacy_h5ad, sp.csc_matrix),
        (stores.write_legacy_zarr, np.asarray),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_stores_older_than_encoding_types_are_selected_from(
    write: stores.Write, kind: Any, tmp_path: Path
) -> None:
    adata, raw = annotated(kind(counts())), annotated(kind(RAW))
    for each in (adata, raw):
        each.var_names = [f"gene {i}" for i in range(each.n_vars)]  # anndata reads only ASCII
    adata.raw = raw
    path = write(adata, tmp_path / "cells")
    found = check_selection(path, counts())
    assert found["depth"].values.tolist() == np.linspace(0, 1, 240).tolist()
    assert found["obs"].values.tolist() == [f"cell {i}" for i in range(240)]
    assert (found["length"] == found["feature_index"] * 7).all()
    check_copy(path, adata, tmp_path / f"chosen{path.suffix}")
    if path.suffix == ".h5ad":
        check_selection(path, RAW, raw=True)


def real(name: str) -> Path:
    path = real_data.FOLDER / name
    if not path.exists():
        pytest.skip(f"real data set {name} is not in {real_data.FOLDER}")
    return path


def test_real_blood_cells() -> None:
    path = real("10x_pbmc68k_reduced.h5ad")
    with h5py.File(path) as file:
        parts = tuple(file["raw.X"][part][:] for part in ("data", "indices", "indptr"))
        X = file["X"][:]
        names = [name.decode() for name in file["var"]["index"]]
    matrix = open_matrix(path)
    check_rows(matrix, X)
    assert matrix.labels is not None
    assert matrix.labels.tolist() == names
    assert {"bulk_labels", "n_genes"} <= set(matrix.metadata.coords.coords)
    raw = sp.csr_matrix(parts, shape=(700, 765)).toarray()
    check_rows(open_matrix(path, raw=True), raw)


def test_a_real_store_of_2018() -> None:
    path = real("10x-10k-subset.zarr")
    matrix = open_matrix(path)
    check_rows(matrix, np.asarray(zarr.open_array(path, path="X", mode="r")[:]))
    assert matrix.metadata.coords["gene_ids"].values[0].startswith("ENSMUSG")


def test_sparse_data_are_evaluated_as_dense_ones(stored: Stored, tmp_path: Path) -> None:
    cost = []
    for kind in ("dense", "csr"):
        matrix = open_matrix(stored(stores.write_h5ad), layer=kind)
        select(matrix, K, H, solver="exact", out=tmp_path / kind)
        cost.append(evaluate(tmp_path / kind, data=matrix).summary()["cost"])
    assert cost[1] == pytest.approx(cost[0], rel=1e-6)


def test_any_column_of_var_names_the_features(stored: Stored) -> None:
    path = stored(stores.write_h5ad)
    result = select(open_matrix(path, feature_labels="gene_ids"), K, H)
    assert result.labels == [f"ENSG{i:05}" for i in result.selected]
    with pytest.raises(RequestError, match="no labels 'symbol'") as error:
        open_matrix(path, feature_labels="symbol")
    assert "gene_ids" in error.value.remedy


def test_an_object_in_a_group_is_selected_from_whatever_its_uns_holds(
    stored: Stored, tmp_path: Path
) -> None:
    path = tmp_path / "multi.h5ad"
    with h5py.File(path, "w") as file, h5py.File(stored(stores.write_h5ad)) as source:
        source.copy("/", file.create_group("mod"), name="rna")
        file["mod/rna/uns"].attrs["encoding-type"] = "of the future"
        file["mod/rna/uns"].create_group("odd").attrs["encoding-type"] = "of the future"
        with pytest.raises(Exception, match="future"):
            anndata.io.read_elem(file["mod/rna"])
    check_selection(path, counts(), group="mod/rna")
    with pytest.raises(RequestError, match="no AnnData") as error:
        open_matrix(path)
    assert "mod/rna" in error.value.remedy


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ({"layer": "spliced"}, "unknown_layer"),
        ({"layer": "csr", "raw": True}, "bad_option"),
        ({"sample_dims": "var"}, "bad_option"),
        ({"features_from_variables": True}, "bad_option"),
    ],
)
def test_what_is_not_there_is_refused(where: dict[str, Any], code: str, stored: Stored) -> None:
    with pytest.raises(RequestError) as error:
        open_matrix(stored(stores.write_h5ad), **where)
    assert error.value.code == code


def test_an_object_without_x_asks_for_a_layer(tmp_path: Path) -> None:
    adata = anndata.AnnData(shape=(240, 30), layers={"counts": counts()})
    path = stores.write_h5ad(adata, tmp_path / "cells")
    with pytest.raises(RequestError, match=r"no X[^\0]*layer='counts'"):
        open_matrix(path)
    with pytest.raises(RequestError, match="no raw"):
        open_matrix(path, raw=True)


@pytest.mark.parametrize("write", [stores.write_zarr2, stores.write_h5ad])
def test_pointers_that_do_not_fit_are_refused(
    write: stores.Write, stored: Stored, tmp_path: Path
) -> None:
    path = copied(stored(write), tmp_path)
    opened: Any = h5py.File(path, "r+") if path.is_file() else zarr.open_group(path, mode="r+")
    pointers = opened["X/indptr"]
    pointers[5] = pointers[6] + 1
    if path.is_file():
        opened.close()
    with pytest.raises(RequestError, match="do not fit"):
        open_matrix(path)


@pytest.mark.parametrize("place", ["X", "raw/X"], ids=["csr", "csc"])
def test_columns_beyond_the_last_are_reported_as_damage(
    place: str, stored: Stored, tmp_path: Path
) -> None:
    path = copied(stored(stores.write_h5ad), tmp_path)
    with h5py.File(path, "r+") as file:
        file[f"{place}/indices"][3] = 10_000
    with pytest.raises(BrokenError, match="cannot be read"):
        select(open_matrix(path, raw=place == "raw/X"), K, H)


@pytest.mark.parametrize("table", ["obs", "var", "X"])
def test_damaged_metadata_are_told(table: str, tmp_path: Path) -> None:
    path = stores.write_zarr3(anndata.AnnData(counts(20, 6)), tmp_path / "cells")
    root = zarr.open_group(path, mode="r", use_consolidated=False)
    (path / "zarr.json").write_text(
        json.dumps({"zarr_format": 3, "node_type": "group", "attributes": root.attrs.asdict()})
    )
    (path / table / "zarr.json").write_text("{")
    with pytest.raises(RequestError, match=r"metadata of .* cannot be read") as caught:
        open_matrix(path)
    assert caught.value.code == "bad_metadata"


def test_what_is_not_read_may_be_of_an_unknown_dtype(tmp_path: Path) -> None:
    x = counts(40, 6)
    path = stores.write_zarr3(anndata.AnnData(x, uns={"odd": np.arange(3)}), tmp_path / "cells")
    zarr.consolidate_metadata(path)
    for file in (path / "zarr.json", path / "uns" / "odd" / "zarr.json"):
        stored = json.loads(file.read_text())
        odd = stored.get("consolidated_metadata", {"metadata": {"uns/odd": stored}})["metadata"]
        odd["uns/odd"]["data_type"] = "a struct of strings"
        file.write_text(json.dumps(stored))
    matrix = open_matrix(path)
    np.testing.assert_array_equal(matrix.rows.read(0, 40), x)
    with pytest.raises(RequestError, match="struct of strings") as caught:
        select(matrix, 2, 3, anndata_out=tmp_path / "annotated.zarr")
    assert caught.value.code == "bad_metadata"
    assert not (tmp_path / "annotated.zarr").exists()


def test_a_lost_chunk_is_named(stored: Stored, tmp_path: Path) -> None:
    path = copied(stored(stores.write_zarr2), tmp_path)
    (path / "X" / "indices" / "0").unlink()
    with pytest.raises(BrokenError, match=r"chunk X/indices/0 of .*write_zarr2"):
        select(path, K, H)


@pytest.mark.parametrize("write", [stores.write_h5ad, stores.write_zarr3])
def test_a_store_by_columns_that_does_not_fit_is_told_how_to_turn(
    write: stores.Write, stored: Stored, tmp_path: Path
) -> None:
    matrix = open_matrix(stored(write), layer="csc")
    large = replace(matrix, layout=replace(matrix.layout, held_bytes=10**9))
    with pytest.raises(RequestError, match="memory are needed") as error:
        select(large, K, H, memory="420MB")
    with pytest.raises(RequestError, match="is sparse") as other:
        rechunk(matrix, tmp_path / "rows.zarr")
    for told in (error.value.remedy, other.value.remedy):
        assert "a.X = a.X.tocsr()" in told


@pytest.mark.parametrize("write", WRITERS[:-1])
@pytest.mark.filterwarnings("ignore")
def test_the_copy_says_which_features_were_chosen(
    write: stores.Write, stored: Stored, tmp_path: Path
) -> None:
    path, adata = stored(write), stores.cells()
    first = tmp_path / f"chosen{path.suffix}"
    copy = check_copy(path, adata, first)
    assert copy.var.columns.tolist() == [*adata.var.columns, *copy.var.columns[-3:]]
    assert copy.uns["kept"].tolist() == [1, 2]
    np.testing.assert_array_equal(copy.obsm["pca"], adata.obsm["pca"])
    check_copy(first, adata, tmp_path / f"again{path.suffix}", H + 1)


def test_the_copy_of_a_store_with_raw_speaks_of_its_own_features(
    stored: Stored, tmp_path: Path
) -> None:
    matrix = open_matrix(stored(stores.write_h5ad), raw=True)
    result = select(matrix, K, H, solver="exact", anndata_out=tmp_path / "chosen.h5ad")
    copy = anndata.read_h5ad(tmp_path / "chosen.h5ad")
    assert copy.raw.var_names[copy.raw.var["kmufs_selected"]].tolist() == result.labels
    assert "kmufs_selected" not in copy.var


def test_a_copy_is_refused_before_anything_runs(stored: Stored, tmp_path: Path) -> None:
    path = stored(stores.write_h5ad)
    before = path.read_bytes()
    out = Path(shutil.copy(path, tmp_path / "chosen.h5ad"))
    refused: list[tuple[Any, Path, str]] = [
        (path, tmp_path / "chosen.zarr", r"does not end in \.h5ad"),
        (path, path, "overlaps the input"),
        (counts(), tmp_path / "new.h5ad", "not an AnnData store"),
        (stored(stores.write_zip), tmp_path / "more.zarr", "is zipped"),
        (path, out, "exists"),
    ]
    for data, place, said in refused:
        with pytest.raises(RequestError, match=said):
            select(data, K, H, anndata_out=place, overwrite=place == path)
    assert path.read_bytes() == before
    select(path, K, H, solver="exact", anndata_out=out, overwrite=True)
    assert "kmufs_rank" in anndata.read_h5ad(out).var
    assert list(tmp_path.iterdir()) == [out]

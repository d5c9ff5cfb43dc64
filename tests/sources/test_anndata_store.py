"""AnnData of every kind, compared with the model of the same array in memory."""

from __future__ import annotations

import json
import pickle
import shutil
import warnings
from collections.abc import Iterator
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
from helpers import every_score, slow
from reference import assert_optimal, assert_same_scores, reference
from sources import anndata_stores as stores
from sources.anndata_stores import annotated, counts

from kmufs_stream import (
    BrokenError,
    RequestError,
    decompose,
    evaluate,
    open_matrix,
    rechunk,
    select,
)
from kmufs_stream.streaming.kernels.sparse import Densified
from kmufs_stream.streaming.passes import run_pass

K, H = 3, 8
WRITERS = [
    stores.write_h5ad,
    stores.write_h5ad_gzip,
    stores.write_zarr2,
    stores.write_zarr3,
]


def write_zip(adata: anndata.AnnData, path: Path) -> Path:
    """Write a zipped store."""
    path = path.with_suffix(".zarr.zip")
    with zarr.storage.ZipStore(path, mode="w") as store, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        anndata.io.write_elem(zarr.open_group(store, mode="w"), "/", adata)
    return path


def unsorted(X: npt.NDArray[Any]) -> Any:
    """Return CSR with columns in descending order, and each value split into two entries."""
    made = sp.csr_matrix(np.concatenate([X, X], axis=1))
    indices = made.indices % X.shape[1]
    for a, b in zip(made.indptr, made.indptr[1:], strict=False):
        indices[a:b] = indices[a:b][::-1]
        made.data[a:b] = made.data[a:b][::-1] / 2
    return sp.csr_matrix((made.data, indices, made.indptr), shape=X.shape)


KINDS = {
    "dense": lambda X: X,
    "fortran": np.asfortranarray,
    "csr": sp.csr_matrix,
    "csc": sp.csc_matrix,
    "csr array": sp.csr_array,
    "csr unsorted, doubled": unsorted,
    "float64": lambda X: sp.csr_matrix(X.astype(np.float64)),
    "int32": lambda X: sp.csr_matrix(X.astype(np.int32)),
    "uint16 dense": lambda X: X.astype(np.uint16),
    "bool": lambda X: sp.csr_matrix(X > 0),
}


def check_selection(path: Path, X: npt.NDArray[Any], out: Path, **where: Any) -> xr.Dataset:
    """Select from the store, compare the result with X, and return what was written."""
    matrix = open_matrix(path, **where)
    assert matrix.shape == X.shape
    expected = reference(X).every_score(K)
    result = select(matrix, K, H, solver="exact", out=out)
    tolerance = 1e-5 if result.factor.precision == "float32" else 1e-10
    assert_optimal(result.selected, expected, H, tolerance)
    assert_same_scores(every_score(result.factor, K), expected, tolerance)
    written = xr.open_zarr(out)
    np.testing.assert_array_equal(written[matrix.metadata.name].values, X[:, result.selected])
    assert written[matrix.metadata.name].dtype == X.dtype
    assert written["var"].values.tolist() == result.labels
    return written


def pairs() -> Iterator[Any]:
    """Pair every way to write with every kind of X; two of each kind are quick tests."""
    for i, kind in enumerate(KINDS):
        for j, write in enumerate(WRITERS):
            yield (write, kind) if (i + j) % len(WRITERS) < 2 else slow(write, kind)


@pytest.mark.parametrize(("write", "kind"), list(pairs()))
def test_every_kind_of_x_is_selected_from(write: stores.Write, kind: str, tmp_path: Path) -> None:
    X = KINDS[kind](counts())
    path = write(annotated(X), tmp_path / "cells")
    values = X.toarray() if sp.issparse(X) else X
    check_selection(path, values, tmp_path / "out.zarr")


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_zipped_stores_are_selected_from(kind: str, tmp_path: Path) -> None:
    X = counts()
    path = write_zip(annotated(KINDS[kind](X)), tmp_path / "cells")
    check_selection(path, X, tmp_path / "out.zarr")
    with pytest.raises(RequestError, match="is zipped"):
        select(path, K, H, anndata_out=tmp_path / "more.zarr")


@pytest.mark.parametrize(
    ("write", "kind"), list(zip(WRITERS, ["dense", "csr", "csc", "dense"], strict=True))
)
def test_layers_and_raw_are_selected_from(write: stores.Write, kind: str, tmp_path: Path) -> None:
    X, other, full = counts(), counts(seed=1), counts(p=40, seed=2)
    adata = annotated(X, layers={"spliced": KINDS[kind](other)})
    adata.raw = annotated(KINDS[kind](full))
    path = write(adata, tmp_path / "cells")
    check_selection(path, X, tmp_path / "x.zarr")
    check_selection(path, other, tmp_path / "layer.zarr", layer="spliced")
    check_selection(path, full, tmp_path / "raw.zarr", raw=True)


@pytest.mark.parametrize("kind", ["dense", "csr", "csc"])
def test_files_older_than_encoding_types_are_selected_from(kind: str, tmp_path: Path) -> None:
    X, full = counts(), counts(p=40, seed=2)
    adata = annotated(KINDS[kind](X))
    adata.raw = annotated(KINDS[kind](full))
    path = stores.write_legacy_h5ad(adata, tmp_path / "cells")
    written = check_selection(path, X, tmp_path / "x.zarr")
    assert written["depth"].values.tolist() == np.linspace(0, 1, len(X)).tolist()
    assert written["obs"].values.tolist() == [f"cell {i}" for i in range(len(X))]
    check_selection(path, full, tmp_path / "raw.zarr", raw=True)


def test_zarr_stores_older_than_encoding_types_are_selected_from(tmp_path: Path) -> None:
    X = counts()
    path = stores.write_legacy_zarr(annotated(X), tmp_path / "cells")
    written = check_selection(path, X, tmp_path / "x.zarr")
    assert (written["length"] == written["feature_index"] * 7).all()


@pytest.mark.parametrize("method", ["gram", "lanczos", "tsqr"])
def test_sparse_and_dense_stores_have_the_same_factor(method: str, tmp_path: Path) -> None:
    X = counts(n=2000, p=60).astype(np.float64)
    sparse = stores.write_zarr3(annotated(sp.csr_matrix(X)), tmp_path / "sparse")
    expected = reference(X)
    factor = decompose(sparse, K, method=method)
    assert_same_scores(every_score(factor, K), expected.every_score(K), 1e-9)
    np.testing.assert_allclose(factor.features.mean, expected.mean, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(factor.features.std, expected.std, rtol=1e-10)
    assert factor.features.excluded["constant"].tolist() == [59]
    np.testing.assert_array_equal(factor.sample.values, X[factor.sample.index])


@pytest.mark.parametrize("write", WRITERS)
def test_columns_of_obs_and_var_come_along(write: stores.Write, tmp_path: Path) -> None:
    adata = annotated(sp.csr_matrix(counts()))
    written = check_selection(write(adata, tmp_path / "cells"), counts(), tmp_path / "out.zarr")
    chosen = written["feature_index"].values
    assert written["gene_ids"].values.tolist() == adata.var["gene_ids"].iloc[chosen].tolist()
    assert written["coding"].values.tolist() == (chosen % 2 == 0).tolist()
    assert written["var_both"].values.tolist() == (chosen / 8).tolist()
    assert written["obs_both"].values.tolist() == list(range(240))
    assert written["kind"].values.tolist()[:4] == ["a", "b é", "", "a"]
    np.testing.assert_array_equal(written["batch"].values[:3], [np.nan, 1, 2])
    assert written["X"].dims == ("obs", "var")


def test_any_column_of_var_names_the_features(tmp_path: Path) -> None:
    path = stores.write_h5ad(annotated(counts()), tmp_path / "cells")
    result = select(open_matrix(path, feature_labels="gene_ids"), K, H)
    assert result.labels == [f"ENSG{i:05}" for i in result.selected]
    with pytest.raises(RequestError, match="no labels 'symbol'") as error:
        open_matrix(path, feature_labels="symbol")
    assert "gene_ids" in error.value.remedy


def test_an_odd_uns_does_not_matter(tmp_path: Path) -> None:
    path = stores.write_h5ad(annotated(sp.csr_matrix(counts())), tmp_path / "cells")
    with h5py.File(path, "r+") as file:
        file["uns"].attrs["encoding-type"] = "of the future"
        file["uns"].create_group("odd").attrs["encoding-type"] = "of the future"
    with pytest.raises(Exception, match="future"):
        anndata.read_h5ad(path)
    check_selection(path, counts(), tmp_path / "out.zarr")


def test_an_object_in_a_group_is_selected_from(tmp_path: Path) -> None:
    X = counts()
    alone = stores.write_h5ad(annotated(sp.csr_matrix(X)), tmp_path / "alone")
    with h5py.File(tmp_path / "multi.h5ad", "w") as file, h5py.File(alone) as source:
        source.copy("/", file.create_group("mod"), name="rna")
    check_selection(tmp_path / "multi.h5ad", X, tmp_path / "out.zarr", group="mod/rna")
    with pytest.raises(RequestError, match="no AnnData") as error:
        open_matrix(tmp_path / "multi.h5ad")
    assert "mod/rna" in error.value.remedy


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ({"layer": "spliced"}, "unknown_layer"),
        ({"raw": True}, "no_raw"),
        ({"layer": "spliced", "raw": True}, "bad_option"),
        ({"sample_dims": "var"}, "bad_option"),
        ({"features_from_variables": True}, "bad_option"),
    ],
)
def test_what_is_not_there_is_refused_by_name(
    where: dict[str, Any], code: str, tmp_path: Path
) -> None:
    path = stores.write_zarr3(annotated(counts()), tmp_path / "cells")
    with pytest.raises(RequestError) as error:
        open_matrix(path, **where)
    assert error.value.code == code


def test_an_object_without_x_asks_for_a_layer(tmp_path: Path) -> None:
    adata = annotated(counts())
    adata.layers["counts"] = adata.X
    adata.X = None
    path = stores.write_h5ad(adata, tmp_path / "cells")
    with pytest.raises(RequestError, match="no X") as error:
        open_matrix(path)
    assert "layer='counts'" in error.value.remedy


def test_layers_of_what_is_not_anndata_are_refused(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "x.zarr", data=counts())
    with pytest.raises(RequestError, match="not AnnData"):
        open_matrix(tmp_path / "x.zarr", layer="counts")


@pytest.mark.parametrize("write", [stores.write_zarr2, stores.write_h5ad])
def test_pointers_that_do_not_fit_are_refused(write: stores.Write, tmp_path: Path) -> None:
    path = write(annotated(sp.csr_matrix(counts())), tmp_path / "cells")
    opened: Any = (
        h5py.File(path, "r+") if path.suffix == ".h5ad" else zarr.open_group(path, mode="r+")
    )
    pointers = opened["X/indptr"]
    pointers[5] = pointers[6] + 1
    if path.suffix == ".h5ad":
        opened.close()
    with pytest.raises(RequestError, match="do not fit"):
        open_matrix(path)


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_columns_beyond_the_last_are_reported_as_damage(kind: str, tmp_path: Path) -> None:
    path = stores.write_h5ad(annotated(KINDS[kind](counts())), tmp_path / "cells")
    with h5py.File(path, "r+") as file:
        file["X/indices"][3] = 10_000
    with pytest.raises(BrokenError, match="cannot be read"):
        select(path, K, H)


@pytest.mark.parametrize("table", ["obs", "var"])
def test_damaged_metadata_of_a_table_are_told(table: str, tmp_path: Path) -> None:
    path = stores.write_zarr3(annotated(counts(20, 6)), tmp_path / "cells")
    root = zarr.open_group(path, mode="r", use_consolidated=False)
    (path / "zarr.json").write_text(
        json.dumps({"zarr_format": 3, "node_type": "group", "attributes": root.attrs.asdict()})
    )
    (path / table / "zarr.json").write_text("{")
    with pytest.raises(RequestError, match=r"metadata of .* cannot be read") as caught:
        open_matrix(path)
    assert caught.value.code == "bad_metadata"


def test_a_lost_chunk_is_named(tmp_path: Path) -> None:
    path = stores.write_zarr2(annotated(sp.csr_matrix(counts())), tmp_path / "cells")
    (path / "X" / "indices" / "0").unlink()
    with pytest.raises(BrokenError, match=r"chunk X/indices/0 of .*cells"):
        select(path, K, H)


@pytest.mark.parametrize("kind", ["dense", "csr", "csc"])
@pytest.mark.parametrize("write", [stores.write_zarr3, stores.write_h5ad])
def test_rows_travel_to_other_processes(write: stores.Write, kind: str, tmp_path: Path) -> None:
    X = counts()
    rows = open_matrix(write(annotated(KINDS[kind](X)), tmp_path / "cells")).rows
    for copy in (rows, pickle.loads(pickle.dumps(rows))):
        block: Any = copy.read(7, 90)
        np.testing.assert_array_equal(block if kind == "dense" else block.toarray(), X[7:90])
        np.testing.assert_array_equal(copy.take(7, 90, np.array([1, 5])), X[7:90][:, [1, 5]])


@pytest.mark.parametrize("write", [stores.write_h5ad, stores.write_zarr3])
def test_a_store_by_columns_that_does_not_fit_is_told_how_to_turn(
    tmp_path: Path, write: stores.Write
) -> None:
    matrix = open_matrix(write(annotated(sp.csc_matrix(counts())), tmp_path / "cells"))
    large = replace(matrix, layout=replace(matrix.layout, held_bytes=10**9))
    with pytest.raises(RequestError, match="memory are needed") as error:
        select(large, K, H, memory="420MB")
    with pytest.raises(RequestError, match="is sparse") as other:
        rechunk(matrix, tmp_path / "rows.zarr")
    for told in (error.value.remedy, other.value.remedy):
        assert "a.X = a.X.tocsr()" in told


def test_nan_in_sparse_data_is_counted_by_feature(tmp_path: Path) -> None:
    X = counts()
    X[X > 0] = np.where(np.arange((X > 0).sum()) % 50 == 0, np.nan, X[X > 0])
    path = stores.write_zarr3(annotated(sp.csr_matrix(X)), tmp_path / "cells")
    for method in ("gram", "lanczos", "tsqr"):
        with pytest.raises(RequestError) as error:
            select(path, K, H, method=method)
        assert error.value.code == "not_finite"
        assert str(int(np.isnan(X).sum())) in error.value.message


def test_densified_blocks_are_what_the_store_holds(tmp_path: Path) -> None:
    class Rows:
        def init(self) -> list[Any]:
            return []

        def update(self, state: list[Any], values: Any, start: int) -> list[Any]:
            return [*state, (start, values)]

    X = counts()
    matrix = open_matrix(stores.write_zarr3(annotated(sp.csr_matrix(X)), tmp_path / "cells"))
    seen = run_pass(
        Densified(Rows()), matrix.rows, [range(0, 100, 30), range(100, 240, 30)], threads=2
    )
    for start, block in seen:
        np.testing.assert_array_equal(block, X[start : start + len(block)])
    assert sum(len(block) for _, block in seen) == len(X)


def real(name: str) -> Path:
    path = real_data.FOLDER / name
    if not path.exists():
        pytest.skip(f"real data set {name} is not in {real_data.FOLDER}")
    return path


@pytest.mark.parametrize("raw", [False, True])
def test_real_blood_cells(raw: bool, tmp_path: Path) -> None:
    path = real("10x_pbmc68k_reduced.h5ad")
    with h5py.File(path) as file:
        if raw:
            parts = tuple(file["raw.X"][part][:] for part in ("data", "indices", "indptr"))
            X = sp.csr_matrix(parts, shape=(700, 765)).toarray()
        else:
            X = file["X"][:]
        names = [name.decode() for name in file["var"]["index"]]
    written = check_selection(path, X, tmp_path / "out.zarr", raw=raw)
    assert written["var"].values.tolist() == [names[i] for i in written["feature_index"].values]
    assert {"bulk_labels", "n_genes"} <= set(written.coords)


def test_a_real_store_of_2018(tmp_path: Path) -> None:
    path = real("10x-10k-subset.zarr")
    X = zarr.open_array(path, path="X", mode="r")[:]
    written = check_selection(path, np.asarray(X), tmp_path / "out.zarr")
    assert written["gene_ids"].values[0].startswith("ENSMUSG")


@pytest.mark.parametrize("write", [*WRITERS, stores.write_legacy_h5ad, stores.write_legacy_zarr])
@pytest.mark.filterwarnings("ignore")
def test_the_copy_says_which_features_were_chosen(write: stores.Write, tmp_path: Path) -> None:
    X = counts()
    adata = annotated(X, uns={"kept": [1, 2]}, obsm={"pca": X[:, :2]})
    if "legacy" in write.__name__:  # anndata reads only ASCII of these
        adata.var_names = [f"gene {i}" for i in range(X.shape[1])]
    path = write(adata, tmp_path / "cells")
    out = tmp_path / f"chosen{path.suffix}"
    result = select(path, K, H, anndata_out=out)
    read = anndata.read_h5ad if path.suffix == ".h5ad" else anndata.read_zarr
    copy = read(out)
    assert copy.var_names[copy.var["kmufs_selected"]].tolist() == result.labels
    np.testing.assert_array_equal(copy.var["kmufs_rank"].dropna(), result.ranks)
    np.testing.assert_array_equal(copy.var["kmufs_score"], every_score(result.factor, K))
    assert np.isnan(copy.var["kmufs_score"].iloc[-1])
    np.testing.assert_array_equal(copy.X, X)
    assert copy.var["length"].tolist() == adata.var["length"].tolist()
    if "legacy" not in write.__name__:
        assert copy.var.columns.tolist() == [*adata.var.columns, *copy.var.columns[-3:]]
        assert copy.uns["kept"].tolist() == [1, 2]
        np.testing.assert_array_equal(copy.obsm["pca"], adata.obsm["pca"])
    again = select(out, K, H + 1, anndata_out=tmp_path / f"again{path.suffix}")
    assert again.anndata_output is not None
    assert read(again.anndata_output).var["kmufs_selected"].sum() == H + 1


def test_the_copy_of_a_store_with_raw_speaks_of_its_own_features(tmp_path: Path) -> None:
    adata = annotated(counts())
    adata.raw = annotated(sp.csr_matrix(counts(p=40, seed=2)))
    path = stores.write_h5ad(adata, tmp_path / "cells")
    matrix = open_matrix(path, raw=True)
    result = select(matrix, K, H, anndata_out=tmp_path / "chosen.h5ad")
    copy = anndata.read_h5ad(tmp_path / "chosen.h5ad")
    assert copy.raw.var_names[copy.raw.var["kmufs_selected"]].tolist() == result.labels
    assert "kmufs_selected" not in copy.var


def test_a_copy_is_refused_before_anything_runs(tmp_path: Path) -> None:
    path = stores.write_h5ad(annotated(counts()), tmp_path / "cells")
    with pytest.raises(RequestError, match=r"does not end in \.h5ad"):
        select(path, K, H, anndata_out=tmp_path / "chosen.zarr")
    with pytest.raises(RequestError, match="overlaps the input"):
        select(path, K, H, anndata_out=path, overwrite=True)
    with pytest.raises(RequestError, match="not an AnnData store"):
        select(counts(), K, H, anndata_out=tmp_path / "chosen.h5ad")
    shutil.copy(path, tmp_path / "chosen.h5ad")
    with pytest.raises(RequestError, match="exists"):
        select(path, K, H, anndata_out=tmp_path / "chosen.h5ad")
    select(path, K, H, anndata_out=tmp_path / "chosen.h5ad", overwrite=True)
    assert "kmufs_rank" in anndata.read_h5ad(tmp_path / "chosen.h5ad").var
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cells.h5ad", "chosen.h5ad"]


def test_a_selection_from_sparse_data_is_evaluated_as_one_from_dense(tmp_path: Path) -> None:
    X = counts()
    found = []
    for kind in ("dense", "csr"):
        path = stores.write_zarr3(annotated(KINDS[kind](X)), tmp_path / kind)
        select(path, K, H, solver="exact", out=tmp_path / f"{kind}.selected.zarr")
        found.append(evaluate(tmp_path / f"{kind}.selected.zarr", data=path).summary())
    assert found[1]["cost"] == pytest.approx(found[0]["cost"], rel=1e-6)

"""Checks of every source; add new ones to SOURCES."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from anndata import AnnData
from helpers import labelled, planted, write_bare, write_xarray
from scipy import sparse
from sources import anndata_stores
from sources.checks import check_rows
from zarr.storage import LocalStore

from kmufs_stream import Matrix, RequestError, open_matrix, select
from kmufs_stream.sources.arrays import open_dataarray
from kmufs_stream.sources.matrix import Provenance

X = np.maximum(planted(90, 6), 0.0)


def by_the_short_way(folder: Path) -> Matrix:
    """Open a file of NumPy as the docstring of Matrix advises."""
    path = folder / "x.npy"
    np.save(path, X)
    lazy = da.from_array(np.load(path, mmap_mode="r"), chunks=(30, 6))
    seen = path.stat()
    return replace(
        open_dataarray(xr.DataArray(lazy, dims=("cell", "gene"), name="counts")),
        provenance=Provenance(
            str(path), lambda: [str(X.shape), f"{seen.st_size} {seen.st_mtime_ns}"], path
        ),
    )


def anndata_of(values: Any, folder: Path) -> Path:
    return anndata_stores.write_zarr3(AnnData(values), folder / "cells")


def variables(folder: Path) -> Path:
    columns = {f"g{i}": ("cell", X[:, i]) for i in range(6)}
    xr.Dataset(columns).to_zarr(folder / "columns.zarr", consolidated=False)
    return folder / "columns.zarr"


SOURCES: dict[str, Callable[[Path], Any]] = {
    "NumPy": lambda folder: X,
    "Dask": lambda folder: da.from_array(X, chunks=(20, 3)),
    "pandas": lambda folder: pd.DataFrame(X, columns=list("abcdef")),
    "DataArray": lambda folder: labelled(X),
    "Dataset": lambda folder: labelled(X).to_dataset(),
    "Zarr array": lambda folder: zarr.open_array(
        write_bare(folder / "x.zarr", X, chunks=(20, 4)), mode="r"
    ),
    "Zarr store": lambda folder: LocalStore(write_bare(folder / "x.zarr", X, chunks=(20, 4))),
    "sharded": lambda folder: write_bare(folder / "x.zarr", X, chunks=(10, 3), shards=(30, 6)),
    "xarray's store": lambda folder: write_xarray(folder / "x.zarr", labelled(X), chunks=(20, 6)),
    "AnnData": lambda folder: anndata_of(X, folder),
    "sparse AnnData": lambda folder: anndata_of(sparse.csr_matrix(X), folder),
    "AnnData by columns": lambda folder: anndata_of(sparse.csc_matrix(X), folder),
    "variables": lambda folder: open_matrix(variables(folder), features_from_variables=True),
    "the short way": by_the_short_way,
}


@pytest.fixture(scope="module", params=SOURCES)
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return SOURCES[request.param](tmp_path_factory.mktemp("source"))


def test_a_source_is_a_table(data: Any) -> None:
    matrix = open_matrix(data)
    check_rows(matrix, X)
    assert matrix.labels is None or len(matrix.labels) == 6
    sizes = {matrix.metadata.sample_dim: 90, matrix.metadata.feature_dim: 6}
    assert all(
        matrix.metadata.coords.sizes[dim] == sizes[str(dim)] for dim in matrix.metadata.coords.sizes
    )
    assert 1 <= matrix.layout.chunk_rows <= matrix.layout.shard_rows
    assert matrix.layout.shard_rows % matrix.layout.chunk_rows == 0
    assert matrix.source
    listed = matrix.provenance.inventory()
    assert listed == matrix.provenance.inventory()
    assert all(isinstance(text, str) for text in listed)


def test_a_source_is_selected_from_and_copied(data: Any, tmp_path: Path) -> None:
    chosen = select(data, 2, 3, solver="exact", out=tmp_path / "out.zarr")
    expected = select(X, 2, 3, solver="exact")
    assert chosen.selected.tolist() == expected.selected.tolist()
    written = xr.open_zarr(tmp_path / "out.zarr")[chosen.matrix.metadata.name]
    values = written.transpose(chosen.matrix.metadata.sample_dim, ...).values
    np.testing.assert_array_equal(values, X[:, chosen.selected])


def test_a_source_ignores_nothing_that_it_has_not(data: Any) -> None:
    dims = ("sample_dims", "feature_dims")
    for option in ("variable", "group", "layer", *dims, "feature_labels", "features"):
        with pytest.raises(RequestError):
            open_matrix(data, **{option: "no such"})
    where: Any
    for where in ("nosuch > 1", True, ["kind == 'x'"], b"kind"):
        with pytest.raises(RequestError) as caught:
            open_matrix(data, where=where)
        assert caught.value.code == "bad_condition"

"""Write AnnData stores of every kind, with anndata and in its older formats."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.sparse as sp
import zarr

Write = Callable[[anndata.AnnData, Path], Path]


def counts(n: int = 240, p: int = 30, k: int = 3, seed: int = 0) -> npt.NDArray[np.float32]:
    """Return counts of k kinds of cells, a fifth of them above 0; those of the last gene are 0."""
    rng = np.random.default_rng(seed)
    rates = rng.gamma(0.3, 1.0, size=(k, p)) * np.linspace(0.2, 2.0, p)
    X = rng.poisson(rates[rng.integers(k, size=n)]).astype(np.float32)
    X[:, -1] = 0
    return X


def annotated(X: Any, **more: Any) -> anndata.AnnData:
    """Return an object with columns of every type in obs and var."""
    n, p = X.shape
    obs = pd.DataFrame(
        {
            "kind": pd.Categorical([["a", "b é", None][i % 3] for i in range(n)]),
            "depth": np.linspace(0, 1, n),
            "batch": pd.array([None if i % 5 == 0 else i for i in range(n)], dtype="Int32"),
            "both": np.arange(n),
        },
        index=[f"cell {i}" for i in range(n)],
    )
    var = pd.DataFrame(
        {
            "gene_ids": [f"ENSG{i:05}" for i in range(p)],
            "length": np.arange(p) * 7,
            "coding": np.arange(p) % 2 == 0,
            "both": np.arange(p) / 8,
        },
        index=[f"gene é {i}" for i in range(p)],
    )
    return anndata.AnnData(X, obs=obs, var=var, **more)


def unsorted(X: npt.NDArray[Any]) -> Any:
    """Return CSR with columns in descending order, and each value split into two entries."""
    made = sp.csr_matrix(np.concatenate([X, X], axis=1))
    indices = made.indices % X.shape[1]
    for a, b in zip(made.indptr, made.indptr[1:], strict=False):
        indices[a:b] = indices[a:b][::-1]
        made.data[a:b] = made.data[a:b][::-1] / 2
    return sp.csr_matrix((made.data, indices, made.indptr), shape=X.shape)


KINDS: dict[str, Callable[[npt.NDArray[Any]], Any]] = {
    "dense": lambda X: X,
    "fortran": np.asfortranarray,
    "csr": sp.csr_matrix,
    "csc": lambda X: sp.csc_matrix(X.astype(np.float64)),
    "csr array": sp.csr_array,
    "csr unsorted, doubled": unsorted,
    "float64": lambda X: sp.csr_matrix(X.astype(np.float64)),
    "int32": lambda X: sp.csr_matrix(X.astype(np.int32)),
    "uint16 dense": lambda X: X.astype(np.uint16),
    "bool": lambda X: sp.csr_matrix(X > 0),
}
RAW = counts(p=40, seed=2)


def cells() -> anndata.AnnData:
    """Return counts by rows, layers of every kind, raw by columns, and things beside."""
    X = counts()
    layers = {kind: made(counts(seed=1)) for kind, made in KINDS.items()}
    adata = annotated(sp.csr_matrix(X), layers=layers, uns={"kept": [1, 2]}, obsm={"pca": X[:, :2]})
    adata.raw = annotated(sp.csc_matrix(RAW))
    return adata


def write_h5ad(adata: anndata.AnnData, path: Path, **options: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata.write_h5ad(path.with_suffix(".h5ad"), **options)
    return path.with_suffix(".h5ad")


def write_h5ad_gzip(adata: anndata.AnnData, path: Path) -> Path:
    return write_h5ad(adata, path, compression="gzip")


def write_zarr2(adata: anndata.AnnData, path: Path) -> Path:
    return _write_zarr(adata, path, 2)


def write_zarr3(adata: anndata.AnnData, path: Path) -> Path:
    return _write_zarr(adata, path, 3)


def write_zip(adata: anndata.AnnData, path: Path) -> Path:
    path = path.with_suffix(".zarr.zip")
    with zarr.storage.ZipStore(path, mode="w") as store, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        anndata.io.write_elem(zarr.open_group(store, mode="w"), "/", adata)
    return path


def _write_zarr(adata: anndata.AnnData, path: Path, version: int) -> Path:
    path = path.with_suffix(".zarr")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        form: Any = {"zarr_format": version}
        with zarr.config.set({"array.write_empty_chunks": True}):
            group = zarr.open_group(path, mode="w", **form)
            anndata.io.write_elem(group, "/", adata)
            zarr.consolidate_metadata(path)
    return path


WRITERS = [write_h5ad, write_h5ad_gzip, write_zarr2, write_zarr3, write_zip]


def write_legacy_h5ad(adata: anndata.AnnData, path: Path) -> Path:
    """Write as anndata 0.6 did: structured tables, h5sparse attributes, raw.X at the top."""
    path = path.with_suffix(".h5ad")
    with h5py.File(path, "w") as file:
        _legacy_matrix(file, "X", adata.X)
        for name, table in (("obs", adata.obs), ("var", adata.var)):
            file.create_dataset(name, data=_records(table))
        if adata.raw is not None:
            _legacy_matrix(file, "raw.X", adata.raw.X)
            file.create_dataset("raw.var", data=_records(adata.raw.var))
    return path


def write_legacy_zarr(adata: anndata.AnnData, path: Path) -> Path:
    """Write to Zarr as anndata 0.6 did: structured arrays, no encoding-type."""
    path = path.with_suffix(".zarr")
    group = zarr.open_group(path, mode="w", zarr_format=2)
    group.create_array("X", data=np.asarray(adata.X), chunks=(50, adata.shape[1]))
    for name, table in (("obs", adata.obs), ("var", adata.var)):
        group.create_array(name, data=_records(table))
    return path


def _records(table: pd.DataFrame) -> npt.NDArray[Any]:
    """Return the index and NumPy's numeric columns as records, with text as bytes."""
    numeric = table.select_dtypes(["int64", "float64", "bool"])
    return np.asarray(numeric.to_records(index_dtypes="S12"))


def _legacy_matrix(file: h5py.File, name: str, X: Any) -> None:
    if not sp.issparse(X):
        file.create_dataset(name, data=X)
        return
    group = file.create_group(name)
    group.attrs["h5sparse_format"] = X.format
    group.attrs["h5sparse_shape"] = X.shape
    for part in ("data", "indices", "indptr"):
        group.create_dataset(part, data=getattr(X, part))

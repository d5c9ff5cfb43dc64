"""Sources: what the user has, as one labelled samples x features matrix."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr
import zarr

from kmufs_stream.errors import RequestError
from kmufs_stream.sources.anndata_store import holds_anndata, open_anndata
from kmufs_stream.sources.convertible import refuse_convertible
from kmufs_stream.sources.matrix import Matrix, Rows, labelled
from kmufs_stream.sources.memory import open_bare, open_dataarray
from kmufs_stream.sources.store import open_array, open_store
from kmufs_stream.sources.sturdy import RETRIES
from kmufs_stream.sources.transforms import transformed

__all__ = ["Matrix", "Rows", "open_matrix"]


def open_matrix(
    data: Any,
    *,
    variable: str | None = None,
    group: str | None = None,
    sample_dim: str | None = None,
    feature_dim: str | None = None,
    layer: str | None = None,
    raw: bool = False,
    feature_labels: str | None = None,
    transform: str | Sequence[str] = (),
    fill_missing_chunks: bool = False,
    retries: int = RETRIES,
) -> Matrix:
    """Open a samples x features table without reading its values.

    Parameters
    ----------
    data : path of a Zarr store or an AnnData file (``.h5ad``), or a ``zarr.Array``,
        ``xarray.DataArray``, Dask or NumPy array of shape (n, p); of bool, integer or
        floating-point dtype. A Matrix is returned as it is.
    variable, group : which variable of the store, and in which of its groups.
    sample_dim, feature_dim : name one dimension to say which is which; the first holds the
        samples otherwise.
    layer, raw : of an AnnData store, a layer, or the X of its raw, instead of its X.
    feature_labels : the coordinate (in AnnData: the column of var) that names the features.
    transform : ``log1p``, ``normalise-rows`` (each row to a sum of 10000) or
        ``normalise-rows:TOTAL``; several are applied in this order, as values are read.
    fill_missing_chunks : take chunks that the store does not hold for its fill value, instead of
        raising BrokenError when the data are used.
    retries : how often a chunk whose reading fails for the moment is asked for again, after
        longer and longer waits.

    Raises
    ------
    RequestError : not found, not Zarr, damaged metadata, not a 2-d table of real numbers, unknown
        or ambiguous variable, group or dimension.
    """
    if isinstance(data, Matrix):
        return data
    if retries < 0:
        raise RequestError("bad_option", f"--retries is {retries}.", "It must be 0 or more.")
    where = {"variable": variable, "group": group, "layer": layer, "raw": raw}
    dims = {"sample_dim": sample_dim, "feature_dim": feature_dim}
    matrix = _open(data, where, dims, fill_missing_chunks, retries)
    if feature_labels is not None:
        matrix = labelled(matrix, feature_labels)
    return transformed(matrix, [transform] if isinstance(transform, str) else transform)


def _open(
    data: Any,
    where: dict[str, Any],
    dims: dict[str, str | None],
    fill_missing_chunks: bool,
    retries: int,
) -> Matrix:
    """By the source that knows this kind of data."""
    variable, group, layer, raw = where.values()
    if isinstance(data, str | os.PathLike):
        path = os.fspath(data)
        refuse_convertible(path)
        if variable is None and holds_anndata(path, group):
            if any(dims.values()):
                raise RequestError(
                    "bad_option",
                    f"{path} is AnnData: its samples are obs, its features var.",
                    "Leave out --sample-dim and --feature-dim.",
                )
            return open_anndata(
                path, group=group, layer=layer, raw=raw, fill_missing_chunks=fill_missing_chunks
            )
        if layer is not None or raw:
            raise RequestError(
                "not_anndata",
                f"{path} is not AnnData, so it has no layers and no raw.",
                "Leave out --layer and --raw; --variable chooses within a Zarr store.",
            )
        return open_store(
            path,
            variable=variable,
            group=group,
            **dims,
            fill_missing_chunks=fill_missing_chunks,
            retries=retries,
        )
    if any(where.values()):
        raise RequestError(
            "not_a_store",
            f"variable, group, layer and raw choose within a store; {type(data).__name__} is not "
            "one.",
            "Leave them out, or give a path.",
        )
    if isinstance(data, zarr.Array):
        return open_array(data, **dims, fill_missing_chunks=fill_missing_chunks, retries=retries)
    if isinstance(data, xr.DataArray):
        return open_dataarray(data, **dims)
    if isinstance(data, da.Array | np.ndarray):
        return open_bare(data, **dims)
    raise RequestError(
        "unknown_source",
        f"A {type(data).__name__} is not a table that can be opened.",
        "Give a path, a zarr.Array, an xarray.DataArray, or a Dask or NumPy array.",
    )

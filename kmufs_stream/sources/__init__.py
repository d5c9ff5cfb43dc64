"""Sources: what the user has, as one labelled samples x features matrix."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import xarray as xr
import zarr
from upath import UPath
from zarr.abc.store import Store

from kmufs_stream.errors import RequestError
from kmufs_stream.places import absence, is_there, name_of, near, place_of
from kmufs_stream.sources.anndata_store import holds_anndata, open_anndata
from kmufs_stream.sources.convertible import refuse_convertible
from kmufs_stream.sources.matrix import BARE_DIMS, Matrix, Rows, labelled
from kmufs_stream.sources.memory import open_bare, open_dataarray, open_dataset
from kmufs_stream.sources.restrict import ask_features, samples_meeting
from kmufs_stream.sources.stacking import Names, named
from kmufs_stream.sources.store import open_array, open_store
from kmufs_stream.sources.sturdy import RETRIES
from kmufs_stream.sources.transforms import transformed

__all__ = ["Matrix", "Rows", "open_matrix"]


def open_matrix(
    data: Any,
    *,
    variable: str | None = None,
    group: str | None = None,
    sample_dims: str | Sequence[str] | None = None,
    feature_dims: str | Sequence[str] | None = None,
    features_from_variables: bool = False,
    layer: str | None = None,
    raw: bool = False,
    feature_labels: str | None = None,
    transform: str | Sequence[str] = (),
    fill_missing_chunks: bool = False,
    retries: int = RETRIES,
    features: str | Sequence[str] | None = None,
    exclude_features: str | Sequence[str] | None = None,
    where: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Matrix:
    """Open a samples x features table without reading its values.

    Parameters
    ----------
    data : path of a Zarr store (a folder, or zipped) or an AnnData file (``.h5ad``), or the address
        of a Zarr store (``s3://bucket/data.zarr``, or whatever fsspec knows), or a Zarr ``Store``
        or ``Array``, ``xarray.Dataset`` or ``DataArray``, Dask or NumPy array, of bool, integer or
        floating-point dtype. A Matrix is taken as it is.
    variable, group : which variable of the store, and in which of its groups.
    sample_dims, feature_dims : name the dimensions of the one or the other, several of which are
        stacked in the order given; the rest are the others. Needed for three and more; of two,
        the first holds the samples.
    features_from_variables : the variables of a dataset, along the same dimensions, are the
        features.
    layer, raw : of an AnnData store, a layer, or the X of its raw, instead of its X.
    feature_labels : the coordinate (in AnnData: the column of var) that names the features.
    transform : ``log1p``, ``normalise-rows`` (each row to a sum of 10000) or
        ``normalise-rows:TOTAL``; several are applied in this order, as values are read.
    fill_missing_chunks : take chunks that the store does not hold for its fill value, instead of
        raising BrokenError when the data are used.
    retries : how often a chunk whose reading fails for the moment is asked for again, after
        longer and longer waits.
    features, exclude_features : labels, shell patterns on labels, or ``@FILE`` of labels, one a
        line, of the features that take part, or do not.
    where : a condition on coordinates of the samples, as of :meth:`pandas.DataFrame.query`; or
        the name of a boolean one.
    storage_options : for fsspec, where ``data`` is an address.

    Raises
    ------
    RequestError : not found, not Zarr, damaged metadata, no array of real numbers, unknown or
        ambiguous variable, group or dimension, a pattern or condition that nothing meets.
    """
    if retries < 0:
        raise RequestError("bad_option", f"`retries` is {retries}.", "It must be 0 or more.")
    within = {
        "variable": variable,
        "group": group,
        "features_from_variables": features_from_variables,
        "layer": layer,
        "raw": raw,
    }
    dims: dict[str, Names] = {"sample_dims": sample_dims, "feature_dims": feature_dims}
    matrix = _open(data, within, dims, fill_missing_chunks, retries, storage_options)
    if feature_labels is not None:
        matrix = labelled(matrix, feature_labels)
    said = {**within, **{name: [*named(dims[name])] for name in dims}}
    said["feature_labels"] = feature_labels
    located = {name: value for name, value in said.items() if value}
    matrix = replace(matrix, located=matrix.located | located)
    matrix = transformed(matrix, [transform] if isinstance(transform, str) else transform)
    if where is not None:
        matrix = samples_meeting(matrix, where)
    return ask_features(matrix, features, exclude_features)


def _open(
    data: Any,
    within: dict[str, Any],
    dims: dict[str, Names],
    fill_missing_chunks: bool,
    retries: int,
    storage_options: Mapping[str, Any] | None,
) -> Matrix:
    """By the source that knows this kind of data."""
    if isinstance(data, Matrix):
        return data
    variable, group, from_variables, layer, raw = within.values()
    if isinstance(data, str | os.PathLike | UPath | Store):
        place = place_of(data, storage_options)
        if isinstance(place, Path):
            refuse_convertible(os.fspath(place))
        if not is_there(place):
            raise RequestError(
                "not_found",
                absence(place),
                f"{near(place)}Give the path or address of a Zarr store, or an AnnData file "
                "(.h5ad).",
            )
        if variable is None and holds_anndata(place, group):
            if any(dims.values()) or from_variables:
                raise RequestError(
                    "bad_option",
                    f"{name_of(place)} is AnnData: its samples are obs, its features var.",
                    "Leave out `sample_dims`, `feature_dims` and `features_from_variables`.",
                )
            return open_anndata(
                place,
                group=group,
                layer=layer,
                raw=raw,
                fill_missing_chunks=fill_missing_chunks,
                retries=retries,
            )
        if layer is not None or raw:
            raise RequestError(
                "not_anndata",
                f"{name_of(place)} is not AnnData, so it has no layers and no raw.",
                "Leave out `layer` and `raw`; `variable` chooses within a Zarr store.",
            )
        return open_store(
            place,
            variable=variable,
            group=group,
            features_from_variables=from_variables,
            **dims,
            fill_missing_chunks=fill_missing_chunks,
            retries=retries,
        )
    if isinstance(data, xr.Dataset) and group is layer is None and not raw:
        return open_dataset(data, variable=variable, features_from_variables=from_variables, **dims)
    if any(within.values()):
        raise RequestError(
            "not_a_store",
            "`variable`, `group`, `features_from_variables`, `layer` and `raw` choose within a "
            f"store; "
            f"{type(data).__name__} is not one.",
            "Leave them out, or give a path or a store.",
        )
    if isinstance(data, zarr.Array):
        return open_array(data, **dims, fill_missing_chunks=fill_missing_chunks, retries=retries)
    if isinstance(data, xr.DataArray):
        return open_dataarray(data, **dims)
    if isinstance(data, pd.DataFrame):
        return open_dataarray(xr.DataArray(data, dims=BARE_DIMS), **dims)
    if isinstance(data, da.Array | np.ndarray):
        return open_bare(data, **dims)
    raise RequestError(
        "unknown_source",
        f"A {type(data).__name__} is not a table that can be opened.",
        "Give a path or address, a Zarr Store or Array, an xarray Dataset or DataArray, a pandas "
        "DataFrame, or a Dask or NumPy array.",
    )

"""Sources: what the user has, as one labelled samples x features matrix."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import scipy.sparse
import xarray as xr
import zarr
from upath import UPath
from zarr.abc.store import Store

from kmufs_stream.errors import RequestError, Text
from kmufs_stream.sources.anndata_store import holds_anndata, open_anndata
from kmufs_stream.sources.arrays import open_bare, open_dataarray, open_dataset, open_frame
from kmufs_stream.sources.convertible import refuse_convertible
from kmufs_stream.sources.dimensions import Names, named
from kmufs_stream.sources.matrix import Matrix, Rows, labelled
from kmufs_stream.sources.restrict import ask_features, samples_meeting
from kmufs_stream.sources.transforms import transformed
from kmufs_stream.sources.zarr_store import open_array, open_store
from kmufs_stream.storage.places import check_exists, name_of, place_of
from kmufs_stream.storage.retrying import RETRIES

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
    data : path, address, Zarr store or array, table in memory, or Matrix
        Path of a Zarr store (a folder, or zipped) or an AnnData file (``.h5ad``), or the address of
        a Zarr store (``s3://bucket/data.zarr``, or whatever fsspec knows), or a Zarr ``Store`` or
        ``Array``, ``xarray.Dataset`` or ``DataArray``, ``pandas.DataFrame``, Dask or NumPy array,
        of bool, integer or floating-point dtype. A Matrix is taken as it is.
    variable : str, optional
        Which variable of the store; needed where it holds several.
    group : str, optional
        In which of its groups.
    sample_dims, feature_dims : str or sequence of str, optional
        Name the dimensions of the one or the other, several of which are stacked in the order
        given; the rest are the others. Needed for three and more; of two, the first holds the
        samples.
    features_from_variables : bool, default False
        The variables of a dataset, along the same dimensions, are the features.
    layer : str, optional
        Of an AnnData store, a layer instead of its X.
    raw : bool, default False
        Of an AnnData store, the X of its raw instead of its X.
    feature_labels : str, optional
        The coordinate (in AnnData: the column of var) that names the features.
    transform : str or sequence of str, optional
        ``log1p``, ``normalise-rows`` (each row to a sum of 10000) or ``normalise-rows:TOTAL``;
        several are applied in this order, as values are read.
    fill_missing_chunks : bool, default False
        Take chunks that the store does not hold for its fill value, instead of raising BrokenError
        when the data are used.
    retries : int, default 5
        How often a chunk whose reading fails for the moment is asked for again, after longer and
        longer waits.
    features, exclude_features : str or sequence of str, optional
        Labels, shell patterns on labels, or ``@FILE`` of labels, one a line, of the features that
        take part, or do not.
    where : str, optional
        A condition on coordinates of the samples, as of :meth:`pandas.DataFrame.query`, but without
        attributes and calls; or the name of a boolean one.
    storage_options : mapping, optional
        For fsspec, where ``data`` is an address.

    Returns
    -------
    Matrix
        The table, its labels and coordinates.

    Raises
    ------
    RequestError
        Not found, not Zarr, damaged metadata, no array of real numbers, unknown or ambiguous
        variable, group or dimension, a pattern or condition that nothing meets.
    """
    if retries < 0:
        raise RequestError("bad_option", Text("{retries} is {}.", retries), "It must be 0 or more.")
    within = Within(variable, group, features_from_variables, layer, raw)
    dims: dict[str, Names] = {"sample_dims": sample_dims, "feature_dims": feature_dims}
    matrix = _open(data, within, dims, fill_missing_chunks, retries, storage_options)
    if feature_labels is not None:
        matrix = labelled(matrix, feature_labels)
    said = {**vars(within), **{name: [*named(dims[name])] for name in dims}}
    said["feature_labels"] = feature_labels
    located = {name: value for name, value in said.items() if value}
    located = matrix.provenance.located | located
    matrix = replace(matrix, provenance=replace(matrix.provenance, located=located))
    matrix = transformed(matrix, [transform] if isinstance(transform, str) else transform)
    if where is not None:
        matrix = samples_meeting(matrix, where)
    return ask_features(matrix, features, exclude_features)


@dataclass(frozen=True)
class Within:
    """Which table of a store; a source refuses what it has not, and ignores nothing."""

    variable: str | None
    group: str | None
    features_from_variables: bool
    layer: str | None
    raw: bool

    def refuse(self, what: str) -> None:
        """Raise RequestError where any of it was said of ``what``, which is one table."""
        if any(vars(self).values()):
            raise RequestError(
                "not_a_store",
                Text(
                    "{variable}, {group}, {features_from_variables}, {layer} and {raw} "
                    "choose within a store; {} is not one.",
                    what,
                ),
                "Leave them out, or give a path or a store.",
            )


def _open(
    data: Any,
    within: Within,
    dims: dict[str, Names],
    fill_missing_chunks: bool,
    retries: int,
    storage_options: Mapping[str, Any] | None,
) -> Matrix:
    """By the source that knows this kind of data."""
    if isinstance(data, str | os.PathLike | UPath | Store):
        place = place_of(data, storage_options)
        if isinstance(place, Path):
            refuse_convertible(os.fspath(place))
        check_exists(place, "Give the path or address of a Zarr store, or an AnnData file (.h5ad).")
        if within.variable is None and holds_anndata(place, within.group):
            if any(dims.values()) or within.features_from_variables:
                raise RequestError(
                    "bad_option",
                    f"{name_of(place)} is AnnData: its samples are obs, its features var.",
                    Text("Leave out {sample_dims}, {feature_dims} and {features_from_variables}."),
                )
            return open_anndata(
                place,
                group=within.group,
                layer=within.layer,
                raw=within.raw,
                fill_missing_chunks=fill_missing_chunks,
                retries=retries,
            )
        if within.layer is not None or within.raw:
            raise RequestError(
                "not_anndata",
                f"{name_of(place)} is not AnnData, so it has no layers and no raw.",
                Text("Leave out {layer} and {raw}; {variable} chooses within a Zarr store."),
            )
        return open_store(
            place,
            variable=within.variable,
            group=within.group,
            features_from_variables=within.features_from_variables,
            **dims,
            fill_missing_chunks=fill_missing_chunks,
            retries=retries,
        )
    kind = type(data).__name__
    if isinstance(data, xr.Dataset):
        replace(within, variable=None, features_from_variables=False).refuse(kind)
        return open_dataset(
            data,
            variable=within.variable,
            features_from_variables=within.features_from_variables,
            **dims,
        )
    within.refuse(kind)
    if isinstance(data, Matrix):
        if any(dims.values()):
            raise RequestError(
                "bad_option",
                "The dimensions of a Matrix were chosen as it was opened.",
                Text("Leave out {sample_dims} and {feature_dims}, or open the data again."),
            )
        return data
    if isinstance(data, zarr.Array):
        return open_array(data, **dims, fill_missing_chunks=fill_missing_chunks, retries=retries)
    if isinstance(data, xr.DataArray):
        return open_dataarray(data, **dims)
    if isinstance(data, pd.DataFrame):
        return open_frame(data, **dims)
    if isinstance(data, da.Array | np.ndarray):
        return open_bare(data, **dims)
    known = (
        "Give a path or address, a Zarr Store or Array, an xarray Dataset or DataArray, a pandas "
        "DataFrame, or a Dask or NumPy array."
    )
    if type(data).__module__.partition(".")[0] == "anndata":
        known = "Write it with write_h5ad('cells.h5ad') and give that path."
    elif scipy.sparse.issparse(data):
        known = (
            "KMeansUFS(k, h).fit takes it; or write it, as anndata.AnnData(X).write_h5ad('x.h5ad') "
            "does, and give that path."
        )
    raise RequestError("unknown_source", f"{kind} is no table that can be opened as it is.", known)

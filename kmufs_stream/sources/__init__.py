"""Open whatever the user has as one labelled samples x features matrix."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
import zarr
from upath import UPath
from zarr.abc.store import Store

from kmufs_stream.errors import KmufsError, RequestError, Text
from kmufs_stream.sources.anndata_store import open_anndata
from kmufs_stream.sources.arrays import (
    is_dask_array,
    open_bare,
    open_dataarray,
    open_dataset,
    open_frame,
)
from kmufs_stream.sources.matching import ask_features
from kmufs_stream.sources.matrix import Matrix, Rows, labelled
from kmufs_stream.sources.nodes import bad_metadata, find_node
from kmufs_stream.sources.opening import DIMS, Names, Opening, named
from kmufs_stream.sources.samples import samples_meeting
from kmufs_stream.sources.transforms import transformed
from kmufs_stream.sources.zarr_store import open_array, open_store
from kmufs_stream.storage.retrying import RETRIES

__all__ = ["Matrix", "Rows", "open_matrix"]


def open_matrix(
    data: Any,
    *,
    variable: str | None = None,
    group: str | None = None,
    sample_dims: Names = None,
    feature_dims: Names = None,
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
        a Zarr store (``s3://bucket/data.zarr``, or any that fsspec knows), or a Zarr ``Store`` or
        ``Array``, ``xarray.Dataset`` or ``DataArray``, ``pandas.DataFrame``, Dask or NumPy array,
        of bool, integer or floating-point dtype. A Matrix is returned as it is.
    variable : str, optional
        Variable of the store; needed if it holds several.
    group : str, optional
        Group of the store.
    sample_dims, feature_dims : str or sequence of str, optional
        Dimensions of the samples or of the features; several are stacked in the order given, and
        the remaining ones are those of the other side. Needed for three dimensions or more; of two,
        the first holds the samples by default.
    features_from_variables : bool, default False
        Use the variables of a dataset, along the same dimensions, as features.
    layer : str, optional
        Layer of an AnnData store to use instead of its X.
    raw : bool, default False
        Use the X of the raw of an AnnData store.
    feature_labels : str, optional
        Coordinate (in AnnData: column of var) that names the features.
    transform : str or sequence of str, optional
        ``log1p``, ``normalise-rows`` (scale each row to a sum of 10000) or
        ``normalise-rows:TOTAL``; several are applied in this order, as values are read.
    fill_missing_chunks : bool, default False
        Read chunks that the store does not hold as its fill value, instead of raising BrokenError
        when the data are used.
    retries : int, default 5
        How often to read a chunk again after a transient failure, with longer and longer waits.
    features, exclude_features : str or sequence of str, optional
        Names of the features that take part, or do not: names, shell patterns, or ``@FILE`` with
        a name on each line.
    where : str, optional
        Condition on coordinates of the samples, as in :meth:`pandas.DataFrame.query` but without
        attributes and calls; or the name of a boolean coordinate.
    storage_options : mapping, optional
        Options for fsspec, if ``data`` is an address.

    Returns
    -------
    Matrix
        The table, with names of its features and coordinates.

    Raises
    ------
    RequestError
        Nothing is found, or it is not Zarr, has damaged metadata or holds no array of real numbers;
        a variable, group or dimension is unknown or ambiguous; nothing meets a pattern or the
        condition.
    """
    if retries < 0:
        raise RequestError("bad_option", Text("{retries} is {}.", retries), "It must be 0 or more.")
    opening = Opening(
        variable,
        group,
        features_from_variables,
        layer,
        raw,
        named(sample_dims),
        named(feature_dims),
        fill_missing_chunks,
        retries,
    )
    if isinstance(data, str | os.PathLike | UPath | Store):
        node = find_node(data, group, storage_options)
        by_cells = node.is_anndata and not (node.is_zarr and variable)
        try:
            matrix = (open_anndata if by_cells else open_store)(node, opening)
        except KmufsError:
            raise
        except Exception as error:  # damaged metadata may raise anything in libraries
            raise bad_metadata(node.name, error) from error
    else:
        matrix = _open_in_python(data, opening)
    located = matrix.provenance.located | opening.located()
    if feature_labels is not None:
        matrix = labelled(matrix, feature_labels)
        located["feature_labels"] = feature_labels
    matrix = replace(matrix, provenance=replace(matrix.provenance, located=located))
    if transform:
        matrix = transformed(matrix, [transform] if isinstance(transform, str) else transform)
    if where is not None:
        matrix = samples_meeting(matrix, where)
    if features is not None or exclude_features is not None:
        matrix = ask_features(matrix, features, exclude_features)
    return matrix


def _open_in_python(data: Any, opening: Opening) -> Matrix:
    kind = type(data).__name__
    if isinstance(data, xr.Dataset):
        used = (*DIMS, "variable", "features_from_variables")
        opening.refuse_others("not_a_store", f"a {kind}", *used)
        return open_dataset(data, opening)
    opening.refuse_others("not_a_store", f"a {kind}", *([] if isinstance(data, Matrix) else DIMS))
    if isinstance(data, Matrix):
        return data
    if isinstance(data, zarr.Array):
        return open_array(data, opening)
    if isinstance(data, xr.DataArray):
        return open_dataarray(data, opening)
    if isinstance(data, pd.DataFrame):
        return open_frame(data, opening)
    if isinstance(data, np.ndarray) or is_dask_array(data):
        return open_bare(data, opening)
    known = (
        "Give a path or address, a Zarr Store or Array, an xarray Dataset or DataArray, a pandas "
        "DataFrame, or a Dask or NumPy array. AnnData and sparse matrices: write a file "
        "(anndata.AnnData(X).write_h5ad('x.h5ad')) and give its path."
    )
    raise RequestError("unknown_source", f"A {kind} cannot be opened as it is.", known)

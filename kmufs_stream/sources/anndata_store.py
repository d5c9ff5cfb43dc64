"""Open X, a layer or raw of AnnData in Zarr stores and .h5ad files; dense, CSR or CSC.

The anndata package reads the tables of cells and genes, element by element; zarr or h5py read
values, block by block. ``uns`` is never read, so its contents cannot cause errors. Stores older
than anndata's ``encoding-type`` have structured arrays as tables.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
import zarr
from numpy.typing import NDArray

from kmufs_stream.errors import KmufsError, RequestError, Text, did_you_mean, listed
from kmufs_stream.sources.dimensions import Stacking
from kmufs_stream.sources.hdf5_rows import HDF5Array, without_anndata
from kmufs_stream.sources.layout import Layout
from kmufs_stream.sources.matrix import Matrix, Metadata, Provenance, Rows, check_table
from kmufs_stream.sources.nodes import Node, is_array
from kmufs_stream.sources.opening import Opening
from kmufs_stream.sources.sparse_rows import CSCRows, CSRRows, read_dtype
from kmufs_stream.sources.zarr_store import open_array
from kmufs_stream.storage.chunks import Inventory, cells, damaged_chunk
from kmufs_stream.storage.retrying import CheckedStore, through

DIMS = ("obs", "var")
COLUMN_ROWS = 2**20  # of a column converted at a time
TEXT = np.dtypes.StringDType()


def open_anndata(found: Node, opening: Opening) -> Matrix:
    """Open X, a layer, or the X of raw, with the columns of obs and var as coordinates.

    Raises RequestError if it does not exist or is no table of numbers, or if the anndata package
    is not installed.
    """
    place, path, root = found
    opening.refuse_others("bad_option", f"{path}, which is AnnData,", "group", "layer", "raw")
    group = opening.group
    values, table = _places(root, path, opening)
    node = root[values]
    obs, var = (_table(root[name], f"{name} of {path}") for name in ("obs", table))
    name = opening.layer or "X"
    if is_array(node):
        shape, dtype = tuple(node.shape), np.dtype(node.dtype)
    else:
        shape, dtype = _sparse_shape(node, path, values), np.dtype(node["data"].dtype)
    check_table(f"{name!r} in {path}", shape, dtype)
    if shape != (len(obs), len(var)):
        raise RequestError(
            "bad_metadata",
            f"{values} of {path} is {shape}, but obs has {len(obs)} rows and {table} {len(var)}.",
            "The store is damaged; write it again.",
        )
    frame, labels = _coordinates(obs, var, name)
    held = int(obs.memory_usage(deep=True).sum() + var.memory_usage(deep=True).sum())
    rows: Rows
    if isinstance(node, zarr.Array):
        dense = open_array(node, opening)
        rows, dtype, layout = dense.rows, dense.dtype, dense.layout
        inventory = dense.provenance.inventory
    elif is_array(node):
        array = rows = HDF5Array(node)
        layout = Stacking(DIMS, shape, (0,), (1,)).layout(dtype, array.chunks)
        inventory = array.inventory
    else:
        rows = _sparse(node, shape, f"{values} of {path}", opening)
        dtype = read_dtype(dtype)
        layout = Layout(dtype, 1, shape[1], 1, sparsity=rows.sparsity())
        held += rows.held_bytes
        inventory = partial(_sparse_inventory, node, opening)
    zarr_format = root.metadata.zarr_format if found.is_zarr else 3
    return Matrix(
        rows=rows,
        shape=(shape[0], shape[1]),
        dtype=dtype,
        labels=labels,
        layout=replace(layout, zarr_format=zarr_format, held_bytes=held),
        metadata=Metadata(name, *DIMS, frame),
        provenance=Provenance(
            path, inventory, place, feature_table=f"{group}/{table}" if group else table
        ),
    )


def _places(root: Any, path: str, opening: Opening) -> tuple[str, str]:
    """Names of the values and of the table of their features within the object."""
    layer, raw = opening.layer, opening.raw
    if layer is not None and raw:
        raise RequestError(
            "bad_option", Text("{layer} and {raw} are two different matrices."), "Give one of them."
        )
    layers = sorted(root["layers"]) if "layers" in root else []
    if layer is not None:
        if layer not in layers:
            raise RequestError(
                "unknown_layer",
                f"{path} has no layer {layer!r}.",
                f"{did_you_mean(layer, layers)}Layers there: {listed(layers)}.",
            )
        return f"layers/{layer}", "var"
    if raw:
        for values, table in (("raw/X", "raw/var"), ("raw.X", "raw.var")):
            if values in root and table in root:
                return values, table
        raise RequestError("no_raw", f"{path} has no raw.", Text("Leave out {raw}."))
    if "X" not in root or root["X"].attrs.get("encoding-type") == "null":
        first = Text(", for instance {layer}", layer=layers[0]) if layers else ""
        raise RequestError("no_x", f"{path} has no X.", "Choose a layer" + first + ".")
    return "X", "var"


def _attribute(node: Any, *names: str) -> Any:
    """The first attribute that exists; text as str."""
    found = next((node.attrs[name] for name in names if name in node.attrs), None)
    return found.decode() if isinstance(found, bytes) else found


def _sparse_shape(node: Any, path: str, values: str) -> tuple[int, int]:
    kind = _attribute(node, "encoding-type", "h5sparse_format")
    shape = _attribute(node, "shape", "h5sparse_shape")
    if _format(node) is None or shape is None:
        raise RequestError(
            "bad_element",
            f"{values} of {path} is stored as {kind!r}.",
            "Dense arrays, csr_matrix and csc_matrix can be read.",
        )
    return int(shape[0]), int(shape[1])


def _format(node: Any) -> str | None:
    kind = str(_attribute(node, "encoding-type", "h5sparse_format"))[:3]
    known = kind in ("csr", "csc") and all(map(is_array, _parts(node)))
    return kind if known else None


def _parts(node: Any) -> list[Any]:
    return [node.get(name) for name in ("data", "indices", "indptr")]


def _sparse(node: Any, shape: tuple[int, int], place: str, opening: Opening) -> CSRRows:
    data, indices, pointers = (
        opening.retrying(part) if isinstance(part, zarr.Array) else HDF5Array(part)
        for part in _parts(node)
    )
    by_rows = _format(node) == "csr"
    indptr = np.asarray(pointers[:]).astype(np.int64)
    rising = len(indptr) == shape[0 if by_rows else 1] + 1 and (np.diff(indptr) >= 0).all()
    entries = data.shape[0]
    if not (rising and indptr[0] == 0 and indptr[-1] == entries == indices.shape[0]):
        raise RequestError(
            "bad_metadata",
            f"The row pointers of {place} do not fit its shape {shape} and its {entries} values.",
            "The store is damaged; write it again.",
        )
    return (CSRRows if by_rows else CSCRows)(data, indices, indptr, shape, place)


def _sparse_inventory(node: Any, opening: Opening) -> list[str]:
    lists = [
        Inventory(part, opening.fill_missing_chunks)()
        if isinstance(part, zarr.Array)
        else HDF5Array(part).inventory()
        for part in _parts(node)
    ]
    return ["; ".join(each[0] for each in lists), *(key for each in lists for key in each[1:])]


def _table(node: Any, place: str) -> pd.DataFrame:
    """Read obs or var."""
    arrays: list[zarr.Array[Any]] = []
    try:
        if isinstance(node, zarr.Group | zarr.Array):
            node, arrays = _checked(node)
        if is_array(node):
            return _structured(np.asarray(node[:]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from anndata.io import read_elem

            frame = read_elem(node)
    except ImportError as error:
        raise without_anndata(place) from error
    except KmufsError:
        raise
    except Exception as error:
        for array in arrays:
            if (found := damaged_chunk(array, cells(array))) is not None:
                raise found from error
        raise RequestError(
            "bad_metadata",
            f"{place} cannot be read: {type(error).__name__}: {error}",
            "The table is damaged or of an unknown kind; write it again.",
        ) from error
    assert isinstance(frame, pd.DataFrame)
    return frame


def _checked(
    node: zarr.Group | zarr.Array[Any],
) -> tuple[zarr.Group | zarr.Array[Any], list[zarr.Array[Any]]]:
    """Return a node and its arrays, read through a store that checks chunks."""
    below = [node] if isinstance(node, zarr.Array) else [n for _, n in node.members(max_depth=None)]
    arrays = [array for array in below if isinstance(array, zarr.Array)]
    store = CheckedStore(node.store, arrays)
    read = [through(array, store) for array in arrays]
    return zarr.open(store, path=node.path, mode="r"), read


def _structured(records: NDArray[Any]) -> pd.DataFrame:
    """Convert a table as anndata wrote it before 0.7; its first field is the index."""
    columns = {}
    for name in records.dtype.names or ():
        values = records[name]
        if values.ndim != 1:
            continue
        if values.dtype.kind in "SO":
            text = (
                x.decode("utf-8", "replace") if isinstance(x, bytes) else str(x) for x in values
            )
            values = np.array(list(text), dtype=object)
        columns[name] = values.astype(values.dtype.newbyteorder("="))
    frame = pd.DataFrame(columns)
    return frame.set_index(frame.columns[0])


def _coordinates(
    obs: pd.DataFrame, var: pd.DataFrame, name: str
) -> tuple[xr.Dataset, NDArray[Any]]:
    """Return columns as coordinates, lazy along the samples, and the names of the features.

    Columns whose names are taken, or that both tables have, get the table's name as a prefix.
    """
    import dask.array as da

    variables: dict[str, xr.Variable] = {}
    taken = {*DIMS, name, *(set(map(str, obs.columns)) & set(map(str, var.columns)))}
    for dim, table in zip(DIMS, (obs, var), strict=True):
        columns = {dim: table.index.to_series()}
        for label in table.columns:
            plain = str(label).replace("/", "_")
            prefixed = plain in taken or plain in variables or not plain or plain[0] in "._"
            columns[f"{dim}_{plain}" if prefixed else plain] = table[label]
        for label, column in columns.items():
            values = _Column(column)
            lazy = da.from_array(values, chunks=COLUMN_ROWS, asarray=False, name=False)  # type: ignore[no-untyped-call]
            variables[label] = xr.Variable((dim,), lazy if dim == "obs" else values[:])
    labels = np.array([str(x) for x in var.index], dtype=object)
    return xr.Dataset(coords=xr.Coordinates(variables, indexes={})), labels


class _Column:
    """A column of a table as a lazy array; text as strings, "" if missing."""

    ndim = 1

    def __init__(self, series: pd.Series[Any]) -> None:
        self._series = series
        self.shape = (len(series),)
        dtype: Any = series.dtype
        if isinstance(dtype, pd.CategoricalDtype):
            dtype = dtype.categories.dtype
        number = getattr(dtype, "numpy_dtype", dtype)
        if not (isinstance(number, np.dtype) and number.kind in "biuf"):
            self.dtype: np.dtype[Any] = TEXT
        else:
            self.dtype = np.dtype(np.float64) if series.isna().any() else number

    def __getitem__(self, key: Any) -> NDArray[Any]:
        part = self._series.iloc[key[0] if isinstance(key, tuple) else key].astype(object)
        missing = part.isna().to_numpy()
        if self.dtype == TEXT:
            text = ["" if gone else str(x) for x, gone in zip(part, missing, strict=True)]
            return np.array(text, dtype=TEXT)
        return np.asarray(part.where(~missing, np.nan).to_numpy(), self.dtype)

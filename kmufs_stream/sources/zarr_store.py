"""Zarr stores as a matrix: a bare array, a group, or what xarray wrote; formats 2 and 3."""

from __future__ import annotations

import zipfile
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
from upath import UPath
from zarr.abc.store import Store

from kmufs_stream.errors import KmufsError, Option, RequestError, Text, did_you_mean, listed
from kmufs_stream.sources.convertible import said_inside
from kmufs_stream.sources.coordinates import (
    attributes,
    check_text,
    coordinates,
    coordinates_read,
    dimension_names,
    features_described,
    open_datasets,
)
from kmufs_stream.sources.dimensions import (
    Names,
    arrange,
    named,
    of_dimensions,
    stack_frame,
    variables_beside,
)
from kmufs_stream.sources.layout import Layout
from kmufs_stream.sources.matrix import (
    BARE_DIMS,
    Matrix,
    Metadata,
    Provenance,
    check_table,
    is_numeric,
)
from kmufs_stream.sources.names import feature_labels
from kmufs_stream.sources.variables import side_by_side
from kmufs_stream.sources.zarr_rows import StoredRows, packing
from kmufs_stream.storage.chunks import Inventory, address
from kmufs_stream.storage.places import Place, is_zarr, name_of, zarr_root
from kmufs_stream.storage.provenance import FACTOR
from kmufs_stream.storage.retrying import RETRIES, with_retries

LISTED = 5  # variables
# CF attributes that name variables which describe others.
DESCRIBING = ("ancillary_variables", "bounds", "coordinates", "grid_mapping")
BOUNDS = ("_bnds", "_bounds")


def open_store(
    place: Place,
    *,
    variable: str | None = None,
    group: str | None = None,
    sample_dims: Names = None,
    feature_dims: Names = None,
    features_from_variables: bool = False,
    fill_missing_chunks: bool = False,
    retries: int = RETRIES,
) -> Matrix:
    """Open a Zarr store as a matrix; nothing but metadata and small coordinates is read.

    Raises RequestError for whatever is not a numeric variable of a readable Zarr store.
    """
    try:
        return _open(
            place,
            variable,
            group,
            sample_dims,
            feature_dims,
            features_from_variables=features_from_variables,
            fill_missing_chunks=fill_missing_chunks,
            retries=retries,
        )
    except KmufsError:
        raise
    except Exception as error:  # what damaged metadata lead to in zarr and xarray may be anything
        raise _bad_metadata(name_of(place), error) from error


def _open(
    place: Place,
    variable: str | None,
    group: str | None,
    sample_dims: Names,
    feature_dims: Names,
    *,
    features_from_variables: bool,
    fill_missing_chunks: bool,
    retries: int,
) -> Matrix:
    node = _open_node(place, group)
    if (
        isinstance(node, zarr.Array)
        and not isinstance(place, Store)
        and _stands_in_dataset(node, place)
    ):
        inside = place.resolve()
        place, variable = inside.parent, variable or inside.name
        node = _open_node(place, None)
    path = name_of(place)
    if isinstance(node, zarr.Array):
        if variable is not None or features_from_variables:
            raise RequestError(
                "unknown_variable",
                f"{path} is a single Zarr array, it has no "
                + ("variables." if variable is None else f"variable {variable!r}."),
                Text("Leave out {variable} and {features_from_variables}."),
            )
        return _matrix(
            path, place, [], node, sample_dims, feature_dims, fill_missing_chunks, retries
        )
    datasets = open_datasets(node)
    if features_from_variables:
        return side_by_side(
            place,
            node,
            datasets,
            sample_dims=sample_dims,
            fill_missing_chunks=fill_missing_chunks,
            retries=retries,
        )
    array = _choose(path, node, datasets, variable, sample_dims, feature_dims)
    return _matrix(
        path, place, datasets, array, sample_dims, feature_dims, fill_missing_chunks, retries
    )


def tables_in(place: Place) -> dict[str, dict[str, int]]:
    """The variables of a dataset that may be the table, with the sizes of their dimensions.

    The likeliest first.
    """
    group = zarr.open_group(zarr_root(place), mode="r")
    datasets = open_datasets(group)
    found = _candidates(dict(sorted(group.arrays())), datasets, None, None)
    return {
        name: dict(
            zip(dimension_names(found[name], datasets) or (), found[name].shape, strict=True)
        )
        for name in sorted(found, key=lambda name: _likelihood(found[name]), reverse=True)
    }


def open_array(
    array: zarr.Array[Any],
    *,
    sample_dims: Names = None,
    feature_dims: Names = None,
    fill_missing_chunks: bool = False,
    retries: int = RETRIES,
) -> Matrix:
    """An open Zarr array as a matrix without labels."""
    store, source = array.store, address(array)
    place = Path(source) if isinstance(store, zarr.storage.LocalStore) else store
    return _matrix(
        source, place, [], array, sample_dims, feature_dims, fill_missing_chunks, retries
    )


def _stands_in_dataset(array: zarr.Array[Any], place: Path | UPath) -> bool:
    """Whether the path leads into a store that xarray wrote: its coordinates stand beside it."""
    return dimension_names(array, []) is not None and is_zarr(place.resolve().parent)


def _open_node(place: Place, group: str | None) -> zarr.Array[Any] | zarr.Group:
    path = name_of(place)
    where = f"{path} (group {group!r})" if group else path
    zipped = isinstance(place, Path) and place.is_file()
    try:
        return zarr.open(zarr_root(place), path=group or "", mode="r")
    except zipfile.BadZipFile:
        if path.endswith(".h5ad"):
            raise RequestError(
                "not_anndata",
                f"{path} is named as an AnnData file and is none: it is not HDF5.",
                "Fetch it again, or write it with anndata (write_h5ad).",
            ) from None
        raise RequestError(
            "not_zarr",
            f"{path} is a file, and neither AnnData (HDF5) nor a zipped Zarr store.",
            "Give the folder of a Zarr store, or a store zipped as .zarr.zip; kmufs-stream convert "
            "makes one of other formats.",
        ) from None
    except FileNotFoundError:
        if group and (zipped or isinstance(place, Store) or is_zarr(place)):
            there = _groups(place)
            raise RequestError(
                "unknown_group",
                f"{path} has no group {group!r}.",
                f"{did_you_mean(group, there)}Groups there: {listed(there)}.",
            ) from None
        raise RequestError(
            "not_zarr",
            f"{path} is not a Zarr store: it holds no zarr.json, .zarray or .zgroup.",
            said_inside(place)
            if isinstance(place, Path) and place.is_dir()
            else "Give the address below which they are; files (.zip, .h5ad) are read from folders "
            "of this machine alone.",
        ) from None
    except Exception as error:
        raise _bad_metadata(where, error) from error


def _bad_metadata(where: str, error: Exception) -> RequestError:
    return RequestError(
        "bad_metadata",
        f"The Zarr metadata of {where} cannot be read: {type(error).__name__}: {error}",
        "The metadata is damaged or of an unknown kind; write the store again.",
    )


def _groups(place: Place) -> list[str]:
    root = _open_node(place, None)
    if isinstance(root, zarr.Array):
        return []
    return sorted(name for name, node in root.members(max_depth=None) if _is_group(node))


def _is_group(node: object) -> bool:
    return isinstance(node, zarr.Group)


def _choose(
    path: str,
    group: zarr.Group,
    datasets: list[xr.Dataset],
    variable: str | None,
    sample_dims: Names,
    feature_dims: Names,
) -> zarr.Array[Any]:
    """The variable asked for, or the only numeric one of two dimensions, or of those named."""
    arrays = dict(sorted(group.arrays()))
    where = f"{path} (group {group.path!r})" if group.path else path
    if group.attrs.get("format") == FACTOR and variable is None:
        raise RequestError(
            "is_factor",
            f"{path} is a factor, not the data that it was made from.",
            Text(
                "Give {}; select and plan then take {factor}.",
                group.attrs.get("source", "these data"),
                factor=path,
            ),
        )
    if variable is not None and arrays:
        if variable not in arrays:
            raise RequestError(
                "unknown_variable",
                f"{where} has no variable {variable!r}.",
                f"{did_you_mean(variable, arrays)}Variables there: {_listing(arrays) or 'none'}.",
            )
        return arrays[variable]
    candidates = _candidates(arrays, datasets, sample_dims, feature_dims)
    if len(candidates) == 1:
        return next(iter(candidates.values()))
    if candidates:
        guessed = sample_dims is None and feature_dims is None
        there = {d for a in candidates.values() for d in dimension_names(a, datasets) or BARE_DIMS}
        unknown = sorted({*named(sample_dims), *named(feature_dims)} - there)
        if unknown:
            raise RequestError(
                "unknown_dimension",
                f"No table in {path} has a dimension {unknown[0]!r}.",
                f"{did_you_mean(unknown[0], there)}Dimensions there: {listed(sorted(there))}.",
            )
        raise RequestError(
            "ambiguous_variable",
            f"{path} holds {len(candidates)} tables: {_listing(candidates)}.",
            Text(
                "Choose one, for instance {}.",
                _likeliest(candidates, datasets, guessed=guessed),
            ),
        )
    below = {n: a for n, a in group.members(max_depth=None) if isinstance(a, zarr.Array)}
    deeper = {n: a for n, a in below.items() if "/" in n and a.ndim >= 2}
    if deeper:
        wanted = [n for n in deeper if n.rpartition("/")[2] == variable] or [*deeper]
        inside = f"{group.path}/{wanted[0]}".rpartition("/")[0].lstrip("/")
        raise RequestError(
            "no_table",
            f"{where} holds no {'table' if variable is None else f'variable {variable!r}'} at its "
            f"top; deeper there are {_listing(deeper)}.",
            Text("Choose a group, for instance {group}.", group=inside),
        )
    if len(arrays) == 1:
        return next(iter(arrays.values()))  # refused below, with the reason
    if below:
        raise RequestError(
            "no_table",
            f"{path} holds no numeric variable of two or more dimensions; it holds "
            f"{_listing(below)}.",
            Text(
                "Say {features_from_variables} where every variable is a feature; else "
                "choose one with {variable}.",
                features_from_variables=True,
            ),
        )
    raise RequestError(
        "empty_group", f"{path} is an empty Zarr group.", "Give a store that holds a 2-d variable."
    )


def _likeliest(
    tables: dict[str, zarr.Array[Any]], datasets: list[xr.Dataset], *, guessed: bool
) -> Option:
    """What to type for the likeliest table; ``guessed`` as of Matrix."""
    name = max(tables, key=lambda n: _likelihood(tables[n]))
    if tables[name].ndim == 2 or not guessed:
        return Option(variable=name)
    along = dimension_names(tables[name], datasets)
    return Option(variable=name, sample_dims="dim_0" if along is None else along[0])


def _likelihood(table: zarr.Array[Any]) -> tuple[bool, int]:
    """Orders tables by how likely one is meant: the largest, of real numbers if any is."""
    return table.dtype.kind == "f", table.size


def _candidates(
    arrays: dict[str, zarr.Array[Any]],
    datasets: list[xr.Dataset],
    sample_dims: Names,
    feature_dims: Names,
) -> dict[str, zarr.Array[Any]]:
    """The numeric variables that may be the table; what only describes others comes last."""
    numeric = {n: a for n, a in arrays.items() if a.ndim >= 2 and is_numeric(a.dtype)}
    names = {n: dimension_names(a, datasets) or BARE_DIMS for n, a in numeric.items()}
    # Where none has those dimensions, opening the only variable says which it has.
    numeric = {n: numeric[n] for n in of_dimensions(names, sample_dims, feature_dims)}
    described = {
        name
        for array in arrays.values()
        for key in DESCRIBING
        for name in str(array.attrs.get(key, "")).split()
    }
    if datasets:
        described.update(map(str, datasets[0].coords))
    # Many stores have lost the attribute that names time_bnds.
    described |= {n for n in arrays if n.endswith(BOUNDS) and n.rpartition("_")[0] in arrays}
    main = {n: a for n, a in numeric.items() if n not in described} or numeric
    own = {n: set(dimension_names(a, datasets) or ()) for n, a in main.items()}
    # A mask or a height of the places where another was measured is no table before that.
    alone = {n for n, d in own.items() if not d or not any(d < other for other in own.values())}
    flat = {n: a for n, a in main.items() if a.ndim == 2 and n in alone}
    return main if sample_dims or feature_dims else flat or main


def _listing(arrays: dict[str, zarr.Array[Any]]) -> str:
    more = f" and {len(arrays) - LISTED:,} more" if len(arrays) > LISTED else ""
    first = sorted(arrays.items())[:LISTED]
    return ", ".join(f"{listed([n])} {a.shape} {a.dtype}" for n, a in first) + more


def _matrix(
    source: str,
    place: Place,
    datasets: list[xr.Dataset],
    array: zarr.Array[Any],
    sample_dims: Names,
    feature_dims: Names,
    fill_missing_chunks: bool,
    retries: int,
) -> Matrix:
    name = array.basename or "data"
    check_table(name, source, array.shape, np.dtype(array.dtype))
    if 0 in array.chunks and 0 not in array.shape:
        raise RequestError(
            "bad_metadata",
            f"The Zarr metadata of {name!r} in {source} say chunks of {array.chunks}.",
            "The metadata is damaged; write the store again.",
        )
    dims = dimension_names(array, datasets)
    if dims is None:
        dims = BARE_DIMS if array.ndim == 2 else tuple(f"dim_{i}" for i in range(array.ndim))
    stacking = arrange(dims, array.shape, sample_dims, feature_dims, f"{name!r} in {source}")
    frame = coordinates(datasets, name, dict(zip(dims, array.shape, strict=True)))
    with coordinates_read(source):
        frame = stack_frame(frame, stacking)
        frame = features_described(frame, stacking.name(samples=False))
        labels = feature_labels(frame, stacking.name(samples=False))
        check_text(labels, stacking.name(samples=False))
    attrs = attributes(array, datasets)
    read = with_retries(array, retries=retries, missing_is_fill=fill_missing_chunks)
    rows = StoredRows(read, stacking, packing(array, attrs))
    dtype = rows.read(0, 0).dtype
    check_table(name, source, array.shape, dtype)
    return Matrix(
        rows=rows,
        shape=stacking.table,
        dtype=dtype,
        labels=labels,
        layout=Layout(
            dtype=np.dtype(array.dtype),
            chunk_rows=stacking.unit_rows(array.chunks),
            chunk_columns=stacking.chunk_columns(array.chunks),
            shard_rows=stacking.unit_rows(array.shards or array.chunks),
            chunk_cells=prod(array.chunks),
            zarr_format=array.metadata.zarr_format,
            copied=stacking.copies,
        ),
        metadata=Metadata(
            name=name,
            sample_dim=stacking.name(samples=True),
            feature_dim=stacking.name(samples=False),
            coords=frame,
            transposed=stacking.transposed,
            attrs=attrs,
            encoded=True,
            beside=variables_beside(datasets[0], stacking) if datasets else xr.Dataset(),
        ),
        provenance=Provenance(source, Inventory(array, fill_missing_chunks), place),
        guessed=not sample_dims and not feature_dims,
    )

"""Open Zarr stores of formats 2 and 3: an array, a group of arrays, or a dataset of xarray."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import Store

from kmufs_stream.errors import (
    Option,
    RequestError,
    Text,
    did_you_mean,
    first_few,
)
from kmufs_stream.sources.coordinates import (
    StoredDataset,
    check_text,
    features_described,
    numbered,
)
from kmufs_stream.sources.dimensions import (
    arrange,
    of_dimensions,
    stack_frame,
    variables_beside,
)
from kmufs_stream.sources.matrix import (
    BARE_DIMS,
    Matrix,
    Metadata,
    Provenance,
    check_table,
    is_numeric,
)
from kmufs_stream.sources.names import feature_labels
from kmufs_stream.sources.nodes import Node, find_node
from kmufs_stream.sources.opening import DIMS, Opening
from kmufs_stream.sources.variables import open_side_by_side
from kmufs_stream.sources.zarr_rows import StoredRows, packing
from kmufs_stream.storage.chunks import Inventory, address, coordinate_of
from kmufs_stream.storage.places import Place, is_zarr, zarr_root
from kmufs_stream.storage.provenance import FACTOR

# CF attributes that name variables which describe others.
DESCRIBING = ("ancillary_variables", "bounds", "coordinates", "grid_mapping")
BOUNDS = ("_bnds", "_bounds")


def open_store(node: Node, opening: Opening) -> Matrix:
    """Open a Zarr group or array as a matrix; only metadata and small coordinates are read.

    Raises RequestError unless it leads to a numeric variable of a readable Zarr store.
    """
    within = ("variable", "group", "features_from_variables", *DIMS)
    opening.refuse_others("not_anndata", f"{node.name}, which is not AnnData,", *within)
    has_names = isinstance(node.node, zarr.Array) and StoredDataset().dims(node.node) is not None
    if has_names and not isinstance(node.place, Store) and is_zarr(node.place.resolve().parent):
        inside = node.place.resolve()  # an array of a dataset, which holds its coordinates
        opening = replace(opening, variable=opening.variable or inside.name)
        node = find_node(inside.parent)
    if isinstance(node.node, zarr.Group):
        dataset = StoredDataset(node.node)
        if opening.features_from_variables:
            return open_side_by_side(node.place, dataset, opening)
        return _matrix(node, dataset, _choose(node, dataset, opening), opening)
    opening.refuse_others("unknown_variable", f"{node.name}, a single array,", "group", *DIMS)
    return _matrix(node, StoredDataset(), node.node, opening)


def open_array(array: zarr.Array[Any], opening: Opening) -> Matrix:
    """Open a Zarr array, without names of features."""
    store, source = array.store, address(array)
    place = Path(source) if isinstance(store, zarr.storage.LocalStore) else store
    return _matrix(Node(place, source, array), StoredDataset(), array, opening)


def tables_in(place: Place) -> dict[str, dict[str, int]]:
    """List the variables that may be the table, with their sizes; the likeliest first."""
    dataset = StoredDataset(zarr.open_group(zarr_root(place), mode="r"))
    found = _candidates(dataset, Opening())
    tables = sorted(found.items(), key=lambda table: _likelihood(table[1]), reverse=True)
    return {
        name: dict(zip(dataset.dims(array) or (), array.shape, strict=True))
        for name, array in tables
    }


def _choose(node: Node, dataset: StoredDataset, opening: Opening) -> zarr.Array[Any]:
    """Return the variable given, or else the only one that may be the table."""
    path, group, arrays, variable = node.name, node.node, dataset.arrays, opening.variable
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
    if variable in arrays:
        return arrays[variable]
    candidates = _candidates(dataset, opening) if variable is None else {}
    if len(candidates) == 1:
        return next(iter(candidates.values()))
    if candidates:
        likeliest = max(candidates, key=lambda name: _likelihood(candidates[name]))
        chosen = Option(variable=likeliest)
        if candidates[likeliest].ndim > 2 and not opening.has_dims:
            dims = dataset.dims(candidates[likeliest]) or numbered(candidates[likeliest])
            chosen = Option(variable=likeliest, sample_dims=dims[0])
        raise RequestError(
            "ambiguous_variable",
            f"{path} holds {len(candidates)} tables: {_listing(candidates)}.",
            Text("Choose one, for instance {}.", chosen),
        )
    below = {n: a for n, a in group.members(max_depth=None) if isinstance(a, zarr.Array)}
    if variable is not None:
        raise RequestError(
            "unknown_variable" if arrays else "no_table",
            f"{where} has no variable {variable!r}.",
            did_you_mean(variable, arrays)
            + f"Variables there: {_listing(below)}. "
            + _group_of([n for n in below if n.endswith(f"/{variable}")], group),
        )
    deeper = [name for name, array in below.items() if "/" in name and array.ndim >= 2]
    if len(arrays) == 1 and not deeper:
        return next(iter(arrays.values()))  # to be refused with the reason
    if deeper:
        tables = _listing({name: below[name] for name in deeper})
        raise RequestError(
            "no_table",
            f"{where} holds no table at its top; deeper there are {tables}.",
            _group_of(deeper, group),
        )
    raise RequestError(
        "no_table",
        f"{where} holds no numeric variable of two or more dimensions; it holds {_listing(below)}.",
        Text(
            "Choose one with {variable}, or say {features_from_variables} where every variable is "
            "a feature.",
            features_from_variables=True,
        ),
    )


def _group_of(names: list[str], group: zarr.Group) -> str:
    """Advise to open the group in which the first of some variables lies."""
    if not names:
        return ""
    inside = f"{group.path}/{names[0]}".rpartition("/")[0].lstrip("/")
    return Text("Choose a group, for instance {group}.", group=inside)


def _likelihood(table: zarr.Array[Any]) -> tuple[bool, int]:
    """Rank tables: those of real numbers first, then the largest."""
    return table.dtype.kind == "f", table.size


def _candidates(dataset: StoredDataset, opening: Opening) -> dict[str, zarr.Array[Any]]:
    """Return the numeric variables that may be the table; those that describe others only last."""
    arrays = dataset.arrays
    numeric = {n: a for n, a in arrays.items() if a.ndim >= 2 and is_numeric(a.dtype)}
    names = {n: dataset.dims(a) or BARE_DIMS for n, a in numeric.items()}
    # If none has the dimensions given, opening the only variable reports which it has.
    numeric = {n: numeric[n] for n in of_dimensions(names, opening)}
    described = {
        name
        for array in arrays.values()
        for key in DESCRIBING
        for name in str(array.attrs.get(key, "")).split()
    }
    described.update(map(str, dataset.own.coords))
    # Many stores have lost the attribute that names time_bnds.
    described |= {n for n in arrays if n.endswith(BOUNDS) and n.rpartition("_")[0] in arrays}
    main = {n: a for n, a in numeric.items() if n not in described} or numeric
    own = {n: set(dataset.dims(a) or ()) for n, a in main.items()}
    # A mask or a height of the places where another variable was measured is not the table.
    alone = {n for n, d in own.items() if not d or not any(d < other for other in own.values())}
    flat = {n: a for n, a in main.items() if a.ndim == 2 and n in alone}
    return main if opening.has_dims else flat or main


def _listing(arrays: dict[str, zarr.Array[Any]]) -> str:
    return first_few(f"{n} {a.shape} {a.dtype}" for n, a in sorted(arrays.items())) or "nothing"


def _matrix(node: Node, dataset: StoredDataset, array: zarr.Array[Any], opening: Opening) -> Matrix:
    name = array.basename or "data"
    what = f"{name!r} in {node.name}"
    check_table(what, array.shape, np.dtype(array.dtype))
    if 0 in array.chunks and 0 not in array.shape:
        raise RequestError(
            "bad_metadata",
            f"The Zarr metadata of {what} say chunks of {array.chunks}.",
            "The metadata is damaged; write the store again.",
        )
    dims = dataset.dims(array)
    stacking = arrange(
        dims or (BARE_DIMS if array.ndim == 2 else numbered(array)),
        array.shape,
        opening.sample_dims,
        opening.feature_dims,
        what,
    )
    feature_dim = stacking.name(samples=False)
    frame = dataset.coordinates(name, stacking.sizes)
    with coordinate_of(what):
        frame = features_described(stack_frame(frame, stacking), feature_dim)
        labels = feature_labels(frame, feature_dim)
        check_text(labels, feature_dim)
    attrs = dataset.attrs(array)
    rows = StoredRows(opening.retrying(array), stacking, packing(array, attrs))
    inventory = Inventory(array, opening.fill_missing_chunks)
    dtype = rows.read(0, 0).dtype
    check_table(what, array.shape, dtype)
    return Matrix(
        rows=rows,
        shape=stacking.table,
        dtype=dtype,
        labels=labels,
        layout=stacking.layout(
            np.dtype(array.dtype),
            array.chunks,
            array.shards,
            zarr_format=array.metadata.zarr_format,
        ),
        metadata=Metadata(
            name=name,
            sample_dim=stacking.name(samples=True),
            feature_dim=feature_dim,
            coords=frame,
            transposed=stacking.transposed,
            attrs=attrs,
            encoded=True,
            beside=variables_beside(dataset.own, stacking),
        ),
        provenance=Provenance(node.name, inventory, node.place),
        guessed=not opening.has_dims,
    )

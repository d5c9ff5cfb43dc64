"""Open a dataset whose variables, along the same dimensions, are the features."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.errors import RequestError, Text, listed
from kmufs_stream.sources.coordinates import StoredDataset, numbered
from kmufs_stream.sources.dimensions import Stacking, stack_frame, variables_beside
from kmufs_stream.sources.layout import Layout
from kmufs_stream.sources.matrix import Matrix, Metadata, Provenance, Rows, is_numeric
from kmufs_stream.sources.opening import Opening
from kmufs_stream.sources.zarr_rows import StoredRows, packing
from kmufs_stream.storage.chunks import Inventory, describe
from kmufs_stream.storage.places import Place, name_of

VARIABLE = "variable"  # dimension of the features, as in xarray's Dataset.to_dataarray()
CARRIED = ("long_name", "standard_name", "units")  # attributes that become coordinates


@dataclass(frozen=True)
class ColumnRows:
    """Rows of which each feature has a reader of its own."""

    features: tuple[Rows, ...]
    dtype: np.dtype[Any]

    def read(self, start: int, stop: int) -> NDArray[Any]:
        return self.take(start, stop, np.arange(len(self.features)))

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        # Decoded, as features may be packed differently.
        values = np.empty((stop - start, len(columns)), self.dtype)
        for j, column in enumerate(columns):
            values[:, j] = self.features[column].read(start, stop)[:, 0]
        return values


def open_side_by_side(place: Place, dataset: StoredDataset, opening: Opening) -> Matrix:
    """Open the numeric variables along the same dimensions as features.

    Raises RequestError if there are none, or if the choice of dimensions is ambiguous.
    """
    source = name_of(place)
    numeric = {
        name: array
        for name, array in dataset.arrays.items()
        if name not in dataset.own.coords and array.ndim and is_numeric(np.dtype(array.dtype))
    }
    shapes = {n: (dataset.dims(a) or numbered(a), a.shape) for n, a in numeric.items()}
    names, along, shape = common_dimensions(source, shapes, opening)
    chosen = {name: numeric[name] for name in names}
    order = opening.sample_dims or along
    stacking = Stacking(along, shape, tuple(map(along.index, order)), ())
    attrs = {name: dataset.attrs(array) for name, array in chosen.items()}
    readers = tuple(
        StoredRows(opening.retrying(array), stacking, packing(array, attrs[name]))
        for name, array in chosen.items()
    )
    dtypes = tuple(reader.read(0, 0).dtype for reader in readers)
    dtype = np.result_type(*dtypes)
    frame = stack_frame(dataset.coordinates(None, stacking.sizes), stacking)
    labels = np.array(names, dtype=object)
    frame = frame.assign_coords({VARIABLE: (VARIABLE, labels)})
    for key in CARRIED:
        if key not in frame.variables and any(key in each for each in attrs.values()):
            texts = np.array([str(each.get(key, "")) for each in attrs.values()], dtype=object)
            frame = frame.assign_coords({key: (VARIABLE, texts)})
    inventories = {n: Inventory(a, opening.fill_missing_chunks) for n, a in chosen.items()}
    return Matrix(
        rows=ColumnRows(readers, dtype),
        shape=(stacking.table[0], len(chosen)),
        dtype=dtype,
        labels=labels,
        layout=Layout(
            dtype=dtype,
            chunk_rows=max(stacking.unit_rows(a.chunks) for a in chosen.values()),
            chunk_columns=1,
            shard_rows=max(stacking.unit_rows(a.shards or a.chunks) for a in chosen.values()),
            zarr_format=chosen[names[0]].metadata.zarr_format,
            copied=True,
        ),
        metadata=Metadata(
            name="data",
            sample_dim=stacking.name(samples=True),
            feature_dim=VARIABLE,
            coords=frame,
            encoded=True,
            beside=variables_beside(dataset.own, stacking),
        ),
        provenance=Provenance(source, partial(_inventory, inventories), place),
        dtypes=dtypes,
    )


def common_dimensions(
    source: str, shapes: dict[str, tuple[tuple[str, ...], tuple[int, ...]]], opening: Opening
) -> tuple[list[str], tuple[str, ...], tuple[int, ...]]:
    """Choose the variables along the dimensions given, or along those that most share.

    Returns their names, and the names and lengths of their dimensions.
    """
    if opening.sample_dims:
        asked = {*opening.sample_dims}
        shapes = {n: (dims, shape) for n, (dims, shape) in shapes.items() if {*dims} == asked}
    ranking = Counter(shapes.values()).most_common(2)
    if not ranking or ranking[0][1] < 2 or len({count for _, count in ranking}) < len(ranking):
        said = " and ".join(f"{count} along {listed(dims)}" for (dims, _), count in ranking)
        raise RequestError(
            "no_table" if not ranking or ranking[0][1] < 2 else "which_dimensions",
            f"{source} holds {said or 'no'} numeric variables: which are the features?",
            Text(
                "{features_from_variables} needs several along the same dimensions; "
                "{sample_dims} says which, if as many are along others."
            ),
        )
    common = ranking[0][0]
    return [name for name, own in shapes.items() if own == common], *common


def _inventory(parts: dict[str, Inventory]) -> list[str]:
    listed = {name: part() for name, part in parts.items()}
    metadata = describe({name: found[0] for name, found in listed.items()})
    return [metadata, *(f"{n} {chunk}" for n, found in listed.items() for chunk in found[1:])]

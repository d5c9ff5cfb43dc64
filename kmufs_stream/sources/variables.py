"""A dataset whose variables are the features: arrays of the same dimensions, side by side."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
import zarr
from numpy.typing import NDArray

from kmufs_stream.errors import RequestError, Text, listed
from kmufs_stream.sources.coordinates import attributes, coordinates, dimension_names
from kmufs_stream.sources.dimensions import Names, Stacking, named, stack_frame, variables_beside
from kmufs_stream.sources.layout import Layout
from kmufs_stream.sources.matrix import Matrix, Metadata, Provenance, Rows, is_numeric
from kmufs_stream.sources.zarr_rows import StoredRows, packing
from kmufs_stream.storage.chunks import Inventory, describe
from kmufs_stream.storage.places import Place, name_of
from kmufs_stream.storage.retrying import with_retries

VARIABLE = "variable"  # the dimension of the features, as of xarray's Dataset.to_dataarray()
CARRIED = ("long_name", "standard_name", "units")  # attributes that become coordinates


@dataclass(frozen=True)
class Columns:
    """Rows of which each feature is a reader of its own."""

    features: tuple[Rows, ...]
    dtype: np.dtype[Any]

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """See Rows."""
        return self.take(start, stop, np.arange(len(self.features)))

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        """See Rows; the values are decoded, as those of features may be packed differently."""
        values = np.empty((stop - start, len(columns)), self.dtype)
        for j, column in enumerate(columns):
            values[:, j] = self.features[column].read(start, stop)[:, 0]
        return values


def side_by_side(
    place: Place,
    group: zarr.Group,
    datasets: list[xr.Dataset],
    *,
    sample_dims: Names,
    fill_missing_chunks: bool,
    retries: int,
) -> Matrix:
    """The numeric variables along the same dimensions as the features of a matrix.

    Raises RequestError where there are none, or where it is open along which dimensions.
    """
    source, arrays = name_of(place), dict(sorted(group.arrays()))
    dims = {name: dimension_names(array, datasets) for name, array in arrays.items()}
    known = {*datasets[0].coords} if datasets else set()
    numeric = {
        n: a
        for n, a in arrays.items()
        if n not in known and a.ndim and is_numeric(np.dtype(a.dtype))
    }
    shapes = {
        n: (dims[n] or tuple(f"dim_{i}" for i in range(a.ndim)), a.shape)
        for n, a in numeric.items()
    }
    if sample_dims is not None:
        shapes = {n: s for n, s in shapes.items() if set(s[0]) == set(named(sample_dims))}
    along, shape = common_dimensions(source, shapes)
    chosen = {n: numeric[n] for n, s in shapes.items() if s == (along, shape)}
    order = named(sample_dims) or along
    stacking = Stacking(along, shape, tuple(map(along.index, order)), ())
    readers = tuple(
        StoredRows(
            with_retries(a, retries=retries, missing_is_fill=fill_missing_chunks),
            stacking,
            packing(a, attributes(a, datasets)),
        )
        for a in chosen.values()
    )
    dtypes = tuple(reader.read(0, 0).dtype for reader in readers)
    dtype = np.result_type(*dtypes)
    frame = coordinates(datasets, None, dict(zip(along, shape, strict=True)))
    names = np.array(list(chosen), dtype=object)
    told = {n: attributes(a, datasets) for n, a in chosen.items()}
    frame = stack_frame(frame, stacking).assign_coords({VARIABLE: (VARIABLE, names)})
    for key in CARRIED:
        if key not in frame.variables and any(key in attrs for attrs in told.values()):
            texts = np.array([str(attrs.get(key, "")) for attrs in told.values()], dtype=object)
            frame = frame.assign_coords({key: (VARIABLE, texts)})
    first = next(iter(chosen.values()))
    return Matrix(
        rows=Columns(readers, dtype),
        shape=(stacking.table[0], len(chosen)),
        dtype=dtype,
        labels=names,
        layout=Layout(
            dtype=dtype,
            chunk_rows=max(stacking.unit_rows(a.chunks) for a in chosen.values()),
            chunk_columns=1,
            shard_rows=max(stacking.unit_rows(a.shards or a.chunks) for a in chosen.values()),
            zarr_format=first.metadata.zarr_format,
            copied=True,
        ),
        metadata=Metadata(
            name="data",
            sample_dim=stacking.name(samples=True),
            feature_dim=VARIABLE,
            coords=frame,
            encoded=True,
            beside=variables_beside(datasets[0], stacking) if datasets else xr.Dataset(),
        ),
        provenance=Provenance(
            source,
            _Inventories({n: Inventory(a, fill_missing_chunks) for n, a in chosen.items()}),
            place,
        ),
        dtypes=dtypes,
    )


def common_dimensions(
    source: str, shapes: dict[str, tuple[tuple[str, ...], tuple[int, ...]]]
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The dimensions, and their lengths, that most variables share."""
    ranking = Counter(shapes.values()).most_common(2)
    if not ranking or ranking[0][1] < 2:
        raise RequestError(
            "no_table",
            f"{source} holds no two numeric variables along the same dimensions.",
            Text(
                "{features_from_variables} needs several; leave it out for a variable of "
                "two dimensions or more."
            ),
        )
    if len(ranking) > 1 and ranking[0][1] == ranking[1][1]:
        said = " and ".join(f"{count} along {listed(dims)}" for (dims, _), count in ranking)
        raise RequestError(
            "which_dimensions",
            f"{source} holds {said}: which are the features?",
            Text(
                "Say along which dimensions, for instance {sample_dims}.",
                sample_dims=[*ranking[0][0][0]],
            ),
        )
    return ranking[0][0]


@dataclass(frozen=True)
class _Inventories:
    """The inventories of several arrays as one."""

    parts: dict[str, Inventory]

    def __call__(self) -> list[str]:
        listed = {name: part() for name, part in self.parts.items()}
        metadata = describe({name: found[0] for name, found in listed.items()})
        return [metadata, *(f"{n} {chunk}" for n, found in listed.items() for chunk in found[1:])]

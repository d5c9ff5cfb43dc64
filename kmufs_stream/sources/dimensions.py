"""Arrange the dimensions of an array as samples and features, stacking several into one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kmufs_stream.errors import Option, RequestError, Text, did_you_mean
from kmufs_stream.sources.layout import Layout
from kmufs_stream.sources.names import decoded_values, joined
from kmufs_stream.sources.opening import Opening

COORDINATE_ROWS = 2**18  # of a coordinate along the samples, read together


@dataclass(frozen=True)
class Stacking:
    """Maps the axes of an array to rows and columns, both counted in C order.

    Attributes
    ----------
    dims, shape : names and lengths of the axes.
    samples, features : numbers of the axes, in stacking order; together all axes.
    """

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    samples: tuple[int, ...]
    features: tuple[int, ...]

    @property
    def table(self) -> tuple[int, int]:
        """(n, p)"""
        return self._size(self.samples), self._size(self.features)

    @property
    def sizes(self) -> dict[str, int]:
        return dict(zip(self.dims, self.shape, strict=True))

    @property
    def transposed(self) -> bool:
        """Whether the array is features x samples."""
        return self.samples == (1,) and self.features == (0,)

    @property
    def copies(self) -> bool:
        """Whether reading rows copies them."""
        return len(self.dims) > 2

    def names(self, samples: bool) -> tuple[str, ...]:
        return tuple(self.dims[axis] for axis in (self.samples if samples else self.features))

    def name(self, samples: bool) -> str:
        """Name of the dimension; if several are stacked, a name that none of them has."""
        names = self.names(samples)
        if len(names) == 1:
            return names[0]
        name = "sample" if samples else "feature"
        while name in self.dims:
            name += "_"
        return name

    def unit_rows(self, chunks: Sequence[int]) -> int:
        """Fewest rows such that blocks of multiples of them read each chunk once."""
        for i, axis in enumerate(self.samples):
            inner = self._size(self.samples[i + 1 :])
            extent, chunk = self.shape[axis], chunks[axis]
            if chunk > 1 or i == len(self.samples) - 1:
                whole = i == 0 or extent % chunk == 0
                return max(chunk if whole else extent, 1) * max(inner, 1)
        raise ValueError("there are no axes along the samples")

    def layout(
        self,
        dtype: np.dtype[Any],
        chunks: tuple[int, ...],
        shards: tuple[int, ...] | None = None,
        **others: Any,
    ) -> Layout:
        """Layout of the table, given the chunks and shards of the array."""
        return Layout(
            dtype=dtype,
            chunk_rows=self.unit_rows(chunks),
            chunk_columns=prod(chunks[axis] for axis in self.features),
            shard_rows=self.unit_rows(shards or chunks),
            chunk_cells=prod(chunks),
            copied=self.copies,
            **others,
        )

    def gather(
        self,
        fetch: Callable[[tuple[Any, ...]], NDArray[Any]],
        start: int,
        stop: int,
        columns: NDArray[np.int64] | None = None,
    ) -> NDArray[Any]:
        """Read rows ``start:stop``, (rows, p), or of ``columns`` only.

        Parameters
        ----------
        fetch : reads at an orthogonal index (slices and sorted integers, one per axis).
        """
        index: list[Any] = [slice(None)] * len(self.dims)
        pick = None if columns is None else self._cover(columns, index)
        pieces = []
        for box in _boxes(start, stop, [self.shape[axis] for axis in self.samples]):
            for axis, part in zip(self.samples, box, strict=True):
                index[axis] = part
            values = np.transpose(fetch(tuple(index)), (*self.samples, *self.features))
            rows = prod(values.shape[: len(self.samples)])
            width = prod(values.shape[len(self.samples) :])
            flat = values.reshape(rows, width)
            pieces.append(flat if pick is None else flat[:, pick])
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def span(self, start: int, stop: int) -> tuple[int, slice]:
        """First sample axis, and the part of it that holds rows ``start:stop``."""
        inner = max(self._size(self.samples[1:]), 1)
        return self.samples[0], slice(start // inner, -(-stop // inner))

    def _size(self, axes: Sequence[int]) -> int:
        return prod(self.shape[axis] for axis in axes)

    def _cover(self, columns: NDArray[np.int64], index: list[Any]) -> Any:
        """Set an index to the smallest grid of features around the columns.

        Returns the places of the columns in the grid, or None if they are the whole grid in order.
        """
        extents = [self.shape[axis] for axis in self.features]
        grid, places = [], []
        for axis, where in zip(self.features, np.unravel_index(columns, extents), strict=True):
            values, inverse = np.unique(where, return_inverse=True)
            index[axis] = values
            grid.append(len(values))
            places.append(inverse)
        pick = np.ravel_multi_index(places, grid)
        whole = len(pick) == prod(grid) and (pick == np.arange(len(pick))).all()
        return None if whole else pick


def _boxes(start: int, stop: int, extents: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Divide rows ``start:stop`` into runs of whole lines, planes, ..., in order."""
    whole = tuple(slice(0, extent) for extent in extents[1:])
    if len(extents) == 1 or start == stop:
        yield (slice(start, stop), *whole)
        return
    inner = prod(extents[1:])
    while start < stop:
        first, offset = divmod(start, inner)
        end = (stop // inner) * inner
        if offset or end <= start:  # part of a line
            end = min(stop, (first + 1) * inner)
            for box in _boxes(offset, end - first * inner, extents[1:]):
                yield (slice(first, first + 1), *box)
        else:
            yield (slice(first, end // inner), *whole)
        start = end


def arrange(
    dims: tuple[str, ...],
    shape: tuple[int, ...],
    samples: tuple[str, ...],
    features: tuple[str, ...],
    what: str,
) -> Stacking:
    """Assign dimensions to samples and features; of two, the first holds the samples by default.

    Parameters
    ----------
    samples, features : names of their dimensions, if given.
    what : the array, for error messages.

    Raises RequestError for unknown names, and unless each dimension is assigned once.
    """
    sizes = ", ".join(f"{d} {extent}" for d, extent in zip(dims, shape, strict=True))
    for parameter, wanted in (("sample_dims", samples), ("feature_dims", features)):
        for dim in wanted:
            if dim not in dims:
                raise RequestError(
                    "unknown_dimension",
                    Text("{} has no dimension {!r} ({}).", what, dim, Option(parameter)),
                    f"{did_you_mean(dim, dims)}Its dimensions are {', '.join(map(repr, dims))}.",
                )
    if not samples and not features and len(dims) == 2:
        samples = dims[:1]
    if bool(samples) != bool(features):
        rest = tuple(dim for dim in dims if dim not in samples + features)
        samples, features = samples or rest, features or rest
    if not samples or not features or sorted(samples + features) != sorted(dims):
        raise RequestError(
            "which_dimensions",
            f"{what} is {len(dims)}-d ({sizes}): which dimensions hold the samples?",
            Text(
                "Name each once, for instance {sample_dims} (the features are then {}), or "
                "{feature_dims}; naming those of one is enough.",
                " x ".join(dims[1:]),
                sample_dims=dims[0],
                feature_dims=dims[0],
            ),
        )
    return Stacking(dims, shape, tuple(map(dims.index, samples)), tuple(map(dims.index, features)))


def of_dimensions(dims: Mapping[str, Sequence[str]], opening: Opening) -> list[str]:
    """Return the names of the arrays that have the dimensions given, else of all arrays.

    If those of both samples and features are given, arrays without further dimensions are
    preferred, otherwise arrays with some.
    """
    asked = {*opening.sample_dims, *opening.feature_dims}
    having = [name for name, own in dims.items() if asked.issubset(own)]
    both = bool(opening.sample_dims and opening.feature_dims)
    fitting = [name for name in having if (len(asked) == len(dims[name])) == both]
    return fitting or having or list(dims)


def stack_frame(frame: xr.Dataset, stacking: Stacking) -> xr.Dataset:
    """Stack coordinates as the table is; dimensions without coordinates are numbered.

    Stacked features get a coordinate of names, made from those of their dimensions. Coordinates
    along the samples stay lazy.
    """
    for samples in (False, True):
        names, stacked = stacking.names(samples), stacking.name(samples)
        if len(names) < 2:
            continue
        if stacked in frame.variables:
            free = f"source_{stacked}"
            while free in frame.variables or free in stacking.dims:
                free = f"source_{free}"
            frame = frame.rename({stacked: free})
        frame = _numbered(frame, stacking, [d for d in names if d not in frame.variables])
        frame = _stack_samples(frame, stacking) if samples else _stack_features(frame, stacking)
    return frame


def variables_beside(dataset: xr.Dataset, stacking: Stacking) -> xr.Dataset:
    """Return variables along the samples as lazy coordinates, stacked as the table is."""
    names = set(stacking.names(samples=True))
    lengths = {d: stacking.sizes[d] for d in names}
    along = {
        str(name): v.variable
        for name, v in dataset.data_vars.items()
        if v.sizes and v.sizes.items() <= lengths.items()
    }
    found = xr.Dataset(coords=xr.Coordinates(along, indexes={})).drop_encoding()
    if len(names) > 1 and along:
        # Dimensions without variables are stacked too.
        bare = names - along.keys()
        found = _stack_samples(_numbered(found, stacking, bare), stacking).drop_vars(bare)
    return found


def _numbered(frame: xr.Dataset, stacking: Stacking, dims: Iterable[str]) -> xr.Dataset:
    numbers = {d: xr.Variable(d, np.arange(stacking.sizes[d])) for d in dims}
    return frame.assign_coords(xr.Coordinates(numbers, indexes={}))


def _stack_samples(frame: xr.Dataset, stacking: Stacking) -> xr.Dataset:
    names, name = stacking.names(samples=True), stacking.name(samples=True)
    lines = max(COORDINATE_ROWS // max(prod(stacking.sizes[d] for d in names[1:]), 1), 1)
    pieces = {d: lines if d == names[0] else -1 for d in names}
    along = [c for c in frame.coords if set(names) & set(frame[c].dims)]
    lazy = frame[along].chunk({d: size for d, size in pieces.items() if d in frame.dims})
    frame = frame.assign_coords(xr.Coordinates(dict(lazy.variables), indexes={}))
    return frame.stack({name: names}, create_index=False)


def _stack_features(frame: xr.Dataset, stacking: Stacking) -> xr.Dataset:
    names, name = stacking.names(samples=False), stacking.name(samples=False)
    frame = frame.stack({name: names}, create_index=False)
    levels = [decoded_values(frame[d].variable) for d in names]
    labels = joined(names, zip(*levels, strict=True), stacking.table[1])
    return frame.assign_coords(xr.Coordinates({name: xr.Variable(name, labels)}, indexes={}))

"""Which dimensions of an array hold the samples, which the features; several become one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kmufs_stream.errors import Option, RequestError, Text, did_you_mean
from kmufs_stream.sources.names import decoded_values, joined

COORDINATE_ROWS = 2**18  # of a coordinate along the samples, in one piece
Names = str | Sequence[str] | None


@dataclass(frozen=True)
class Stacking:
    """How the axes of an array become rows and columns, both counted in C order.

    Attributes
    ----------
    dims, shape : of the array.
    samples, features : its axes, in the order in which they are stacked; every axis is in one.
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
    def transposed(self) -> bool:
        """Whether it is a 2-d array of features x samples."""
        return self.samples == (1,) and self.features == (0,)

    @property
    def copies(self) -> bool:
        """Whether rows are put together, not merely viewed."""
        return len(self.dims) > 2

    def names(self, samples: bool) -> tuple[str, ...]:
        """Dimension names along the samples, or the features."""
        return tuple(self.dims[axis] for axis in (self.samples if samples else self.features))

    def name(self, samples: bool) -> str:
        """The one dimension's name, or one that no dimension has."""
        names = self.names(samples)
        if len(names) == 1:
            return names[0]
        name = "sample" if samples else "feature"
        while name in self.dims:
            name += "_"
        return name

    def unit_rows(self, chunks: Sequence[int]) -> int:
        """The fewest rows of which whole multiples meet every chunk in one run only."""
        for i, axis in enumerate(self.samples):
            inner = self._size(self.samples[i + 1 :])
            extent, chunk = self.shape[axis], chunks[axis]
            if chunk > 1 or i == len(self.samples) - 1:
                whole = i == 0 or extent % chunk == 0
                return max(chunk if whole else extent, 1) * max(inner, 1)
        raise ValueError("there are no axes along the samples")

    def chunk_columns(self, chunks: Sequence[int]) -> int:
        """Columns that share a chunk."""
        return prod(chunks[axis] for axis in self.features)

    def gather(
        self,
        fetch: Callable[[tuple[Any, ...]], NDArray[Any]],
        start: int,
        stop: int,
        columns: NDArray[np.int64] | None = None,
    ) -> NDArray[Any]:
        """Rows ``start:stop``, (rows, p), or of ``columns`` only.

        Parameters
        ----------
        fetch : values at an orthogonal index (slices and sorted integers, one per axis).
        """
        index: list[Any] = [slice(None)] * len(self.dims)
        pick = None
        if columns is not None:
            pick = self._cover(columns, index)
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
        """The first sample axis, and where on it rows ``start:stop`` lie."""
        inner = max(self._size(self.samples[1:]), 1)
        return self.samples[0], slice(start // inner, -(-stop // inner))

    def _size(self, axes: Sequence[int]) -> int:
        return prod(self.shape[axis] for axis in axes)

    def _cover(self, columns: NDArray[np.int64], index: list[Any]) -> Any:
        """Put the smallest grid of features around the columns into an index.

        Returns where in the grid the columns are, None where they are all of it in order.
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
    """The runs of whole lines, planes, ... that rows ``start:stop`` consist of, in order."""
    if len(extents) == 1 or start == stop:
        yield (slice(start, stop), *(slice(0, extent) for extent in extents[1:]))
        return
    inner = prod(extents[1:])
    first, last = start // inner, (stop - 1) // inner
    if start > first * inner or (first == last and stop < (last + 1) * inner):
        end = min(stop, (first + 1) * inner)
        for box in _boxes(start - first * inner, end - first * inner, extents[1:]):
            yield (slice(first, first + 1), *box)
        start = end
        first += 1
    whole = stop // inner
    if first < whole:
        yield (slice(first, whole), *(slice(0, extent) for extent in extents[1:]))
        start = whole * inner
    if start < stop:
        for box in _boxes(0, stop - start, extents[1:]):
            yield (slice(last, last + 1), *box)


def arrange(
    dims: Sequence[str],
    shape: Sequence[int],
    sample_dims: Names,
    feature_dims: Names,
    what: str,
) -> Stacking:
    """Which dimensions hold what: of two the first holds the samples, unless either is named.

    Parameters
    ----------
    what : the array, as people are told of it.

    Raises RequestError for unknown names, and where more dimensions are not told apart.
    """
    dims, shape = tuple(dims), tuple(shape)
    samples, features = named(sample_dims), named(feature_dims)
    sizes = ", ".join(f"{d} {extent}" for d, extent in zip(dims, shape, strict=True))
    for parameter, wanted in (("sample_dims", samples), ("feature_dims", features)):
        for dim in wanted:
            if dim not in dims:
                raise RequestError(
                    "unknown_dimension",
                    Text("{} has no dimension {!r} ({}).", what, dim, Option(parameter)),
                    f"{did_you_mean(dim, dims)}Its dimensions are {', '.join(map(repr, dims))}.",
                )
    both = [dim for dim in dims if (samples + features).count(dim) > 1]
    if both:
        raise RequestError(
            "same_dimension",
            Text("{sample_dims} and {feature_dims} name {!r} more than once.", both[0]),
            f"The dimensions are {', '.join(map(repr, dims))}; naming those of one is enough.",
        )
    rest = tuple(dim for dim in dims if dim not in samples + features)
    if not samples and not features:
        if len(dims) > 2:
            raise RequestError(
                "which_dimensions",
                f"{what} is {len(dims)}-d ({sizes}): which dimensions hold the samples?",
                Text(
                    "Say it, for instance {sample_dims} (the features are then {}), or "
                    "{feature_dims}.",
                    " x ".join(dims[1:]),
                    sample_dims=dims[0],
                    feature_dims=dims[0],
                ),
            )
        samples, rest = dims[:1], dims[1:]
    if not samples or not features:
        samples, features = samples or rest, features or rest
        rest = ()
    if rest or not samples or not features:
        lost = f"leave out {', '.join(map(repr, rest))}" if rest else "leave none for the others"
        raise RequestError(
            "which_dimensions",
            Text(
                "{} has the dimensions {}; {sample_dims} and {feature_dims} {}.", what, sizes, lost
            ),
            "Name those of the samples, or those of the features; the rest are the others.",
        )
    return Stacking(dims, shape, tuple(map(dims.index, samples)), tuple(map(dims.index, features)))


def named(names: Names) -> tuple[str, ...]:
    """One name, several, or none, as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names or ())


def of_dimensions(
    dims: Mapping[str, Sequence[str]], sample_dims: Names, feature_dims: Names
) -> list[str]:
    """The arrays that have the dimensions named: only these where both sides are named, else more.

    Where none is like that, those that have them at all; where none has them, all.
    """
    asked = {*named(sample_dims), *named(feature_dims)}
    having = [name for name, own in dims.items() if asked.issubset(own)]
    both = bool(sample_dims and feature_dims)
    fitting = [name for name in having if (len(asked) == len(dims[name])) == both]
    return fitting or having or list(dims)


def stack_frame(frame: xr.Dataset, stacking: Stacking) -> xr.Dataset:
    """Coordinates with the stacked dimensions as one; a dimension without any gets its numbers.

    Stacked features have a coordinate more, which names them by those of their dimensions, and
    which goes wherever they go. Along samples coordinates stay lazy.
    """
    sizes = dict(zip(stacking.dims, stacking.shape, strict=True))
    for samples in (False, True):
        names, stacked = stacking.names(samples), stacking.name(samples)
        if len(names) < 2:
            continue
        if stacked in frame.variables:
            free = f"source_{stacked}"
            while free in frame.variables or free in stacking.dims:
                free = f"source_{free}"
            frame = frame.rename({stacked: free})
        numbers = {d: (d, np.arange(sizes[d])) for d in names if d not in frame.variables}
        frame = frame.assign_coords(xr.Coordinates(numbers, indexes={}))
        frame = _stack_samples(frame, stacking) if samples else _stack_features(frame, stacking)
    return frame


def variables_beside(dataset: xr.Dataset, stacking: Stacking) -> xr.Dataset:
    """Variables beside the data, as coordinates: those along the samples, stacked as these are.

    They stay lazy.
    """
    names = set(stacking.names(samples=True))
    sizes = dict(zip(stacking.dims, stacking.shape, strict=True))
    along = {
        str(name): v.variable
        for name, v in dataset.data_vars.items()
        if v.dims and names.issuperset(v.dims) and all(sizes[str(d)] == v.sizes[d] for d in v.dims)
    }
    found = xr.Dataset(coords=xr.Coordinates(along, indexes={})).drop_encoding()
    if len(names) > 1 and along:
        # A dimension along which no variable lies is stacked all the same.
        lengths = {d: xr.Variable(d, np.arange(sizes[d])) for d in names if d not in along}
        found = _stack_samples(found.assign_coords(xr.Coordinates(lengths, indexes={})), stacking)
        found = found.drop_vars(list(lengths))
    return found


def _stack_samples(frame: xr.Dataset, stacking: Stacking) -> xr.Dataset:
    names, name = stacking.names(samples=True), stacking.name(samples=True)
    sizes = dict(zip(stacking.dims, stacking.shape, strict=True))
    lines = max(COORDINATE_ROWS // max(prod(sizes[d] for d in names[1:]), 1), 1)
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

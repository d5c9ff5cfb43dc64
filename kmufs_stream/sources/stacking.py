"""Which dimensions of an array hold the samples, which the features; several become one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kmufs_stream.errors import RequestError, did_you_mean
from kmufs_stream.sources.matrix import decoded_values, feature_labels, joined

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
    for option, wanted in (("--sample-dims", samples), ("--feature-dims", features)):
        for dim in wanted:
            if dim not in dims:
                raise RequestError(
                    "unknown_dimension",
                    f"{what} has no dimension {dim!r} ({option}).",
                    f"{did_you_mean(dim, dims)}Its dimensions are {', '.join(map(repr, dims))}.",
                )
    both = [dim for dim in dims if (samples + features).count(dim) > 1]
    if both:
        raise RequestError(
            "same_dimension",
            f"--sample-dims and --feature-dims name {both[0]!r} more than once.",
            f"The dimensions are {', '.join(map(repr, dims))}; naming those of one is enough.",
        )
    rest = tuple(dim for dim in dims if dim not in samples + features)
    if not samples and not features:
        if len(dims) > 2:
            raise RequestError(
                "which_dimensions",
                f"{what} is {len(dims)}-d ({sizes}): which dimensions hold the samples?",
                f"Say it, for instance --sample-dims {dims[0]} (the features are then "
                f"{' x '.join(dims[1:])}), or --feature-dims {dims[0]}.",
            )
        samples, rest = dims[:1], dims[1:]
    if not samples or not features:
        samples, features = samples or rest, features or rest
        rest = ()
    if rest or not samples or not features:
        lost = f"leave out {', '.join(map(repr, rest))}" if rest else "leave none for the others"
        raise RequestError(
            "which_dimensions",
            f"{what} has the dimensions {sizes}; --sample-dims and --feature-dims {lost}.",
            "Name those of the samples, or those of the features; the rest are the others.",
        )
    return Stacking(dims, shape, tuple(map(dims.index, samples)), tuple(map(dims.index, features)))


def named(names: Names) -> tuple[str, ...]:
    """One name, several, or none, as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names or ())


def stack_frame(frame: xr.Dataset, stacking: Stacking) -> xr.Dataset:
    """Coordinates with the stacked dimensions as one; a dimension without any gets its numbers.

    Along samples they stay lazy.
    """
    sizes = dict(zip(stacking.dims, stacking.shape, strict=True))
    for samples in (False, True):
        names = stacking.names(samples)
        if len(names) == 1:
            continue
        numbers = {d: (d, np.arange(sizes[d])) for d in names if d not in frame.variables}
        frame = frame.assign_coords(xr.Coordinates(numbers, indexes={}))
        if samples:
            lines = max(COORDINATE_ROWS // max(prod(sizes[d] for d in names[1:]), 1), 1)
            pieces = {d: lines if d == names[0] else -1 for d in names}
            along = [c for c in frame.coords if set(names) & set(frame[c].dims)]
            lazy = frame[along].chunk({d: size for d, size in pieces.items() if d in frame.dims})
            frame = frame.assign_coords(xr.Coordinates(dict(lazy.variables), indexes={}))
        frame = frame.stack({stacking.name(samples): names}, create_index=False)
    return frame


def stacked_labels(frame: xr.Dataset, stacking: Stacking) -> NDArray[Any] | None:
    """Labels of the features: those of a stacked frame's coordinates, joined where several."""
    names = stacking.names(samples=False)
    if len(names) == 1:
        return feature_labels(frame, names[0])
    levels: Mapping[str, NDArray[Any]] = {d: decoded_values(frame[d].variable) for d in names}
    return joined(names, zip(*levels.values(), strict=True), stacking.table[1])

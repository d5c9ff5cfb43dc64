"""Tables that come as blocks of rows, and the store that they are written to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
import zarr
from numpy.typing import NDArray
from zarr.abc.store import Store

from kmufs_stream.errors import KmufsError, RequestError, Text, did_you_mean, listed
from kmufs_stream.events import Advanced, Progress, Started
from kmufs_stream.formats.columns import SAMPLE, TEXT, Coordinate
from kmufs_stream.sources.casting import cast
from kmufs_stream.sources.id_columns import IdColumns
from kmufs_stream.sources.matrix import KINDS, is_numeric
from kmufs_stream.streaming.planning.sizing import BASELINE, MB
from kmufs_stream.system.memory import size

CHUNK_BYTES = 8 * MB
BLOCKS = 8  # at a time, at most: as they are parsed, joined, written and encoded
TEXT_BYTES = 100  # of a sample's text, at least
LOOK_ROWS = 20  # first samples, that tell how long texts are
OTHER_DTYPE = Text(
    "Choose another {dtype}: float64 holds whatever is a number, and missing values."
)
Block = tuple[NDArray[Any], dict[str, NDArray[Any]]]
"""Values of some rows, and the coordinates of these samples by name."""


@dataclass(frozen=True)
class Incoming:
    """A table that is read once, from its first row to its last.

    Attributes
    ----------
    source : where it is, for people.
    inner : shape of one sample: ``(p,)`` for a table.
    dtype : of the values, in native byte order.
    blocks : given a number of rows, yields blocks of about as many.
    labels : (p,) names of the features, or None.
    coordinates : of the samples, by the names they are stored under.
    held : bytes in memory all the time, of what can only be read whole.
    notes : lines for people, of what may not be as they think.
    """

    source: str
    inner: tuple[int, ...]
    dtype: np.dtype[Any]
    blocks: Callable[[int], Iterator[Block]]
    labels: NDArray[Any] | None = None
    coordinates: Mapping[str, Coordinate] = field(default_factory=dict)
    held: int = 0
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not is_numeric(self.dtype):
            raise RequestError(
                "bad_dtype",
                f"{self.source} holds {KINDS.get(self.dtype.kind, 'values')} of dtype "
                f"{self.dtype}.",
                "Real numbers are needed: bool, integer or floating point.",
            )
        if not self.inner or 0 in self.inner:
            raise RequestError(
                "not_2d",
                f"{self.source} is no table: a sample has the shape {self.inner}.",
                "A samples x features table is needed.",
            )


@dataclass(frozen=True)
class Written:
    """What a table became.

    Attributes
    ----------
    sizes : of its dimensions, by name.
    gaps : what it misses.
    notes : lines for people.
    """

    sizes: dict[str, int]
    gaps: Gaps
    notes: tuple[str, ...]


class Gaps:
    """Missing values of a table, counted block by block.

    Attributes
    ----------
    values, samples : how many are missing, and of how many samples.
    of_feature : (p,) int64, of each feature.
    """

    def __init__(self, p: int) -> None:
        self.values = self.samples = 0
        self.of_feature = np.zeros(p, np.int64)

    def add(self, block: NDArray[Any]) -> None:
        """Count those of some more samples; integers and truth miss none."""
        if block.dtype.kind != "f":
            return
        missing = np.isnan(block).reshape(len(block), -1)
        of_feature = missing.sum(axis=0)
        self.of_feature += of_feature
        self.values += int(of_feature.sum())
        self.samples += int(missing.any(axis=1).sum())


def write_blocks(
    folder: Store,
    incoming: Incoming,
    dtype: np.dtype[Any],
    budget: int,
    progress: Progress,
) -> Written:
    """Write the table as a store that xarray opens, whole chunks one after another.

    Values are stored in ``dtype``. Holds some blocks of about CHUNK_BYTES, or of one row where
    that is more. How long texts are is told by the first samples. Raises RequestError where the
    blocks are more than ``budget``, or a value does not fit.
    """
    inner, described = incoming.inner, incoming.coordinates
    itemsize = max(dtype.itemsize, incoming.dtype.itemsize)
    texts = [name for name, c in described.items() if c.dtype == TEXT]
    row = int(np.prod(inner)) * itemsize + sum(
        c.dtype.itemsize for c in described.values() if c.dtype != TEXT
    )
    if texts:
        first, known = next(_sound(incoming, LOOK_ROWS))
        row += max(TEXT_BYTES * len(texts), _text_bytes(known, texts) // len(first))
    rows = max(CHUNK_BYTES // row, 1)
    check_fits(incoming.source, incoming.held + BLOCKS * rows * row, budget)
    dims = ["sample", "feature"] if len(inner) == 1 else ["sample"]
    dims += [f"dim_{i}" for i in range(len(dims), len(inner) + 1)]
    root = zarr.open_group(folder, mode="w", zarr_format=3)
    values = root.create_array(
        "data", shape=(0, *inner), chunks=(rows, *inner), dtype=dtype, dimension_names=dims
    )
    beside = " ".join(name for name in described if name != SAMPLE)
    if beside:
        values.attrs["coordinates"] = beside
    coordinates = {
        name: root.create_array(
            name,
            shape=(0,),
            chunks=(rows,),
            dtype=coordinate.dtype,
            dimension_names=["sample"],
            attributes=coordinate.attrs,
        )
        for name, coordinate in described.items()
    }
    gaps = Gaps(int(np.prod(inner)))
    id_columns = IdColumns(() if incoming.labels is None else incoming.labels)
    progress(Started("converting", unit="rows", unit_bytes=row))
    for block, known in _whole(_sound(incoming, rows), rows):
        longer = _text_bytes(known, texts) - rows * row
        check_fits(incoming.source, incoming.held + BLOCKS * (rows * row + max(longer, 0)), budget)
        n = values.shape[0]
        values.resize((n + len(block), *inner))
        stored = cast(block, dtype, incoming.source, OTHER_DTYPE)
        values[n:] = stored
        gaps.add(stored)
        id_columns.add(block)
        for name, array in coordinates.items():
            array.resize((n + len(block),))
            array[n:] = cast(known[name], array.dtype, incoming.source, "")
        progress(Advanced(len(block)))
    if incoming.labels is not None:
        labels = xr.Dataset(coords={"feature": np.asarray(incoming.labels, dtype=object)})
        labels.to_zarr(folder, mode="a", zarr_format=3, consolidated=False)
    sizes = dict(zip(dims, values.shape, strict=True))
    return Written(sizes, gaps, (*incoming.notes, *id_columns.notes()))


def _text_bytes(known: Mapping[str, NDArray[Any]], texts: Iterable[str]) -> int:
    """Memory that the texts of some samples take: up to four bytes a character."""
    return sum(sum(map(sys.getsizeof, known[name])) for name in texts)


def _sound(incoming: Incoming, rows: int) -> Iterator[Block]:
    """The blocks; what a library says of damaged data as an error of ours."""
    try:
        yield from incoming.blocks(rows)
    except KmufsError:
        raise
    except Exception as error:
        raise unreadable(incoming.source, error) from error


def _whole(blocks: Iterator[Block], rows: int) -> Iterator[Block]:
    """The same rows in blocks of exactly ``rows``, but for the last."""
    kept: list[Block] = []
    held = 0
    for values, known in blocks:
        start = 0
        while start < len(values):
            stop = min(start + rows - held, len(values))
            kept.append((values[start:stop], {c: v[start:stop] for c, v in known.items()}))
            held += stop - start
            start = stop
            if held == rows:
                yield _joined(kept)
                kept, held = [], 0
    if kept:
        yield _joined(kept)


def _joined(parts: list[Block]) -> Block:
    names = parts[0][1]
    return np.concatenate([values for values, _ in parts]), {
        name: np.concatenate([known[name] for _, known in parts]) for name in names
    }


def array_blocks(array: Any, *, columns_first: bool = False) -> Callable[[int], Iterator[Block]]:
    """Blocks of whatever is sliced like an array of rows, or of columns."""

    def blocks(rows: int) -> Iterator[Block]:
        n = array.shape[-1] if columns_first else array.shape[0]
        for a in range(0, n, rows):
            if columns_first:
                yield np.asarray(array[..., a : a + rows]).T, {}
            else:
                yield np.asarray(array[a : a + rows]), {}

    return blocks


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in this machine's byte order."""
    return dtype.newbyteorder("=")


def unreadable(source: str, error: Exception) -> RequestError:
    """What is told of a file that a library cannot read."""
    return RequestError(
        "unreadable",
        f"{source} cannot be read: {type(error).__name__}: {error}",
        "The file is damaged or not what its name says; write it again.",
    )


def one_of(source: str, tables: dict[str, Any], asked: str, separator: str) -> str:
    """The table asked for, or the only one there is, vectors aside; ``tables`` has their shapes.

    Raises RequestError with what there is otherwise.
    """
    if asked in tables:
        return asked
    if not tables:
        raise RequestError(
            "no_table",
            f"{source} holds no table of numbers.",
            "An array of two dimensions or more is needed.",
        )
    wide = [name for name, shape in tables.items() if min(shape) > 1] or list(tables)
    if not asked and len(wide) == 1:
        return wide[0]
    listing = ", ".join(f"{listed([name])} {shape}" for name, shape in tables.items())
    first = wide[0]
    raise RequestError(
        "unknown_variable" if asked else "ambiguous_variable",
        f"{source} holds no table {asked!r}." if asked else f"{source} holds no single table.",
        f"{did_you_mean(asked, tables)}Tables there: {listing}. Choose one: "
        f"{source}{separator}{first}",
    )


def holds_sparse(source: str, name: str, read: str) -> RequestError:
    """What is told of a sparse matrix, which the expression ``read`` reads in Python."""
    return RequestError(
        "sparse",
        f"{source} holds a sparse matrix{name and ' '}{name}.",
        f"Make it AnnData, in Python: anndata.AnnData({read}.tocsr()).write_h5ad('x.h5ad'); "
        "that needs no conversion.",
    )


def check_fits(source: str, needed: int, budget: int, remedy: str = "") -> None:
    """Refuse what takes more memory than there may be; ``needed`` are bytes beside BASELINE."""
    peak = BASELINE + needed
    if peak > budget:
        raise RequestError(
            "does_not_fit",
            f"Converting {source} takes {size(peak)} of memory; {size(budget)} may be used.",
            Text(
                "Give {memory} or more.{}{}",
                " " * bool(remedy),
                remedy,
                memory=f"{-(-peak // MB)}MB",
            ),
        )

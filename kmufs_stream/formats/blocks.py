"""Tables in foreign formats, as blocks of rows, and the Zarr store that they are written to."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
import zarr
from zarr.abc.store import Store

from kmufs_stream.errors import (
    KmufsError,
    RequestError,
    Text,
    did_you_mean,
    listed,
    missing_library,
)
from kmufs_stream.events import Advanced, Progress, Started
from kmufs_stream.formats.columns import SAMPLE, TEXT, Coordinate
from kmufs_stream.sources.casting import cast
from kmufs_stream.sources.convertible import INSIDE
from kmufs_stream.sources.id_columns import notes_of_block
from kmufs_stream.sources.matrix import is_numeric
from kmufs_stream.streaming.planning.sizing import BASELINE, MB
from kmufs_stream.system.memory import size
from kmufs_stream.typing import Array

CHUNK_BYTES = 8 * MB
BLOCKS = 8  # in memory at a time, at most: parsed, joined, written and encoded
TEXT_BYTES = 100  # of a sample's text, at least
LOOK_ROWS = 20  # first samples, from which the length of texts is estimated
VALUES = "data"  # the array of values in a store
OTHER_DTYPE = Text(
    "Choose another {dtype}: float64 holds whatever is a number, and missing values."
)
Block = dict[str, Array]
"""Some rows: their values as ``data``, and the coordinates of these samples by name."""


@dataclass(frozen=True)
class ForeignTable:
    """A table in a foreign format, to be read once from its first row to its last.

    Attributes
    ----------
    source : where it is, for messages.
    inner : shape of one sample: ``(p,)`` for a table.
    dtype : of the values, in any byte order.
    blocks : given a number of rows, yields blocks of about as many.
    labels : (p,) names of the features, or None.
    coordinates : of the samples, by the names they are stored under.
    held : bytes that stay in memory, if the source can only be read whole.
    notes : warnings for the user, a line each.
    """

    source: str
    inner: tuple[int, ...]
    dtype: np.dtype[Any]
    blocks: Callable[[int], Iterator[Block]]
    labels: Array | None = None
    coordinates: Mapping[str, Coordinate] = field(default_factory=dict)
    held: int = 0
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not is_numeric(self.dtype):
            raise RequestError(
                "bad_dtype",
                f"{self.source} holds values of dtype {self.dtype}.",
                "Real numbers are needed: bool, integer or floating point.",
            )
        if not self.inner or 0 in self.inner:
            raise RequestError(
                "not_2d",
                f"{self.source} is no table: a sample has the shape {self.inner}.",
                "A samples x features table is needed.",
            )

    def read(self, rows: int) -> Iterator[Block]:
        """Yield blocks of about ``rows`` rows. Raises RequestError for damaged data."""
        with reading(self.source):
            yield from self.blocks(rows)


def write_blocks(
    folder: Store,
    table: ForeignTable,
    dtype: np.dtype[Any],
    budget: int,
    progress: Progress,
) -> tuple[dict[str, int], dict[str, int], tuple[str, ...]]:
    """Write the table with values in ``dtype``, one whole chunk after another, for xarray to open.

    Returns the sizes of its dimensions, the numbers of missing values and of the samples and
    features that miss some, and warnings for the user.

    Holds some blocks of about CHUNK_BYTES, or of one row if that is larger. Raises RequestError
    if the blocks do not fit in ``budget`` bytes, or a value does not fit the dtype.
    """
    texts = [name for name, c in table.coordinates.items() if c.dtype == TEXT]
    row = _row_bytes(table, dtype, texts)
    rows = max(CHUNK_BYTES // row, 1)
    converting = f"Converting {table.source}"
    check_fits(converting, table.held + BLOCKS * rows * row, budget)
    dims = ["sample", "feature"] if len(table.inner) == 1 else ["sample"]
    dims += [f"dim_{i}" for i in range(len(dims), len(table.inner) + 1)]
    arrays = _create_arrays(folder, table, dtype, dims, rows)
    n = incomplete = 0
    missing = np.zeros(int(np.prod(table.inner)), np.int64)  # of each feature
    notes = [*table.notes]
    progress(Started("converting", unit="rows", unit_bytes=row))
    for block in _in_chunks(table.read(rows), rows):
        longer = max(_text_bytes(block, texts) - rows * row, 0)
        check_fits(converting, table.held + BLOCKS * (rows * row + longer), budget)
        if not n and table.labels is not None:
            notes += notes_of_block(table.labels, block[VALUES])
        values = block[VALUES] = cast(block[VALUES], dtype, table.source, OTHER_DTYPE)
        if dtype.kind == "f":
            gaps = np.isnan(values).reshape(len(values), -1)
            missing += gaps.sum(axis=0)
            incomplete += int(gaps.any(axis=1).sum())
        for name, array in arrays.items():
            array.resize((n + len(values), *array.shape[1:]))
            array[n:] = cast(block[name], array.dtype, table.source, "")
        n += len(values)
        progress(Advanced(len(values)))
    if table.labels is not None:
        labels = xr.Dataset(coords={"feature": np.asarray(table.labels, dtype=object)})
        labels.to_zarr(folder, mode="a", zarr_format=3, consolidated=False)
    counts = {
        "values": int(missing.sum()),
        "samples": incomplete,
        "features": int(np.count_nonzero(missing)),
        "features_without_any": int(np.sum(missing == n)),
    }
    sizes = dict(zip(dims, (n, *table.inner), strict=True))
    return sizes, counts, tuple(notes)


def _row_bytes(table: ForeignTable, dtype: np.dtype[Any], texts: Sequence[str]) -> int:
    """Estimate the bytes of a sample from the lengths of its first texts."""
    row: int = int(np.prod(table.inner)) * max(dtype.itemsize, table.dtype.itemsize)
    row += sum(int(c.dtype.itemsize) for c in table.coordinates.values() if c.dtype != TEXT)
    if texts:
        first = next(_in_chunks(table.read(LOOK_ROWS), LOOK_ROWS))
        row += max(TEXT_BYTES * len(texts), _text_bytes(first, texts) // len(first[VALUES]))
    return row


def _text_bytes(block: Block, texts: Sequence[str]) -> int:
    """Memory that texts take as objects: up to four bytes a character."""
    return sum(sum(map(sys.getsizeof, block[name])) for name in texts)


def _create_arrays(
    folder: Store, table: ForeignTable, dtype: np.dtype[Any], dims: list[str], rows: int
) -> dict[str, zarr.Array[Any]]:
    """Create the arrays of a store without rows: the values, and the coordinates of samples."""
    root = zarr.open_group(folder, mode="w", zarr_format=3)
    described = table.coordinates
    beside = " ".join(name for name in described if name != SAMPLE)
    values = root.create_array(
        VALUES,
        shape=(0, *table.inner),
        chunks=(rows, *table.inner),
        dtype=dtype,
        dimension_names=dims,
        attributes={"coordinates": beside} if beside else {},
    )
    return {VALUES: values} | {
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


def _in_chunks(blocks: Iterator[Block], rows: int) -> Iterator[Block]:
    """Yield the same rows in blocks of exactly ``rows``, but for the last."""
    kept: list[Block] = []
    held = 0
    for block in blocks:
        start, stop = 0, len(block[VALUES])
        while start < stop:
            end = min(start + rows - held, stop)
            kept.append({name: values[start:end] for name, values in block.items()})
            held += end - start
            start = end
            if held == rows:
                yield _joined(kept)
                kept, held = [], 0
    if kept:
        yield _joined(kept)


def _joined(parts: list[Block]) -> Block:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def array_blocks(array: Any, *, columns_first: bool = False) -> Callable[[int], Iterator[Block]]:
    """Make a function that yields blocks of an array of rows, or of columns."""

    def blocks(rows: int) -> Iterator[Block]:
        for a in range(0, array.shape[-1 if columns_first else 0], rows):
            part = array[..., a : a + rows].T if columns_first else array[a : a + rows]
            yield {VALUES: np.asarray(part)}

    return blocks


@contextlib.contextmanager
def reading(source: str) -> Iterator[None]:
    """Report any failure of a library as RequestError: it is missing, or the source is damaged."""
    try:
        yield
    except (KmufsError, MemoryError):
        raise
    except ImportError as error:
        raise missing_library(f"Reading {source}", str(error.name).partition(".")[0]) from error
    except Exception as error:
        raise unreadable(source, error) from error


def unreadable(source: str, error: Exception) -> RequestError:
    return RequestError(
        "unreadable",
        f"{source} cannot be read: {type(error).__name__}: {error}",
        "The file is damaged or not what its name says; write it again.",
    )


def choose_table(source: str, shapes: dict[str, Any], asked: str) -> str:
    """Return the table asked for, or the only one that is no vector; ``shapes`` are by name.

    Raises RequestError with the tables there are otherwise.
    """
    if asked in shapes:
        return asked
    if not shapes:
        raise RequestError(
            "no_table",
            f"{source} holds no table of numbers.",
            "An array of two dimensions or more is needed.",
        )
    wide = [name for name, shape in shapes.items() if min(shape) > 1] or list(shapes)
    if not asked and len(wide) == 1:
        return wide[0]
    listing = ", ".join(f"{listed([name])} {shape}" for name, shape in shapes.items())
    raise RequestError(
        "unknown_variable" if asked else "ambiguous_variable",
        f"{source} holds no table {asked!r}." if asked else f"{source} holds no single table.",
        f"{did_you_mean(asked, shapes)}Tables there: {listing}. Choose one: "
        f"{source}{INSIDE}{wide[0]}",
    )


def holds_sparse(source: str, name: str, expression: str) -> RequestError:
    """The error for a sparse matrix, which ``expression`` reads in Python."""
    return RequestError(
        "sparse",
        f"{source} holds a sparse matrix{name and ' '}{name}.",
        f"Make it AnnData, in Python: anndata.AnnData({expression}.tocsr()).write_h5ad('x.h5ad'); "
        "that needs no conversion.",
    )


def check_fits(what: str, needed: int, budget: int, hint: str = "") -> None:
    """Raise RequestError if ``what`` takes more memory than the budget.

    ``needed`` are the bytes beside BASELINE, ``hint`` another way than more memory.
    """
    peak = BASELINE + needed
    if peak > budget:
        more = Text("Give {memory} or more.", memory=f"{-(-peak // MB)}MB")
        raise RequestError(
            "does_not_fit",
            f"{what} takes {size(peak)} of memory; {size(budget)} may be used.",
            more + " " + hint if hint else more,
        )

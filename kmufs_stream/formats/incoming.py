"""Tables that come as blocks of rows, and the store that they are written to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
import zarr
from numpy.typing import NDArray
from zarr.abc.store import Store

from kmufs_stream.errors import KmufsError, RequestError, did_you_mean
from kmufs_stream.progress import Advanced, Progress, Started
from kmufs_stream.sources.matrix import KINDS, is_numeric
from kmufs_stream.streaming.memory import available_memory, size

CHUNK_BYTES = 8 * 10**6
Block = tuple[NDArray[Any], NDArray[Any] | None]
"""Values of some rows, and the names of these samples where they have any."""


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
    named : whether the samples have names.
    """

    source: str
    inner: tuple[int, ...]
    dtype: np.dtype[Any]
    blocks: Callable[[int], Iterator[Block]]
    labels: NDArray[Any] | None = None
    named: bool = False

    def __post_init__(self) -> None:
        if not self.inner or 0 in self.inner:
            raise RequestError(
                "not_2d",
                f"{self.source} is no table: a sample has the shape {self.inner}.",
                "A samples x features table is needed.",
            )
        if not is_numeric(self.dtype):
            raise RequestError(
                "bad_dtype",
                f"{self.source} holds {KINDS.get(self.dtype.kind, 'values')} of dtype "
                f"{self.dtype}.",
                "Real numbers are needed: bool, integer or floating point.",
            )


def write_blocks(folder: Store, incoming: Incoming, progress: Progress) -> dict[str, int]:
    """Write the table as a store that xarray opens, whole chunks one after another; its sizes.

    Holds three blocks of about CHUNK_BYTES, or of one row where that is more.
    """
    inner, dtype = incoming.inner, incoming.dtype
    row = int(np.prod(inner)) * dtype.itemsize
    rows = max(CHUNK_BYTES // row, 1)
    dims = ["sample", "feature"] if len(inner) == 1 else ["sample"]
    dims += [f"dim_{i}" for i in range(len(dims), len(inner) + 1)]
    root = zarr.open_group(folder, mode="w", zarr_format=3)
    values = root.create_array(
        "data", shape=(0, *inner), chunks=(rows, *inner), dtype=dtype, dimension_names=dims
    )
    names = None
    if incoming.named:
        names = root.create_array(
            "sample", shape=(0,), chunks=(rows,), dtype=str, dimension_names=["sample"]
        )
    progress(Started("converting", unit="rows", unit_bytes=row))
    for block, called in _whole(_sound(incoming, rows), rows, dtype):
        n = values.shape[0]
        values.resize((n + len(block), *inner))
        values[n:] = block
        if names is not None and called is not None:
            names.resize((n + len(block),))
            names[n:] = called
        progress(Advanced(len(block)))
    if incoming.labels is not None:
        labels = xr.Dataset(coords={"feature": np.asarray(incoming.labels, dtype=object)})
        labels.to_zarr(folder, mode="a", zarr_format=3, consolidated=False)
    return dict(zip(dims, values.shape, strict=True))


def _sound(incoming: Incoming, rows: int) -> Iterator[Block]:
    """The blocks; what a library says of damaged data as an error of ours."""
    try:
        yield from incoming.blocks(rows)
    except KmufsError:
        raise
    except Exception as error:
        raise unreadable(incoming.source, error) from error


def _whole(blocks: Iterator[Block], rows: int, dtype: np.dtype[Any]) -> Iterator[Block]:
    """The same rows in blocks of exactly ``rows``, but for the last."""
    kept: list[Block] = []
    held = 0
    for values, names in blocks:
        start = 0
        while start < len(values):
            stop = min(start + rows - held, len(values))
            kept.append((values[start:stop], None if names is None else names[start:stop]))
            held += stop - start
            start = stop
            if held == rows:
                yield _joined(kept, dtype)
                kept, held = [], 0
    if kept:
        yield _joined(kept, dtype)


def _joined(parts: list[Block], dtype: np.dtype[Any]) -> Block:
    values = np.concatenate([part for part, _ in parts]).astype(dtype, copy=False)
    names = [called for _, called in parts if called is not None]
    return values, np.concatenate(names) if names else None


def array_blocks(array: Any, *, columns_first: bool = False) -> Callable[[int], Iterator[Block]]:
    """Blocks of whatever is sliced like an array of rows, or of columns."""

    def blocks(rows: int) -> Iterator[Block]:
        n = array.shape[-1] if columns_first else array.shape[0]
        for a in range(0, n, rows):
            if columns_first:
                yield np.asarray(array[..., a : a + rows]).T, None
            else:
                yield np.asarray(array[a : a + rows]), None

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
    """The table asked for, or the only one there is; ``tables`` maps names to shapes.

    Raises RequestError with what there is otherwise.
    """
    if asked in tables or (not asked and len(tables) == 1):
        return asked or next(iter(tables))
    listing = ", ".join(f"{name} {shape}" for name, shape in tables.items()) or "none"
    first = next(iter(tables), "NAME")
    raise RequestError(
        "unknown_variable" if asked else "ambiguous_variable",
        f"{source} holds no table {asked!r}." if asked else f"{source} holds no single table.",
        f"{did_you_mean(asked, tables)}Tables there: {listing}. Choose one: "
        f"{source}{separator}{first}",
    )


def check_fits(source: str, needed: int, remedy: str) -> None:
    """Refuse what has to be read whole and is more than half of the memory there is."""
    budget = available_memory() // 2
    if needed > budget:
        raise RequestError(
            "does_not_fit",
            f"{source} can only be read whole, which takes {size(needed)}; half of the memory "
            f"available is {size(budget)}.",
            remedy,
        )

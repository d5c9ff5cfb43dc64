"""Parquet files and folders of them, read by pyarrow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.errors import RequestError, missing_library
from kmufs_stream.formats.coordinates import (
    SAMPLE,
    TEXT,
    Coordinate,
    check_columns,
    check_features,
    stored_names,
)
from kmufs_stream.formats.incoming import Block, Incoming

PAGE_BYTES = 2**16  # read from each column at a time
UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
NO_TIME = np.iinfo(np.int64).min


def open_parquet(path: str, index_column: str | None, asked: Sequence[str]) -> Incoming:
    """The columns of numbers as features, in their common dtype; nulls become NaN.

    Columns of text, times and categories, and those ``asked`` for, are coordinates of the samples.
    ``index_column``, or else the index that pandas kept, names the samples. A folder's files come
    in the order of their names. Besides the blocks, a page or two of every column is in memory.
    """
    try:
        import pyarrow.dataset as ds
    except ImportError as error:
        raise missing_library("pyarrow", f"Reading {path}", "convert") from error
    table = ds.dataset(path, format="parquet", exclude_invalid_files=True)
    noted = json.loads((table.schema.metadata or {}).get(b"pandas", b"{}"))
    if index_column is None:
        index_column = _kept_index(noted)
    types, categories = _types(table)
    categories |= {c["name"] for c in noted.get("columns", []) if c["pandas_type"] == "categorical"}
    check_columns(path, list(types), index_column, asked)
    described = [
        name
        for name, kind in types.items()
        if name != index_column and (name in asked or name in categories or _is_aside(kind))
    ]
    features = [name for name in types if name not in (index_column, *described)]
    check_features(path, list(types), features)
    dtypes = {name: _dtype(types[name], path, name) for name in features}
    names = stored_names(described, named=index_column is not None)
    coordinates = {
        stored: _coordinate(types[name], path, name)
        for stored, name in zip(names, described, strict=True)
    }
    if index_column is not None:
        coordinates = {SAMPLE: Coordinate(index_column, TEXT)} | coordinates
    dtype = np.result_type(*dtypes.values())
    return Incoming(
        path,
        (len(features),),
        dtype,
        partial(_blocks, sorted(table.files), types, features, coordinates),
        np.array(features, dtype=object),
        coordinates,
    )


def _kept_index(noted: Mapping[str, Any]) -> str | None:
    """The one stored column that pandas had as its index."""
    stored = [name for name in noted.get("index_columns", []) if isinstance(name, str)]
    return stored[0] if len(stored) == 1 else None  # a range is not stored


def _types(table: Any) -> tuple[dict[str, Any], set[str]]:
    """Types of the columns that hold what any of the files does, and which are categories."""
    import pyarrow as pa

    schemas, categories = [], set()
    for fragment in table.get_fragments():
        fields = {field.name: field.type for field in fragment.physical_schema}
        for name, kind in fields.items():
            if pa.types.is_dictionary(kind):
                categories.add(name)
                fields[name] = kind.value_type
        schemas.append(pa.schema(fields))
    whole = pa.unify_schemas(schemas, promote_options="permissive")
    return {field.name: field.type for field in whole}, categories


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_aside(kind: Any) -> bool:
    """Whether a column of this type describes the samples, and is no feature."""
    from pyarrow import types

    return _is_text(kind) or bool(types.is_timestamp(kind) or types.is_date(kind))


def _dtype(kind: Any, path: str, name: str) -> np.dtype[Any]:
    """What numbers of this type are stored as; RequestError where they are none."""
    from pyarrow import types

    if types.is_decimal(kind) or types.is_null(kind):
        return np.dtype(np.float64)
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return found
    raise RequestError(
        "bad_dtype",
        f"Column {name!r} of {path} holds {kind}: neither a number nor text nor a time.",
        "Leave it out of the file, or store each of its parts as a column of numbers.",
    )


def _coordinate(kind: Any, path: str, name: str) -> Coordinate:
    if _is_text(kind):
        return Coordinate.text(name)
    if not _is_aside(kind):
        return Coordinate(name, _dtype(kind, path, name))
    since = {"units": f"{UNITS[_timestamp(kind).unit]} since 1970-01-01"}
    return Coordinate(name, np.dtype(np.int64), since | {"calendar": "proleptic_gregorian"})


def _timestamp(kind: Any) -> Any:
    """The type of points in time for times and dates."""
    import pyarrow as pa

    return pa.timestamp("s" if kind == pa.date32() else getattr(kind, "unit", "ms"))


def _batches(files: list[str], columns: list[str], rows: int) -> Iterator[Any]:
    import pyarrow.parquet as pq

    for file in files:
        # A dataset's own scanner reads whole row groups ahead; buffered, a file is read by pages.
        with pq.ParquetFile(file, buffer_size=PAGE_BYTES, pre_buffer=False) as opened:
            yield from opened.iter_batches(rows, columns=columns, use_threads=False)


def _blocks(
    files: list[str],
    types: Mapping[str, Any],
    features: list[str],
    coordinates: Mapping[str, Coordinate],
    rows: int,
) -> Iterator[Block]:
    described = {stored: c.column for stored, c in coordinates.items()}
    for batch in _batches(files, [*features, *described.values()], rows):
        arrays = {name: batch.column(name) for name in batch.schema.names}
        values = np.column_stack([_numbers(arrays[name], types[name]) for name in features])
        yield (
            values,
            {s: _described(s, arrays[name], types[name]) for s, name in described.items()},
        )


def _numbers(array: Any, kind: Any) -> NDArray[Any]:
    """Numbers of a column, which in this file may be narrower than ``kind``; NaN for nulls."""
    array = array.cast("float64", safe=False) if array.null_count else array.cast(kind)
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values.astype(np.float64) if values.dtype.kind == "O" else values  # decimals


def _described(stored: str, array: Any, kind: Any) -> NDArray[Any]:
    """A coordinate of some samples as it is stored."""
    if stored == SAMPLE:
        called = ("" if x is None else str(x) for x in array.to_pylist())
        return np.fromiter(called, dtype=object, count=len(array))
    array = array.cast(kind)
    if _is_text(kind):
        return np.asarray(array.fill_null("").to_numpy(zero_copy_only=False), dtype=object)
    if _is_aside(kind):
        points = array.cast(_timestamp(kind)).cast("int64")
        return np.asarray(points.fill_null(NO_TIME).to_numpy())
    return _numbers(array, kind)

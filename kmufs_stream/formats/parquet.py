"""Parquet files and folders of them, read by pyarrow."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.errors import RequestError, Text, missing_library
from kmufs_stream.formats.blocks import LOOK_ROWS, OTHER_DTYPE, VALUES, Block, ForeignTable
from kmufs_stream.formats.columns import (
    SAMPLE,
    TEXT,
    Coordinate,
    check_columns,
    check_features,
    keep_whole,
    stored_names,
)
from kmufs_stream.formats.parquet_files import (
    files_of,
    metadata_of,
    partitions_of,
    schema_of,
    types_of,
    with_nulls,
)
from kmufs_stream.sources.casting import cast

PAGE_BYTES = 2**16  # read from each column at a time
SHOWN = 5  # rows with the same fault, in messages
UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
NO_TIME = np.iinfo(np.int64).min
A_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
LAST_SECOND = np.iinfo(np.int64).max // 10**9  # before or after 1970, of times in nanoseconds
AS_TEXT = Text(
    "If it describes the samples, store it as text; {dtype} rounds features.", dtype="float64"
)


def open_parquet(
    path: str, index_column: str | None, asked: Sequence[str], wanted: np.dtype[Any] | None
) -> ForeignTable:
    """Open a table whose columns of numbers are features, in their common dtype; nulls become NaN.

    A column of lists of numbers, all of one length, makes a feature of each position. A column
    whose lists are all null or empty is left out, with a note.

    Raises RequestError for integers that float64 would round, unless a dtype is ``wanted``:
    integers are then read as such, or rounded to floating point.

    Columns of text, times and categories, and those ``asked`` for, become coordinates of the
    samples; so do folders named ``column=value``. ``index_column``, or else the index that pandas
    stored, names the samples. A folder's files are read in the order of their names. Besides the
    blocks, a page or two of every column is in memory.
    """
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise missing_library(f"Reading {path}", "pyarrow") from error
    files = files_of(path)
    metadata = {file: metadata_of(file) for file in files}
    schemas = {file: schema_of(known) for file, known in metadata.items()}
    if not any(known.num_rows for known in metadata.values()):
        raise RequestError("no_samples", f"{path} holds no rows.", "Give a table with samples.")
    noted = json.loads((schemas[files[0]].metadata or {}).get(b"pandas", b"{}"))
    parts = partitions_of(path, files)
    types, categories = types_of(schemas, parts)
    if index_column is None:
        index_column = _kept_index(noted)
    categories |= {c["name"] for c in noted.get("columns", []) if c["pandas_type"] == "categorical"}
    check_columns(path, list(types), index_column, asked)
    described = [
        name
        for name, kind in types.items()
        if name != index_column and (name in asked or name in categories or _is_aside(kind))
    ]
    features = [name for name in types if name not in (index_column, *described)]
    gaps = with_nulls(metadata.values())
    dtypes = {name: _dtype(_item_type(types[name]), path, name, gaps) for name in features}
    widths = _widths(parts, {name for name in features if _item_type(types[name]) != types[name]})
    empty = [name for name in features if widths.get(name) == 0]
    features = [name for name in features if name not in empty]
    labels = _labels(path, features, widths)
    names = stored_names(described, named=index_column is not None)
    coordinates = {
        stored: _coordinate(types[name], path, name, gaps)
        for stored, name in zip(names, described, strict=True)
    }
    if index_column is not None:
        coordinates = {SAMPLE: Coordinate(index_column, TEXT)} | coordinates
    dtype = np.result_type(*(dtypes[name] for name in features))
    if wanted is not None and wanted.kind in "iu":
        dtype = wanted
    rounded = wanted is not None and wanted.kind == "f"
    return ForeignTable(
        path,
        (len(labels),),
        dtype,
        partial(_blocks, parts, types, features, widths, coordinates, None if rounded else dtype),
        np.array(labels, dtype=object),
        coordinates,
        notes=[f"{name!r} is left out: its lists are all null or empty." for name in empty],
    )


def _kept_index(noted: Mapping[str, Any]) -> str | None:
    """Return the one stored column that was the index in pandas."""
    stored = [name for name in noted.get("index_columns", []) if isinstance(name, str)]
    return stored[0] if len(stored) == 1 else None  # a range is not stored


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_aside(kind: Any) -> bool:
    """Whether a column of this type describes the samples."""
    from pyarrow import types

    return _is_text(kind) or bool(types.is_timestamp(kind) or types.is_date(kind))


def _item_type(kind: Any) -> Any:
    """Return the type of a list's items; any other type as it is."""
    from pyarrow import types

    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    return kind.value_type if any(is_kind(kind) for is_kind in lists) else kind


def _widths(parts: Mapping[str, Mapping[str, Any]], lists: set[str]) -> dict[str, int]:
    """Return the length of the first list with items in each column; 0 if there is none."""
    import pyarrow.compute as pc

    widths = dict.fromkeys(lists, 0)
    left = set(lists)
    for file, known in parts.items():
        for arrays in _batches({file: known}, left, LOOK_ROWS) if left else ():
            for name in left:
                lengths = pc.list_value_length(arrays[name]).fill_null(0).to_numpy()
                widths[name] = next((int(n) for n in lengths if n), 0)
            left = {name for name in left if not widths[name]}
            if not left:
                break
    return widths


def _labels(path: str, features: list[str], widths: Mapping[str, int]) -> list[str]:
    """Name the features. Raises RequestError if there are none, or two have the same name."""
    labels = [
        label
        for name in features
        for label in ([f"{name}_{i}" for i in range(widths[name])] if name in widths else [name])
    ]
    check_features(path, labels)
    twice = next((label for label, n in Counter(labels).items() if n > 1), None)
    if twice is not None:
        name = twice.rpartition("_")[0]
        raise RequestError(
            "same_name",
            f"{path} has a column {twice!r}, as the features would be called that are made of the "
            f"lists in {name!r}.",
            Text(
                "If it describes the samples, say {coordinates}; else give one of them "
                "another name.",
                coordinates=twice,
            ),
        )
    return labels


def _dtype(kind: Any, path: str, name: str, gaps: set[str]) -> np.dtype[Any]:
    """Return the dtype to store numbers of this type in. Raises RequestError for other types.

    Integers and truth values of columns with ``gaps`` become float64.
    """
    from pyarrow import types

    if types.is_decimal(kind) or types.is_null(kind):
        return np.dtype(np.float64)
    if name in gaps and (types.is_boolean(kind) or types.is_integer(kind)):
        return np.dtype(np.float64)
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return found
    raise RequestError(
        "bad_dtype",
        f"Column {name!r} of {path} holds {kind}: neither a number nor text nor a time.",
        "Leave it out of the file, or store each of its parts as a column of numbers.",
    )


def _coordinate(kind: Any, path: str, name: str, gaps: set[str]) -> Coordinate:
    if _is_text(kind):
        return Coordinate.text(name)
    if not _is_aside(kind):
        return Coordinate(name, _dtype(kind, path, name, gaps))
    since = {"units": f"{UNITS[_timestamp(kind).unit]} since 1970-01-01"}
    return Coordinate(name, np.dtype(np.int64), since | {"calendar": "proleptic_gregorian"})


def _timestamp(kind: Any) -> Any:
    """Return the type of timestamps for times and dates."""
    import pyarrow as pa

    return pa.timestamp("s" if kind == pa.date32() else getattr(kind, "unit", "ms"))


def _batches(parts: Mapping[str, Mapping[str, Any]], columns: set[str], rows: int) -> Iterator[Any]:
    """Yield columns of some rows by name, file after file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for file, known in parts.items():
        # A dataset's scanner reads whole row groups ahead; a buffered file is read by pages.
        with pq.ParquetFile(file, buffer_size=PAGE_BYTES, pre_buffer=False) as opened:
            stored = [name for name in opened.schema_arrow.names if name in columns]
            for batch in opened.iter_batches(rows, columns=stored, use_threads=False):
                same = {n: pa.repeat(pa.scalar(v), len(batch)) for n, v in known.items()}
                yield same | {name: batch.column(name) for name in batch.schema.names}


def _blocks(
    parts: Mapping[str, Mapping[str, Any]],
    types: Mapping[str, Any],
    features: list[str],
    widths: Mapping[str, int],
    coordinates: Mapping[str, Coordinate],
    dtype: np.dtype[Any] | None,
    rows: int,
) -> Iterator[Block]:
    described = {c.column for c in coordinates.values()}
    start = 0
    for arrays in _batches(parts, {*features, *described}, rows):
        columns = [
            _vectors(arrays[name], widths[name], dtype, name, start)
            if name in widths
            else _numbers(arrays[name], dtype, name)
            for name in features
        ]
        yield {VALUES: np.column_stack(columns)} | {
            stored: _described(arrays[c.column], types[c.column], stored, c)
            for stored, c in coordinates.items()
        }
        start += len(columns[0])


def _vectors(
    array: Any, width: int, dtype: np.dtype[Any] | None, name: str, start: int
) -> NDArray[Any]:
    """Turn lists, of which the first is in row ``start``, into (rows, width) numbers."""
    import pyarrow.compute as pc

    lengths = pc.list_value_length(array).fill_null(-1).to_numpy()
    other = np.flatnonzero(lengths != width)
    if len(other):
        first = lengths[other[0]]
        alike = np.flatnonzero(lengths == first)
        rows = ", ".join(str(start + i) for i in alike[:SHOWN]) + ", ..." * (len(alike) > SHOWN)
        raise RequestError(
            "ragged_rows",
            f"Column {name!r} holds {'null' if first < 0 else f'a list of {first}'} where others "
            f"are lists of {width}: row{'s' * (len(alike) > 1)} {rows} (counted from 0).",
            "Leave out rows without a list; the others need the same length.",
        )
    return _numbers(array.flatten(), dtype, name).reshape(len(array), width)


def _numbers(array: Any, dtype: np.dtype[Any] | None, name: str) -> NDArray[Any]:
    """Convert a column to ``dtype``, or round it to float64 if that is None; nulls become NaN."""
    from pyarrow import types

    if dtype is not None and types.is_integer(array.type):
        known = array.drop_null().to_numpy(zero_copy_only=False)
        hint = AS_TEXT if array.null_count else keep_whole(name, gaps=False)
        known = cast(known, dtype, f"Column {name!r}", hint, exactly=True)
        if not array.null_count:
            return known
    if array.null_count or dtype is None:
        array = array.cast("float64", safe=False)
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    values = values.astype(np.float64) if values.dtype.kind == "O" else values  # decimals
    return values if dtype is None else cast(values, dtype, f"Column {name!r}", OTHER_DTYPE)


def _described(array: Any, kind: Any, stored: str, coordinate: Coordinate) -> NDArray[Any]:
    """Convert a coordinate of some samples to what is stored."""
    import pyarrow as pa

    name = coordinate.column
    if stored == SAMPLE:
        called = ("" if x is None else str(x) for x in array.to_pylist())
        return np.fromiter(called, dtype=object, count=len(array))
    if not (_is_text(kind) or _is_aside(kind)):
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        return _numbers(array, coordinate.dtype, name)
    array = array.cast(kind)
    if _is_text(kind):
        return np.asarray(
            array.cast("large_string").fill_null("").to_numpy(zero_copy_only=False), dtype=object
        )
    points = array.cast(_timestamp(kind)).cast("int64")
    stamps = np.asarray(points.fill_null(NO_TIME).to_numpy())
    last = LAST_SECOND * A_SECOND[_timestamp(kind).unit]
    outside = ((stamps > last) | (stamps < -last)) & (stamps != NO_TIME)
    if outside.any():
        when = np.datetime64(int(stamps[outside][0]), _timestamp(kind).unit)
        raise RequestError(
            "does_not_fit_dtype",
            f"Column {name!r} holds {when}: a date outside of 1678 to 2262.",
            "Leave the column out, convert it to text, or leave such dates empty.",
        )
    return stamps

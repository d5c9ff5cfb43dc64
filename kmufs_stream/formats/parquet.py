"""Parquet files and folders of them, read by pyarrow."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import types as kinds

from kmufs_stream.errors import RequestError, Text
from kmufs_stream.formats.blocks import (
    LOOK_ROWS,
    OTHER_DTYPE,
    VALUES,
    Block,
    ForeignTable,
    reading,
    unreadable,
)
from kmufs_stream.formats.columns import (
    EMPTY_TEXT,
    TEXT,
    Coordinate,
    check_columns,
    check_features,
    keep_whole,
    stored_names,
)
from kmufs_stream.sources.casting import cast

HIDDEN = ("_", ".")  # prefixes of files that hold no rows, such as logs
LOGS = {"_delta_log": "Delta", ".hoodie": "Hudi"}  # say which files hold current rows
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
WHOLE_NUMBER = re.compile(r"0|-?[1-9]\d{0,17}")
TEXTS = (pa.string(), pa.large_string(), pa.string_view())
PAGE_BYTES = 2**16  # read from each column at a time
UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
LAST_SECOND = np.iinfo(np.int64).max // 10**9  # before or after 1970, of times in nanoseconds
AS_TEXT = Text(
    "If it describes the samples, store it as text; {dtype} rounds features.", dtype="float64"
)


@dataclass
class _File:
    """A file of a table; ``schema`` has the categories that Arrow noted.

    Folders named ``column=value`` give all rows the values that are ``known``.
    """

    path: str
    metadata: Any
    schema: pa.Schema
    known: dict[str, Any] = field(default_factory=dict)

    def batches(self, columns: set[str], rows: int) -> Iterator[dict[str, Any]]:
        """Yield columns of some rows by name."""
        # A dataset's scanner reads whole row groups ahead; a buffered file is read by pages.
        opening = partial(pq.ParquetFile, buffer_size=PAGE_BYTES, pre_buffer=False)
        with reading(self.path), opening(self.path, page_checksum_verification=True) as opened:
            stored, left = sorted(columns & {*self.schema.names}), self.metadata.num_rows
            for batch in opened.iter_batches(rows, columns=stored, use_threads=False):
                same = {n: pa.repeat(pa.scalar(v), len(batch)) for n, v in self.known.items()}
                yield same | {name: batch[name] for name in stored}
                left -= len(batch)
            if left:  # pyarrow ends early where a column says that it is shorter
                raise pa.ArrowInvalid(f"{left:,} of {self.metadata.num_rows:,} rows are not there")


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
    files = [_open(file) for file in _files_of(path)]
    if not any(file.metadata.num_rows for file in files):
        raise RequestError("no_samples", f"{path} holds no rows.", "Give a table with samples.")
    noted = json.loads((files[0].schema.metadata or {}).get(b"pandas", b"{}"))
    _read_folders(path, files)
    types, categories = _types_of(files)
    if index_column is None:
        kept = [name for name in noted.get("index_columns", []) if isinstance(name, str)]
        index_column = kept[0] if len(kept) == 1 else None  # a range is not stored
    categories |= {c["name"] for c in noted.get("columns", []) if c["pandas_type"] == "categorical"}
    check_columns(path, list(types), index_column, asked)
    described = [
        name
        for name, kind in types.items()
        if name != index_column and (name in asked or name in categories or _is_aside(kind))
    ]
    features = [name for name in types if name not in (index_column, *described)]
    gaps = _with_nulls(files)
    dtypes = {name: _dtype(_item_type(types[name]), path, name, gaps) for name in features}
    widths = _widths(files, {name for name in features if _item_type(types[name]) != types[name]})
    empty = [name for name in features if widths.get(name) == 0]
    features = [name for name in features if name not in empty]
    labels = _labels(path, features, widths)
    columns = stored_names({name: name for name in described}, index_column)
    coordinates = {
        stored: Coordinate(name, TEXT)
        if name == index_column
        else _coordinate(types[name], path, name, gaps)
        for stored, name in columns.items()
    }
    dtype = np.result_type(*(dtypes[name] for name in features))
    if wanted is not None and wanted.kind in "iu":
        dtype = wanted
    rounded = wanted is not None and wanted.kind == "f"
    return ForeignTable(
        path,
        (len(labels),),
        dtype,
        partial(_blocks, files, types, features, widths, coordinates, None if rounded else dtype),
        np.array(labels, dtype=object),
        coordinates,
        notes=[f"{name!r} is left out: its lists are all null or empty." for name in empty],
    )


def _files_of(path: str) -> list[str]:
    """List a file, or all files of a folder but hidden ones, sorted by name.

    Raises RequestError for folders whose files may hold rows of older versions.
    """
    place = Path(path)
    if not place.is_dir():
        return [path]
    kept = next((kind for log, kind in LOGS.items() if (place / log).exists()), None)
    if kept is not None:
        raise RequestError(
            "bad_folder",
            f"{path} is a {kept} table: some of its files may hold rows that are there no more.",
            f"Write its rows as plain Parquet files, with a library for {kept}.",
        )
    return sorted(
        str(file)
        for file in place.rglob("*")
        if file.is_file() and not any(p.startswith(HIDDEN) for p in file.relative_to(place).parts)
    )


def _open(file: str) -> _File:
    """Read what a file says of itself. Raises RequestError if it is damaged, or not Parquet."""
    try:
        metadata = pq.read_metadata(file)
        schema = metadata.schema.to_arrow_schema()
        noted = base64.b64decode((metadata.metadata or {}).get(b"ARROW:schema", b""))
        for column in pa.ipc.read_schema(pa.BufferReader(noted)) if noted else ():
            i = schema.get_field_index(column.name)  # -1 where several have this name
            if i >= 0 and kinds.is_dictionary(column.type):
                schema = schema.set(i, column)
    except (pa.ArrowException, OSError) as error:
        if Path(file).suffix != ".parquet":
            raise RequestError(
                "bad_folder",
                f"{file} is no Parquet file.",
                "Move it out of the folder, or let its name begin with _ to have it passed over.",
            ) from error
        raise unreadable(file, error) from error
    return _File(file, metadata, schema)


def _read_folders(path: str, files: Sequence[_File]) -> None:
    """Give each file the values in the names of its folders, whole numbers as such."""
    for file in files:
        for part in Path(file.path).parts[len(Path(path).parts) : -1]:
            name, equals, value = map(unquote, part.partition("="))
            if equals:
                file.known[name] = None if value == NO_PARTITION else value
    for name in {name for file in files for name in file.known}:
        values = [file.known.get(name) for file in files]
        if all(value is not None and WHOLE_NUMBER.fullmatch(value) for value in values):
            for file in files:
                file.known[name] = int(file.known[name])


def _types_of(files: Sequence[_File]) -> tuple[dict[str, Any], set[str]]:
    """Find types that hold the columns of all files, and which columns are categories.

    Raises RequestError if a file has several columns of one name, if files have different columns,
    or if the types of a column have none in common.
    """
    common, categories = pa.schema([]), set()
    for file in files:
        twice = [name for name, n in Counter(file.schema.names).items() if n > 1]
        if twice:
            raise RequestError(
                "columns_differ",
                f"{file.path} has several columns {twice[0]!r}.",
                "Give each column a name of its own.",
            )
        found = {column.name: column.type for column in file.schema}
        for name, value in file.known.items():
            kind = pa.int64() if isinstance(value, int) else pa.string()
            found.setdefault(name, pa.dictionary(pa.int32(), kind))
        dictionaries = {name for name, kind in found.items() if kinds.is_dictionary(kind)}
        categories |= dictionaries
        found |= {name: found[name].value_type for name in dictionaries}
        other = sorted(found.keys() ^ set(common.names)) if file is not files[0] else []
        try:
            if other:
                raise pa.ArrowInvalid(f"only one of them has a column {other[0]!r}")
            both = [common, pa.schema(list(found.items()))]
            common = pa.unify_schemas(both, promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise RequestError(
                "columns_differ",
                f"{file.path} does not fit the files before it, such as {files[0].path}: {error}.",
                "All files of a folder need the same columns, of the same types.",
            ) from error
    return {column.name: column.type for column in common}, categories


def _with_nulls(files: Sequence[_File]) -> set[str]:
    """Find the columns that have nulls, as far as the files say so."""
    return {
        column.path_in_schema
        for file in files
        for group in map(file.metadata.row_group, range(file.metadata.num_row_groups))
        for column in map(group.column, range(group.num_columns))
        if column.statistics is not None and column.statistics.null_count
    }


def _is_aside(kind: Any) -> bool:
    """Whether a column of this type describes the samples."""
    return kind in TEXTS or bool(kinds.is_timestamp(kind) or kinds.is_date(kind))


def _item_type(kind: Any) -> Any:
    """Return the type of a list's items; any other type as it is."""
    lists = (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)
    return kind.value_type if any(is_kind(kind) for is_kind in lists) else kind


def _widths(files: Sequence[_File], lists: set[str]) -> dict[str, int]:
    """Return the length of the first list with items in each column; 0 if there is none."""
    widths = dict.fromkeys(lists, 0)
    for file in files:
        for arrays in file.batches(lists, LOOK_ROWS) if not all(widths.values()) else ():
            for name in lists:
                lengths = pc.list_value_length(arrays[name]).drop_null()
                widths[name] = widths[name] or next((n for n in lengths.to_pylist() if n), 0)
            if all(widths.values()):
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
            f"{path} has a column {twice!r}, as a feature made of the lists in {name!r} is called.",
            Text(
                "If it describes the samples, say {coordinates}; else give it another name.",
                coordinates=twice,
            ),
        )
    return labels


def _dtype(kind: Any, path: str, name: str, gaps: set[str]) -> np.dtype[Any]:
    """Return the dtype to store numbers of this type in. Raises RequestError for other types.

    Integers and truth values of columns with ``gaps`` become float64.
    """
    whole = kinds.is_boolean(kind) or kinds.is_integer(kind)
    if kinds.is_decimal(kind) or kinds.is_null(kind) or (whole and name in gaps):
        return np.dtype(np.float64)
    if whole or kinds.is_floating(kind):
        found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return found
    raise RequestError(
        "bad_dtype",
        f"Column {name!r} of {path} holds {kind}: neither a number nor text nor a time.",
        "Leave it out of the file, or store each of its parts as a column of numbers.",
    )


def _coordinate(kind: Any, path: str, name: str, gaps: set[str]) -> Coordinate:
    if kind in TEXTS:
        return Coordinate(name, TEXT, EMPTY_TEXT)
    if not _is_aside(kind):
        return Coordinate(name, _dtype(kind, path, name, gaps))
    since = {"units": f"{UNITS[_timestamp(kind).unit]} since 1970-01-01"}
    return Coordinate(name, np.dtype(np.int64), since | {"calendar": "proleptic_gregorian"})


def _timestamp(kind: Any) -> Any:
    return pa.timestamp("s" if kind == pa.date32() else getattr(kind, "unit", "ms"))


def _blocks(
    files: Sequence[_File],
    types: Mapping[str, Any],
    features: list[str],
    widths: Mapping[str, int],
    coordinates: Mapping[str, Coordinate],
    dtype: np.dtype[Any] | None,
    rows: int,
) -> Iterator[Block]:
    described = {c.column for c in coordinates.values()}
    start = 0
    for file in files:
        for arrays in file.batches({*features, *described}, rows):
            columns = [
                _vectors(arrays[name], widths[name], dtype, name, start)
                if name in widths
                else _numbers(arrays[name], dtype, name)
                for name in features
            ]
            yield {VALUES: np.column_stack(columns)} | {
                stored: _described(arrays[c.column], types[c.column], c)
                for stored, c in coordinates.items()
            }
            start += len(columns[0])


def _vectors(
    array: Any, width: int, dtype: np.dtype[Any] | None, name: str, start: int
) -> NDArray[Any]:
    """Turn lists, of which the first is in row ``start``, into (rows, width) numbers."""
    lengths = pc.list_value_length(array).fill_null(-1).to_numpy()
    if (lengths != width).any():
        row = int(np.argmax(lengths != width))
        found = "null" if lengths[row] < 0 else f"a list of {lengths[row]}"
        raise RequestError(
            "ragged_rows",
            f"Column {name!r} holds {found} where others are lists of {width}: row {start + row} "
            "(counted from 0).",
            "Leave out rows without a list; the others need the same length.",
        )
    return _numbers(array.flatten(), dtype, name).reshape(len(array), width)


def _numbers(array: Any, dtype: np.dtype[Any] | None, name: str) -> NDArray[Any]:
    """Convert a column to ``dtype``, or round it to float64 if that is None; nulls become NaN."""
    if dtype is not None and kinds.is_integer(array.type):
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


def _described(array: Any, kind: Any, coordinate: Coordinate) -> NDArray[Any]:
    """Convert a coordinate of some samples to what is stored."""
    if coordinate.dtype == TEXT:
        return np.array(["" if x is None else str(x) for x in array.to_pylist()], dtype=object)
    if not _is_aside(kind):
        decoded = array.dictionary_decode() if kinds.is_dictionary(array.type) else array
        return _numbers(decoded, coordinate.dtype, coordinate.column)
    times = array.cast(kind).cast(_timestamp(kind)).to_numpy(zero_copy_only=False)
    last = np.datetime64(LAST_SECOND, "s")
    outside = (times > last) | (times < np.datetime64(-LAST_SECOND, "s"))  # not so of NaT
    if outside.any():
        raise RequestError(
            "does_not_fit_dtype",
            f"Column {coordinate.column!r} holds {times[outside][0]}, outside of 1678 to 2262.",
            "Leave the column out, convert it to text, or leave such dates empty.",
        )
    return np.asarray(times.view(np.int64))

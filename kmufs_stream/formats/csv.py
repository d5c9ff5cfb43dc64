"""Comma- and tab-separated text, read by pyarrow: numbers as float64, all else as it is written."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from kmufs_stream.errors import RequestError, Text
from kmufs_stream.formats.blocks import OTHER_DTYPE, VALUES, Block, ForeignTable, unreadable
from kmufs_stream.formats.columns import (
    EMPTY_TEXT,
    TEXT,
    Coordinate,
    check_columns,
    check_features,
    keep_whole,
    stored_names,
)
from kmufs_stream.formats.dialect import (
    COMMA_NUMBER,
    OPEN_QUOTE,
    Dialect,
    TextBytes,
    check_rows,
    dialect_of,
    rows_of,
)
from kmufs_stream.sources.casting import WHOLE, cast
from kmufs_stream.streaming.planning.sizing import MB

BLOCK_BYTES = MB  # of text, parsed at a time
BLOCK_ROWS = 32  # or so many rows like the first, if these are more
HELD_BLOCKS = 8  # that pyarrow holds
COLUMN_BYTES = 20_000  # that pyarrow holds for each column
LOOK_ROWS = 100  # to recognise the dialect
SHOWN = 5  # columns of a kind, in messages
MISSING = (*csv.ConvertOptions().null_values, "<NA>", "None")  # as in pandas; of text, only ""
NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity|nan))$"
INTEGER = r"^-?\d+$"
TRUTH = r"^(True|TRUE|true|False|FALSE|false)$"
LEADING_ZERO = r"^-?0\d"  # a code such as 00123
FIELDS = {bool: TRUTH, np.int64: INTEGER, np.float64: NUMBER}  # the narrowest dtype first


@dataclass(frozen=True)
class _Text:
    """A text table, whose columns go by their numbers, as names may repeat.

    ``header`` is as wide as the rows: where R leaves out the name of a column, it is "".
    ``start`` lines are above the first row; pyarrow parses ``block`` bytes at a time.
    """

    path: str
    dialect: Dialect
    header: list[str]
    start: int
    block: int

    def batches(self, types: Mapping[int, Any], skip: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield columns of some rows, as float64 or as the text that is written.

        Raises ArrowInvalid for a field that is no number, and RequestError for rows that make no
        table.
        """
        separator, width, block = self.dialect.separator, len(self.header), self.block
        parse = csv.ParseOptions(
            delimiter=separator,
            newlines_in_values=True,
            invalid_row_handler=lambda row: "error" if row.text.strip(" ") else "skip",
        )
        convert = csv.ConvertOptions(
            column_types={str(i): kind for i, kind in types.items()},
            include_columns=[str(i) for i in types],
            null_values=MISSING,
            decimal_point=self.dialect.decimal,
        )
        while True:
            read = csv.ReadOptions(
                column_names=[str(i) for i in range(width)],
                skip_rows=self.start,
                skip_rows_after_names=skip,
                block_size=block,
            )
            try:
                with TextBytes(self.path) as file:
                    for batch in csv.open_csv(file, read, parse, convert):
                        yield batch
                        skip += len(batch)
            except pa.ArrowInvalid as error:
                if "conversion error to double" in str(error):
                    raise
                if "straddling" not in str(error) or block >= OPEN_QUOTE:
                    check_rows(self.path, separator, width)
                    raise unreadable(self.path, error) from error
                block *= 4  # a row is longer
            else:
                if file.quotes % 2:
                    check_rows(self.path, separator, width)
                return

    def known(self, written: Any) -> Any:
        """Return the text of numbers, null where they are missing."""
        text = pc.utf8_trim_whitespace(written)
        if self.dialect.decimal != ".":  # a point may stand between thousands: it is no number
            text = pc.replace_substring(text, ".", "?")
            text = pc.replace_substring(text, self.dialect.decimal, ".")
        missing = pc.is_in(written, pa.array(MISSING))
        return pc.if_else(missing, None, pc.replace_substring_regex(text, r"^\+", ""))

    def plain(self, written: Any) -> NDArray[np.float64] | None:
        """Convert the text of numbers without gaps, and quickly; return None for other text."""
        if self.dialect.decimal == ".":
            with contextlib.suppress(pa.ArrowInvalid):
                values: NDArray[np.float64] = written.cast("float64").to_numpy()
                return values
        return None

    def kind(self, i: int, written: Any) -> Any:
        """Return the type of a column: float64, bool or string.

        Raises RequestError if it holds numbers beside text.
        """
        known = None if self.plain(written) is not None else self.known(written)
        if known is None or _all(known, NUMBER):
            return pa.float64()
        number = pc.match_substring_regex(known, NUMBER)
        if pc.any(number).as_py():
            raise not_numeric(self.path, self.header[i], written.filter(pc.invert(number))[0])
        return pa.bool_() if _all(known, TRUTH) else pa.string()

    def numbers(self, i: int, written: Any, dtype: np.dtype[Any], exact: bool) -> NDArray[Any]:
        """Convert the text of a feature; if ``exact``, integers are not rounded but refused."""
        name = self.header[i]
        source, values = f"Column {name!r} of {self.path}", self.plain(written)
        if values is not None and not (exact and (np.abs(values) >= WHOLE).any()):
            return cast(values, dtype, source, OTHER_DTYPE)
        kind, known = self.kind(i, written), self.known(written)
        if kind == pa.string():
            raise not_numeric(self.path, name, written.filter(known.is_valid())[0])
        values = known.cast(kind).cast("float64").to_numpy(zero_copy_only=False)
        gaps = known.null_count > 0
        whole = dtype.kind in "iu"
        large = exact and bool((np.abs(values) >= WHOLE).any())
        if large and not (whole and gaps) and _all(known, INTEGER):
            least, most = (np.iinfo(dtype).min, np.iinfo(dtype).max) if whole else (-WHOLE, WHOLE)
            for value in map(int, known.drop_null().to_pylist()):
                if not least <= value <= most:
                    raise RequestError(
                        "does_not_fit_dtype",
                        f"{source} holds {value}, which {dtype} does not.",
                        OTHER_DTYPE if whole else keep_whole(name, gaps=gaps),
                    )
            if whole:
                values = known.cast(pa.from_numpy_dtype(dtype)).to_numpy()
        return cast(values, dtype, source, OTHER_DTYPE)

    def described(self, written: Any, dtype: Any) -> NDArray[Any]:
        """Convert a coordinate of the samples to what is stored."""
        if dtype is not str:
            written = self.known(written).cast(pa.from_numpy_dtype(np.dtype(dtype)))
        values: NDArray[Any] = written.to_numpy(zero_copy_only=False)
        return values


def open_csv(
    path: str, index_column: str | None, asked: Sequence[str], wanted: np.dtype[Any] | None
) -> ForeignTable:
    """Open a text table: the header names the features, values are float64, empty fields NaN.

    The first rows show what separates fields and decimals: see :func:`dialect_of`. Raises
    RequestError for integers that float64 would round, unless a dtype is ``wanted``: integers are
    then read as such, or rounded to floating point.

    ``index_column`` names the samples; so does a first column without a name, as pandas and R
    write it (R with a header that is one field shorter than the rows). Columns whose first values
    are text, and those ``asked`` for, become coordinates of the samples; if some are asked for, the
    file is read twice. Compressed files are read directly.
    """
    text = _open_text(path)
    header = text.header
    if index_column is None and header[0] == "":
        index_column = ""
    check_columns(path, header, index_column, asked)
    index = None if index_column is None else header.index(index_column)
    chosen = [i for i, name in enumerate(header) if name in asked and i != index]
    dtypes: dict[int, Any] = _dtypes(text, chosen) if chosen else {}
    if index is not None:
        dtypes[index] = str
    first = next(text.batches(dict.fromkeys(range(len(header)), pa.string())))
    kinds = {i: text.kind(i, first[i]) for i in range(len(header)) if i not in dtypes}
    texts = [i for i, kind in kinds.items() if kind == pa.string()]
    dtypes |= dict.fromkeys(texts, str)
    features = [i for i in kinds if i not in dtypes]
    check_features(path, features)
    described = {i: header[i] for i in sorted(dtypes) if i != index}
    columns = stored_names(described, index)
    coordinates = {
        name: Coordinate(header[i], TEXT, {} if i == index else EMPTY_TEXT)
        if dtypes[i] is str
        else Coordinate(header[i], np.dtype(dtypes[i]))
        for name, i in columns.items()
    }
    commas = [
        f"{header[i]!r}: numbers with commas are text; write decimals with a point, and nothing "
        "between thousands."
        for i in texts
        if all(COMMA_NUMBER.fullmatch(field) for field in first[i].to_pylist() if field)
    ]
    whole = wanted is not None and wanted.kind in "iu"
    dtype = wanted if wanted is not None and whole else np.dtype(np.float64)
    read_as = [pa.string()] if pa.bool_() in kinds.values() else [pa.float64(), pa.string()]
    return ForeignTable(
        path,
        (len(features),),
        dtype,
        partial(_blocks, text, features, read_as, columns, dtypes, dtype, whole or wanted is None),
        np.array([header[i] for i in features], dtype=object),
        coordinates,
        held=HELD_BLOCKS * text.block + COLUMN_BYTES * len(header),
        notes=[*text.dialect.notes, *_header_notes(header), *commas],
    )


def _open_text(path: str) -> _Text:
    """Find the dialect, the header and the first row. Raises RequestError if there is no row."""
    dialect = dialect_of(path, LOOK_ROWS)
    (_, header), *below = itertools.islice(rows_of(path, dialect.separator), 2)
    if not below:
        raise RequestError(
            "no_samples", f"{path} holds no rows below its header.", "Give a table with samples."
        )
    line, row = below[0]
    if len(row) == len(header) + 1 and row[-1]:
        header = ["", *header]
    size = sum(len(field.encode()) + 1 for field in row)
    return _Text(path, dialect, header, line - 1, max(BLOCK_ROWS * size, BLOCK_BYTES))


def _header_notes(header: Sequence[str]) -> list[str]:
    """Warn about columns with the same name, and about names that are numbers."""
    twice = [repr(name) for name, n in Counter(header).items() if n > 1]
    notes = [f"Several columns are called {', '.join(twice)}: each is kept."] if twice else []
    numbers = pd.to_numeric(pd.Series(header), errors="coerce")
    if numbers.notna().all() and not numbers.is_monotonic_increasing:  # as wavelengths are
        notes.append(
            f"The names of all columns are numbers ({', '.join(header[:SHOWN])}): if that line is "
            "a sample, put a line of names above it."
        )
    return notes


def _blocks(
    text: _Text,
    features: list[int],
    kinds: Sequence[Any],
    columns: Mapping[str, int],
    dtypes: Mapping[int, Any],
    dtype: np.dtype[Any],
    exact: bool,
    rows: int,
) -> Iterator[Block]:
    """Yield blocks as pyarrow parses them.

    Features are read as float64; as text from where one is of truth values or no number, or float64
    may have rounded an integer.
    """
    done = 0
    for kind in kinds:
        types = dict.fromkeys(features, kind) | dict.fromkeys(dtypes, pa.string())
        try:
            for batch in text.batches(types, done):
                if kind == pa.float64():
                    tensor = batch.select([str(i) for i in features]).to_tensor(null_to_nan=True)
                    values = tensor.to_numpy()
                    if exact and (np.abs(values) >= WHOLE).any():
                        break
                    values = cast(values, dtype, text.path, OTHER_DTYPE)
                else:
                    written = ((i, batch[str(i)]) for i in features)
                    values = np.column_stack([text.numbers(*w, dtype, exact) for w in written])
                yield {VALUES: values} | {
                    name: text.described(batch[str(i)], dtypes[i]) for name, i in columns.items()
                }
                done += len(batch)
            else:
                return
        except pa.ArrowInvalid:
            if kind == pa.string():
                raise


def _dtypes(text: _Text, columns: list[int]) -> dict[int, Any]:
    """Find the narrowest of bool, int64, float64 and str that holds all of a column."""
    left: dict[int, list[Any]] = {i: list(FIELDS) for i in columns}
    for batch in text.batches(dict.fromkeys(columns, pa.string())):
        for i, dtypes in left.items():
            known = text.known(batch[str(i)])
            left[i] = [dtype for dtype in dtypes if _holds(dtype, known)]
    return {i: next(iter(dtypes), str) for i, dtypes in left.items()}


def _holds(dtype: Any, known: Any) -> bool:
    """Whether a dtype holds the text of numbers, or of truth values, without loss."""
    if known.null_count and dtype is not np.float64:
        return False
    code = pc.match_substring_regex(known, LEADING_ZERO)
    if pc.any(code).as_py() or not _all(known, FIELDS[dtype]):
        return False
    try:
        values = known.cast(pa.from_numpy_dtype(np.dtype(dtype))).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return False
    rounds = dtype is np.float64 and _all(known, INTEGER)
    return not (rounds and (np.abs(values) >= WHOLE).any())


def _all(known: Any, pattern: str) -> bool:
    """Whether all texts, but for nulls, match a regular expression."""
    return bool(pc.all(pc.match_substring_regex(known, pattern), min_count=0).as_py())


def not_numeric(path: str, column: str, value: Any) -> RequestError:
    field = value.as_py()
    if COMMA_NUMBER.fullmatch(field):
        what = f"if {field!r} is a number, write its decimals with a point"
    else:
        what = f"if {field!r} stands for what is missing, leave such fields empty"
    return RequestError(
        "bad_dtype",
        f"Column {column!r} of {path} does not hold numbers alone: there is {field!r}.",
        Text("If it describes the samples, say {coordinates}; {}.", what, coordinates=column),
    )

"""Comma- and tab-separated text, read by pandas; ``rows`` checks that all rows are as wide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from packaging.version import Version

from kmufs_stream.errors import RequestError, Text
from kmufs_stream.formats.blocks import OTHER_DTYPE, VALUES, Block, ForeignTable
from kmufs_stream.formats.columns import (
    SAMPLE,
    TEXT,
    Coordinate,
    check_columns,
    check_features,
    keep_whole,
    stored_names,
)
from kmufs_stream.formats.dialect import COMMA_NUMBER, Dialect, dialect_of
from kmufs_stream.formats.rows import CheckedText, first_rows, other_separator
from kmufs_stream.sources.casting import WHOLE, cast
from kmufs_stream.streaming.planning.sizing import MB

# Parse numbers exactly, as pandas 3.1 does by default; it deprecates the option.
EXACT: dict[str, Any] = (
    {} if Version(pd.__version__) >= Version("3.1") else {"float_precision": "round_trip"}
)
NULLABLE = {np.int64: pd.Int64Dtype()}  # beside nullable dtypes pandas rounds plain int64
LOOK_FIELDS = 100_000  # read to recognise columns of text
LOOK_ROWS = 100  # of them at a time, and at least
LOOK_BYTES = 8 * MB  # at most, after these rows
SHOWN = 5  # columns of a kind, in messages
MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
"""Missing numbers, as in pandas; of text, only an empty field is missing."""
LEADING_ZERO = r"[+-]?0\d.*"  # a code such as 00123
HELD: dict[Any, set[str]] = {
    bool: {"bool"},
    np.int64: {"whole", "long"},
    np.float64: {"whole", "real", "missing"},
    str: {"bool", "whole", "long", "real", "missing", "text"},
}
"""The kinds of fields that each dtype can hold, the narrowest dtype first."""


@dataclass(frozen=True)
class _Text:
    """A text table, whose columns go by their numbers, as names may repeat.

    ``header`` is as wide as the rows: where R leaves out the name of a column, it is "".
    """

    path: str
    dialect: Dialect
    header: list[str]

    def frames(
        self, rows: int, dtypes: Mapping[int, Any], missing: Mapping[int, Any], **options: Any
    ) -> Iterator[Any]:
        """Yield frames of so many rows; columns without a dtype get that of their frame.

        ``missing`` holds the texts of missing values, for columns where these are not MISSING.
        """
        columns = range(len(self.header))
        na_values: Any = {i: missing.get(i, MISSING) for i in columns} if missing else MISSING
        with CheckedText(self.path, self.dialect.separator, len(self.header)) as text:
            options = {"na_values": na_values, **EXACT, **options}
            for frame in pd.read_csv(
                text,  # type: ignore[call-overload]
                sep=self.dialect.separator,
                decimal=self.dialect.decimal,
                header=0,
                names=list(columns),
                index_col=False,
                dtype={i: NULLABLE.get(d, d) for i, d in dtypes.items()},
                chunksize=rows,
                low_memory=False,  # else parts of a frame may get dtypes of their own
                dtype_backend="numpy_nullable",  # integers beside gaps are not rounded
                keep_default_na=False,
                **options,
            ):
                for i in text.extremes.keys() - dtypes.keys():
                    if frame[i].dtype.kind in "iu" and frame[i].hasnans:
                        raise _extreme(self.path, self.header[i], text.extremes[i])
                yield frame

    def typed(self, rows: int, dtypes: Mapping[int, Any]) -> Iterator[Any]:
        """Yield the same; of text, only an empty field is missing."""
        return self.frames(rows, dtypes, {i: [""] for i, d in dtypes.items() if d is str})

    def numbers(self, written: pd.Series[Any]) -> pd.Series[Any]:
        """Parse texts as numbers, NaN where they are none."""
        if self.dialect.decimal != ".":
            written = written.str.replace(self.dialect.decimal, ".", regex=False)
        return pd.to_numeric(written, errors="coerce")

    @property
    def look_rows(self) -> int:
        """Rows to read at the beginning."""
        return max(LOOK_FIELDS // len(self.header), LOOK_ROWS)


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
    dialect = dialect_of(path, LOOK_ROWS)
    header, *below = first_rows(path, dialect.separator, 2)
    if below and len(below[0]) == len(header) + 1 and below[0][-1]:
        header = ["", *header]
    if index_column is None and header[0] == "":
        index_column = ""
    check_columns(path, header, index_column, asked)
    table = _Text(path, dialect, header)
    index = None if index_column is None else header.index(index_column)
    chosen = [i for i, name in enumerate(header) if name in asked and i != index]
    dtypes: dict[int, Any] = _dtypes(table, chosen) if chosen else {}
    if index is not None:
        dtypes[index] = str
    others = [i for i in range(len(header)) if i not in dtypes]
    first = _first(table, dtypes)
    if first.empty:
        raise RequestError(
            "no_samples", f"{path} holds no rows below its header.", "Give a table with samples."
        )
    dtypes |= {i: str for i in others if _is_text(first[i], table, i)}
    features = [i for i in others if i not in dtypes]
    commas = _with_commas(table, first, [i for i in others if i in dtypes])
    check_features(path, features, other_separator(header) or commas)
    described = [i for i in sorted(dtypes) if i != index]
    names = stored_names((header[i] for i in described), named=index is not None)
    columns = dict(zip(names, described, strict=True))
    coordinates = {name: _coordinate(header[i], dtypes[i]) for name, i in columns.items()}
    if index is not None:
        columns[SAMPLE] = index
        coordinates = {SAMPLE: Coordinate(header[index], TEXT)} | coordinates
    return ForeignTable(
        path,
        (len(features),),
        wanted if wanted is not None and wanted.kind in "iu" else np.dtype(np.float64),
        partial(_blocks, table, features, columns, dtypes, wanted),
        np.array([header[i] for i in features], dtype=object),
        coordinates,
        notes=[*dialect.notes, *_header_notes(header), *([commas] if commas else [])],
    )


def _with_commas(table: _Text, first: pd.DataFrame, texts: list[int]) -> str | None:
    """Warn about columns that are text because their numbers have commas."""
    found = [i for i in texts if first[i].dropna().str.fullmatch(COMMA_NUMBER).all()]
    if not found:
        return None
    names = ", ".join(repr(table.header[i]) for i in found[:SHOWN])
    number = first[found[0]].dropna().iloc[0]
    return (
        f"{names}: numbers with commas, such as {number!r}, are text; write decimals with a point, "
        "and nothing between thousands."
    )


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


def _first(table: _Text, dtypes: Mapping[int, Any]) -> pd.DataFrame:
    """Read the first ``look_rows``, or fewer if they take more than LOOK_BYTES."""
    frames, rows, held = [], 0, 0
    for frame in table.typed(LOOK_ROWS, dtypes):
        frames.append(frame)
        rows += len(frame)
        held += int(frame.memory_usage(deep=True).sum())
        if rows >= table.look_rows or held > LOOK_BYTES:
            break
    first: pd.DataFrame = pd.concat(frames, ignore_index=True)
    return first


def _coordinate(column: str, dtype: Any) -> Coordinate:
    return Coordinate.text(column) if dtype is str else Coordinate(column, np.dtype(dtype))


def _blocks(
    table: _Text,
    features: list[int],
    columns: Mapping[str, int],
    dtypes: Mapping[int, Any],
    wanted: np.dtype[Any] | None,
    rows: int,
) -> Iterator[Block]:
    for frame in table.typed(rows, dtypes):
        values = frame[features]
        for i in values.columns[[dtype.kind not in "biuf" for dtype in values.dtypes]]:
            if _is_text(frame[i], table, i):  # else it is empty, or holds truth values with gaps
                raise not_numeric(table.path, table.header[i], frame[i].dropna().iloc[0])
        yield {VALUES: _numbers(values, table, wanted)} | {
            name: _described(frame[i], dtypes[i]) for name, i in columns.items()
        }


def _numbers(values: pd.DataFrame, table: _Text, wanted: np.dtype[Any] | None) -> NDArray[Any]:
    """Convert features to float64, or to the integers that are wanted."""
    numbers = values.to_numpy(np.float64, na_value=np.nan)
    if wanted is not None and wanted.kind not in "iu":
        return numbers
    dtype = wanted or np.dtype(np.float64)
    if not (np.abs(numbers) >= WHOLE).any():
        return cast(numbers, dtype, table.path, OTHER_DTYPE, exactly=True)
    columns = []
    for j, i in enumerate(values.columns.to_numpy()):
        column, name = numbers[:, j], table.header[int(i)]
        source = f"Column {name!r} of {table.path}"
        if values[i].dtype.kind in "iu":
            known = values[i].dropna()
            gaps = len(known) < len(column)
            whole = known.to_numpy(known.dtype.numpy_dtype)
            whole = cast(whole, dtype, source, keep_whole(name, gaps=gaps), exactly=True)
            column = column if gaps else whole
        columns.append(cast(column, dtype, source, OTHER_DTYPE, exactly=True))
    return np.column_stack(columns)


def _described(values: pd.Series[Any], dtype: Any) -> NDArray[Any]:
    return values.fillna("").to_numpy(object) if dtype is str else values.to_numpy(dtype)


def _is_text(values: pd.Series[Any], table: _Text, i: int) -> bool:
    """Whether column ``i`` holds text. Raises RequestError if it holds numbers too."""
    if values.dtype.kind in "biuf":
        return False
    known = values.dropna()
    if all(isinstance(value, bool) for value in known):
        return False
    path, column = table.path, table.header[i]
    numbers = table.numbers(known)
    text = numbers.isna()
    if not text.any():
        large = known.iloc[int(np.abs(numbers.to_numpy(np.float64)).argmax())]
        raise RequestError(
            "bad_dtype",
            f"Column {column!r} of {path} holds {large}: its integers do not fit into 64 bits.",
            Text(
                "If it describes the samples, say {coordinates}; else write it as "
                "floating point (1e20).",
                coordinates=column,
            ),
        )
    if not text.all():
        raise not_numeric(path, column, known[text].iloc[0])
    return True


def _dtypes(table: _Text, columns: list[int]) -> dict[int, Any]:
    """Find the narrowest of bool, int64, float64 and str that holds all of a column."""
    found: dict[int, set[Any]] = {i: set() for i in columns}
    for frame in table.frames(table.look_rows, dict.fromkeys(columns, str), {}, usecols=columns):
        for i, kinds in found.items():
            kinds.update(_kinds(frame[i], table))
    return {i: next(d for d, held in HELD.items() if kinds <= held) for i, kinds in found.items()}


def _kinds(written: pd.Series[Any], table: _Text) -> set[str]:
    """Tell which kinds of fields, of those in HELD, there are among some."""
    known = written.dropna()
    kinds = {"missing"} if len(known) < len(written) else set()
    if not len(known):
        return kinds
    numbers = table.numbers(known)
    if numbers.isna().any():
        return kinds | ({"bool"} if known.str.lower().isin(["true", "false"]).all() else {"text"})
    if known.str.fullmatch(LEADING_ZERO).any():
        return kinds | {"text"}
    if numbers.dtype.kind == "i":
        return kinds | {"whole" if numbers.abs().max() <= WHOLE else "long"}
    return kinds | {"text" if numbers.dtype.kind == "u" else "real"}


def not_numeric(path: str, column: str, value: object) -> RequestError:
    if isinstance(value, str) and COMMA_NUMBER.fullmatch(value):
        what = f"if {value!r} is a number, write its decimals with a point"
    else:
        what = f"if {value!r} stands for what is missing, leave such fields empty"
    return RequestError(
        "bad_dtype",
        f"Column {column!r} of {path} does not hold numbers alone: there is {value!r}.",
        Text("If it describes the samples, say {coordinates}; {}.", what, coordinates=column),
    )


def _extreme(path: str, column: str, value: str) -> RequestError:
    """The error for an integer that pandas takes for a missing one."""
    return RequestError(
        "bad_dtype",
        f"Column {column!r} of {path} holds {value}, which among integers is read as missing.",
        Text(
            "If it stands for what is missing, leave such fields empty; if the "
            "column describes the samples, say {coordinates}; else write the column "
            "as floating point ({!r}).",
            float(value),
            coordinates=column,
        ),
    )

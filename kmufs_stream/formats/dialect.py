"""Recognise how a text table is written, and find the row that makes it none."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, TextIO, cast

import fsspec

from kmufs_stream.errors import RequestError, counted

SEPARATORS = ";|\t"  # besides commas
OPEN_QUOTE = 2**26  # characters after which a quote counts as never closed
COMMA_NUMBER = re.compile(r"[+-]?\d*,\d+(e[+-]?\d+)?", re.IGNORECASE)
POINT_NUMBER = re.compile(r"[+-]?\d*\.\d+(e[+-]?\d+)?", re.IGNORECASE)
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")  # 1,234 may be either
BOTH = re.compile(r"[+-]?\d{1,3}(\.\d{3})+,\d+")  # 1.234,5


@dataclass(frozen=True)
class Dialect:
    """How a text table is to be read.

    Attributes
    ----------
    separator, decimal : one character each.
    notes : warnings for the user, if these are not what the name of the file says.
    """

    separator: str
    decimal: str = "."
    notes: tuple[str, ...] = ()


class TextBytes(io.RawIOBase):
    """The bytes of a text file, decompressed; an odd number of ``quotes`` may be an open one.

    Raises RequestError for NUL characters.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = cast(BinaryIO, fsspec.open(path, "rb", compression="infer").open())
        self.quotes = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.quotes += data.count(b'"')
        if b"\0" in data:
            raise not_utf8(self._path)
        return data

    def close(self) -> None:
        self._file.close()
        super().close()


def open_text(path: str) -> TextIO:
    """Open a file as text, decompressed, with its line ends as they are."""
    opened = fsspec.open(
        path, "rt", encoding="utf-8-sig", newline="", compression="infer", errors="strict"
    )
    return cast(TextIO, opened.open())


def rows_of(path: str, separator: str, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank, each with the number of its first line.

    Raises RequestError for text that is not UTF-8 and, if ``strict``, for quotes that stay open.
    """
    limit = csv.field_size_limit(OPEN_QUOTE)  # of the whole process
    line = 1
    with open_text(path) as file:
        rows = csv.reader(file, delimiter=separator, strict=strict)
        try:
            for row in rows:
                if row and (len(row) > 1 or row[0] == "" or row[0].strip()):  # "" is a field
                    yield line, row
                line = rows.line_num + 1
        except UnicodeDecodeError as error:
            raise not_utf8(path) from error
        except csv.Error as error:
            raise RequestError(
                "unreadable",
                f"Line {line} of {path} opens a quote that is not closed, or is closed within "
                f"a field: {error}.",
                "Close it; a quote within a quoted field is written twice.",
            ) from error
        finally:
            csv.field_size_limit(limit)


def check_rows(path: str, separator: str, width: int) -> None:
    """Raise RequestError for the first row that has not ``width`` fields, or an open quote."""
    for line, row in itertools.islice(rows_of(path, separator, strict=True), 1, None):
        if len(row) != width:
            raise RequestError(
                "ragged_rows",
                f"Line {line} of {path} has {counted(len(row), 'fields')} where its header makes "
                f"it {width:,}.",
                "Give every row as many fields as the header; text with separators goes in quotes.",
            )


def dialect_of(path: str, rows: int) -> Dialect:
    """Recognise the dialect from the name of a text table and its first rows.

    Fields are separated by commas, or by tabs in a ``.tsv``; if the header and the row below hold
    none, but both hold the same one of semicolon, bar and tab, by that. Commas that do not separate
    fields may begin decimals.

    Raises RequestError if the file is empty, if commas may as well separate thousands, or points
    begin decimals too.
    """
    usual = "\t" if ".tsv" in path.lower() else ","
    separator = _separator(path, usual)
    if separator == ",":
        return Dialect(separator)
    first = itertools.islice(rows_of(path, separator), 1, rows + 1)
    fields = [field.strip() for _, row in first for field in row]
    commas = [f for f in fields if "," in f and _is_one_of(f, COMMA_NUMBER, THOUSANDS, BOTH)]
    said = f"Fields are separated by {separator!r}"
    if not commas:
        return Dialect(separator, notes=() if separator == usual else (f"{said}.",))
    point = next((f for f in fields if "." in f and _is_one_of(f, POINT_NUMBER, BOTH)), None)
    if point is not None or all(map(THOUSANDS.fullmatch, commas)):
        raise RequestError(
            "ambiguous_decimals",
            f"Numbers in {path} have commas, such as {commas[0]!r}, "
            + (f"and points, such as {point!r}." if point else "for decimals or thousands."),
            "Write decimals with a point, and nothing between thousands.",
        )
    return Dialect(separator, ",", (f"{said}, and decimals begin with a comma: {commas[0]}.",))


def _is_one_of(field: str, *kinds: re.Pattern[str]) -> bool:
    return any(kind.fullmatch(field) for kind in kinds)


def _separator(path: str, usual: str) -> str:
    first = [row for _, row in itertools.islice(rows_of(path, usual), 2)]
    if not first:
        raise RequestError("no_samples", f"{path} is empty.", "Give a table with samples.")
    header, *below = first
    if len(header) > 1 or not below:
        return usual
    others = [c for c in SEPARATORS if c in header[0] and c in usual.join(below[0])]
    return others[0] if len(others) == 1 else usual


def not_utf8(path: str) -> RequestError:
    return RequestError(
        "unreadable",
        f"{path} is not UTF-8 text, or holds NUL characters.",
        "It is damaged, or in another encoding: save it as UTF-8; spreadsheets offer that as "
        "'CSV UTF-8'.",
    )

"""Text of a table on its way to pandas, which fills up short rows and cuts long ones unasked."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TextIO, cast

import fsspec

from kmufs_stream.errors import RequestError, counted

SEPARATORS = ";|\t"  # besides commas
SHOWN = 40  # letters of a header
OPEN_QUOTE = 2**26  # characters, after which a quote counts as never closed
EXTREMES = ("9223372036854775808", "18446744073709551615")  # what follows is looked for near these
EXTREME = re.compile(r"\s*(-0*9223372036854775808|\+?0*18446744073709551615)\s*")


def open_text(path: str) -> TextIO:
    """The file as text, unpacked, with its line ends as they are."""
    opened = fsspec.open(
        path, "rt", encoding="utf-8-sig", newline="", compression="infer", errors="strict"
    )
    return cast(TextIO, opened.open())


def first_rows(path: str, separator: str, rows: int) -> list[list[str]]:
    """The fields of the first rows that are not blank; RequestError where there are none."""
    found: list[list[str]] = []
    limit = csv.field_size_limit(OPEN_QUOTE)  # of the whole process
    with open_text(path) as file:
        try:
            for row in csv.reader(file, delimiter=separator):
                if len(row) > 1 or (row and row[0].strip()):
                    found.append(row)
                if len(found) == rows:
                    break
        except UnicodeDecodeError as error:
            raise not_utf8(path) from error
        finally:
            csv.field_size_limit(limit)
    if not found:
        raise RequestError("no_samples", f"{path} is empty.", "Give a table with samples.")
    return found


class CheckedText:
    """A text file to read from; each of its rows has ``width`` fields, but for the header.

    Raises RequestError from ``read`` for a row with more or fewer, a quote that stays open, NUL
    characters and text that is not UTF-8. Keeps the text of one row.

    Attributes
    ----------
    extremes : columns, by number, where a field so far was the least integer of 64 bits or the
        largest without sign, with that field: pandas before 3.1 marks missing integers by these.
    """

    def __init__(self, path: str, separator: str, width: int) -> None:
        self._path, self._separator, self._width = path, separator, width
        start = rf'(?:\A|(?<=[{separator}\n]))"'
        self._quoted = re.compile(rf'{start}[^"]*(?:""[^"]*)*"(?!")')
        self._opening = re.compile(start)
        self._file = open_text(path)
        self._waiting: list[str] = []  # the last row, as far as it was read
        self._lines = 0  # before it
        self._headed = False
        self.extremes: dict[int, str] = {}

    def __enter__(self) -> CheckedText:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[str]:
        """Lines; pandas asks whether there are."""
        return iter(self._file)

    def read(self, size: int = -1) -> str:
        """So many characters, once the rows that end in them are sound."""
        try:
            text = self._file.read(size)
        except UnicodeDecodeError as error:
            raise not_utf8(self._path) from error
        if "\0" in text:
            raise RequestError(
                "unreadable",
                f"{self._path} holds NUL characters.",
                "It is damaged, or not UTF-8 (UTF-16 holds them): save it as UTF-8.",
            )
        self._waiting.append(text)
        # Not between two characters that are one: "" in a quoted field, or the end of a line.
        if not text or (("\n" in text or "\r" in text) and text[-1] not in '"\r'):
            self._check(last=not text)
        return text

    def _check(self, *, last: bool) -> None:
        text = "".join(self._waiting)
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        opening = None
        if '"' in text:  # a NUL for each line inside of quotes keeps count
            text = self._quoted.sub(_shortened, text)
            opening = self._opening.search(text)
        stop = len(text) if opening is None else opening.start()
        if opening is not None and (last or len(text) - stop > OPEN_QUOTE):
            line = self._lines + 1 + text.count("\n", 0, stop) + text.count("\0", 0, stop)
            raise RequestError(
                "unreadable",
                f"Line {line} of {self._path} opens a quote that is not closed.",
                "Close it; a quote within a quoted field is written twice.",
            )
        end = len(text) if last else text.rfind("\n", 0, stop) + 1
        self._waiting = [text[end:]]
        if end:
            self._count(text[:end].removesuffix("\n"))

    def _count(self, text: str) -> None:
        rows = text.split("\n")
        if any(digits in text for digits in EXTREMES):
            for row in rows:
                for i, field in enumerate(row.split(self._separator)):
                    if EXTREME.fullmatch(field):
                        self.extremes[i] = field.strip()
        blank = " \t".replace(self._separator, "")
        for i, row in enumerate(rows):
            fields = row.count(self._separator) + 1
            if (fields == self._width and self._headed) or not row.strip(blank):
                continue
            if self._headed:
                line = self._lines + 1 + i + sum(r.count("\0") for r in rows[:i])
                raise self._ragged(line, fields)
            self._headed = True
        self._lines += len(rows) + text.count("\0")

    def _ragged(self, line: int, fields: int) -> RequestError:
        header = first_rows(self._path, self._separator, 1)[0]
        return RequestError(
            "ragged_rows",
            f"Line {line} of {self._path} has {counted(fields, 'fields')} where its header "
            f"makes it {self._width:,}.",
            other_separator(header)
            or "Give every row as many fields as the header; text with separators goes in quotes.",
        )


def _shortened(field: re.Match[str]) -> str:
    """A quoted field without separators, with a NUL for each of its line ends."""
    inside = field[0][1:-1]
    return inside if EXTREME.fullmatch(inside) else "Q" + "\0" * inside.count("\n")


def other_separator(header: Sequence[str]) -> str | None:
    """What to do about a header that is one field, with another separator in it; else None."""
    other = next((c for c in SEPARATORS if len(header) == 1 and c in header[0]), None)
    if other is None:
        return None
    return (
        f"Its header reads as one column, {header[0][:SHOWN]!r}: write the fields with commas "
        f"between them, not {other!r}, and decimals with a point (with tabs, in a file named .tsv)."
    )


def not_utf8(path: str) -> RequestError:
    """What is told of text in another encoding."""
    return RequestError(
        "unreadable",
        f"{path} is not UTF-8 text.",
        "Save it as UTF-8; spreadsheets offer that as 'CSV UTF-8'.",
    )

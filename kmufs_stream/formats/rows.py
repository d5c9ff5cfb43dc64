"""Check the rows of a text table before pandas, which fills up short rows and cuts long ones."""

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
OPEN_QUOTE = 2**26  # characters after which a quote counts as never closed
EXTREMES = ("9223372036854775808", "18446744073709551615")  # a quick test for EXTREME
EXTREME = re.compile(r"\s*(-0*9223372036854775808|\+?0*18446744073709551615)\s*")


def open_text(path: str) -> TextIO:
    """Open a file as text, decompressed, with its line ends as they are."""
    opened = fsspec.open(
        path, "rt", encoding="utf-8-sig", newline="", compression="infer", errors="strict"
    )
    return cast(TextIO, opened.open())


def first_rows(path: str, separator: str, rows: int) -> list[list[str]]:
    """Read the first rows that are not blank. Raises RequestError if there are none."""
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
    """A text file whose rows, but for the header, have ``width`` fields.

    ``read`` raises RequestError for a row with more or fewer, a quote that stays open, NUL
    characters and text that is not UTF-8. Holds the text of one row.

    Attributes
    ----------
    extremes : fields so far, by the number of their column, that are the least int64 or the largest
        uint64, by which pandas before 3.1 marks missing integers.
    """

    def __init__(self, path: str, separator: str, width: int) -> None:
        self._path, self._separator, self._width = path, separator, width
        start = rf'(?:\A|(?<=[{separator}\n]))"'
        self._quoted = re.compile(rf'{start}[^"]*(?:""[^"]*)*"(?!")')
        self._opening = re.compile(start)
        self._file = open_text(path)
        self._waiting: list[str] = []  # the last row as far as it was read
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
        """Yield lines; pandas asks for this method, but calls ``read``."""
        return iter(self._file)

    def read(self, size: int = -1) -> str:
        """Read so many characters, and check the rows that end in them."""
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
        # Not between two characters that belong together: "" in a quoted field, or a line end.
        if not text or (("\n" in text or "\r" in text) and text[-1] not in '"\r'):
            self._check(last=not text)
        return text

    def _check(self, *, last: bool) -> None:
        text = "".join(self._waiting)
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        opening = None
        if '"' in text:  # NULs in place of line ends inside quotes keep count
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
    """Replace a quoted field by one without separators, with a NUL for each line end."""
    inside = field[0][1:-1]
    return inside if EXTREME.fullmatch(inside) else "Q" + "\0" * inside.count("\n")


def other_separator(header: Sequence[str]) -> str | None:
    """Advise on a header that is one field, with another separator in it."""
    other = next((c for c in SEPARATORS if len(header) == 1 and c in header[0]), None)
    if other is None:
        return None
    return (
        f"Its header reads as one column, {header[0][:SHOWN]!r}: write the fields with commas "
        f"between them, not {other!r}, and decimals with a point (with tabs, in a file named .tsv)."
    )


def not_utf8(path: str) -> RequestError:
    return RequestError(
        "unreadable",
        f"{path} is not UTF-8 text.",
        "Save it as UTF-8; spreadsheets offer that as 'CSV UTF-8'.",
    )

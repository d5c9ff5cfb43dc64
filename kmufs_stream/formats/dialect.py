"""Recognise what separates the fields of a text table, and the decimals of its numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kmufs_stream.errors import RequestError
from kmufs_stream.formats.rows import SEPARATORS, first_rows

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


def dialect_of(path: str, rows: int) -> Dialect:
    """Recognise the dialect from the name of a text table and its first rows.

    Fields are separated by commas, or by tabs in a ``.tsv``; if the header and the row below hold
    none, but both hold the same one of semicolon, bar and tab, by that. Commas that do not separate
    fields may begin decimals.

    Raises RequestError if commas may as well separate thousands, or points begin decimals too.
    """
    usual = "\t" if ".tsv" in path.lower() else ","
    separator = _separator(path, usual)
    if separator == ",":
        return Dialect(separator)
    fields = [f.strip() for row in first_rows(path, separator, rows + 1)[1:] for f in row]
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
    header, *below = first_rows(path, usual, 2)
    if len(header) > 1 or not below:
        return usual
    others = [c for c in SEPARATORS if c in header[0] and c in usual.join(below[0])]
    return others[0] if len(others) == 1 else usual

"""Columns of a table that describe its samples, and the coordinates that they become."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from kmufs_stream.errors import Option, RequestError, Text, did_you_mean

K = TypeVar("K")
SAMPLE = "sample"  # the coordinate that names the samples
TAKEN = ("data", "feature", "zarr.json")
TEXT = np.dtypes.StringDType()
EMPTY_TEXT = {"missing_value": ""}  # missing text is stored as empty text, and decoded as NaN
# Separates words in CF's list of coordinates, or groups of a path, or is reserved by Zarr.
UNFIT = re.compile(r"[\s/\\]+|^\.+|^__+")


@dataclass(frozen=True)
class Coordinate:
    """A column as it is stored.

    Attributes
    ----------
    column : its name in the source.
    dtype : of the stored values, native; ``TEXT`` for text.
    attrs : CF attributes that decode them.
    """

    column: str
    dtype: Any
    attrs: dict[str, Any] = field(default_factory=dict)


def stored_names(columns: Mapping[K, str], index: K | None) -> dict[str, K]:
    """Name the coordinates of columns: by their own names, changed where these are not allowed.

    ``index`` is the column that names the samples.
    """
    stored = {} if index is None else {SAMPLE: index}
    for column, called in columns.items():
        name = UNFIT.sub("_", called) or "_"
        while name in stored or name in TAKEN:
            name += "_"
        stored[name] = column
    return stored


def keep_whole(column: str, *, gaps: bool) -> str:
    """Advise on integers that float64 would round; ``gaps``: some are missing."""
    return (
        Text("If it describes the samples, say {coordinates}; ", coordinates=column)
        + ("" if gaps else Text("{dtype} keeps a table of whole numbers, ", dtype="int64"))
        + Text("{dtype} rounds.", dtype="float64")
    )


def check_columns(
    path: str, columns: Sequence[str], index_column: str | None, asked: Iterable[str]
) -> None:
    """Raise RequestError if a column that was asked for is not there."""
    for parameter, name in [("index_column", index_column), *(("coordinates", a) for a in asked)]:
        if name is not None and name not in columns:
            raise RequestError(
                "unknown_column",
                Text("{} has no column {!r} ({}).", path, name, Option(parameter)),
                f"{did_you_mean(name, columns)}Its first columns are: "
                + ", ".join(map(repr, columns[:5]))
                + ".",
            )


def check_features(path: str, features: Sequence[Any]) -> None:
    """Raise RequestError if no column is left as a feature."""
    if not features:
        raise RequestError(
            "no_features",
            f"{path} is no table of numbers: none of its columns is a feature.",
            Text(
                "Columns of text, and those of {index_column} and {coordinates}, "
                "describe the samples; columns of numbers are needed besides."
            ),
        )

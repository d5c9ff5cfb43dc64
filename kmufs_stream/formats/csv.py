"""Comma- and tab-separated text, read by pandas."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from packaging.version import Version

from kmufs_stream.errors import RequestError, did_you_mean
from kmufs_stream.formats.incoming import Block, Incoming

# Numbers exactly as written: by default from pandas 3.1 on, where the option is deprecated.
EXACT: dict[str, Any] = (
    {} if Version(pd.__version__) >= Version("3.1") else {"float_precision": "round_trip"}
)


def open_csv(path: str, index_column: str | None) -> Incoming:
    """A text table: the header names the features, values are float64, empty fields NaN.

    ``index_column`` names the samples; so does a first column without a name, as pandas and R
    write it. Compressed files are read as they are.
    """
    separator = "\t" if ".tsv" in path.lower() else ","
    head = pd.read_csv(path, sep=separator, header=None, nrows=1, dtype=str, keep_default_na=False)
    header = [str(name) for name in head.iloc[0]]
    if index_column is None and header[0] == "":
        index_column = ""
    if index_column is not None and index_column not in header:
        raise unknown_index(path, index_column, header)
    index = None if index_column is None else header.index(index_column)
    features = [i for i in range(len(header)) if i != index]
    return Incoming(
        path,
        (len(features),),
        np.dtype(np.float64),
        partial(_blocks, path, separator, header, features, index),
        np.array([header[i] for i in features], dtype=object),
        named=index is not None,
    )


def _blocks(
    path: str,
    separator: str,
    header: list[str],
    features: list[int],
    index: int | None,
    rows: int,
) -> Iterator[Block]:
    frames = pd.read_csv(
        path,
        sep=separator,
        header=0,
        names=list(range(len(header))),
        index_col=False,
        dtype=None if index is None else {index: str},
        chunksize=rows,
        **EXACT,
    )
    with frames:
        for frame in frames:
            values = frame[features]
            for column, dtype in zip(features, values.dtypes, strict=True):
                if dtype.kind not in "biuf":
                    raise not_numeric(path, header[column], values[column].iloc[0])
            names = None if index is None else frame[index].fillna("").to_numpy(object)
            yield values.to_numpy(np.float64), names


def unknown_index(path: str, column: str, columns: list[str]) -> RequestError:
    """What is told where --index-column is not there."""
    return RequestError(
        "unknown_column",
        f"{path} has no column {column!r} (--index-column).",
        f"{did_you_mean(column, columns)}Its first columns are: "
        + ", ".join(map(repr, columns[:5]))
        + ".",
    )


def not_numeric(path: str, column: str, value: object) -> RequestError:
    """What is told of a feature that is not a number."""
    return RequestError(
        "bad_dtype",
        f"Column {column!r} of {path} does not hold numbers (such as {value!r}).",
        f"If it names the samples, say --index-column {column!r}; else leave it out of the file.",
    )

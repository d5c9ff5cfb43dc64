"""Parquet files and folders of them, read by pyarrow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from kmufs_stream.errors import RequestError, missing_library
from kmufs_stream.formats.csv import not_numeric, unknown_index
from kmufs_stream.formats.incoming import Block, Incoming

PAGE_BYTES = 2**16  # read from each column at a time


def open_parquet(path: str, index_column: str | None) -> Incoming:
    """The columns as features, in their common dtype; nulls become NaN.

    ``index_column``, or else the index that pandas kept, names the samples. A folder's files come
    in the order of their names. Besides the blocks, a page or two of every column is in memory.
    """
    try:
        import pyarrow.dataset as ds
    except ImportError as error:
        raise missing_library("pyarrow", f"Reading {path}", "convert") from error
    table = ds.dataset(path, format="parquet", exclude_invalid_files=True)
    columns = list(table.schema.names)
    if index_column is None:
        index_column = _kept_index(table.schema)
    if index_column is not None and index_column not in columns:
        raise unknown_index(path, index_column, columns)
    features = [name for name in columns if name != index_column]
    dtypes = []
    for name in features:
        try:
            dtypes.append(np.dtype(table.schema.field(name).type.to_pandas_dtype()))
        except NotImplementedError:  # no dtype stands for it
            dtypes.append(np.dtype(object))
        if dtypes[-1].kind not in "biuf":
            raise not_numeric(path, name, str(table.schema.field(name).type))
    return Incoming(
        path,
        (len(features),),
        np.result_type(*dtypes) if dtypes else np.dtype(np.float64),
        partial(_blocks, table, path, features, index_column),
        np.array(features, dtype=object),
        named=index_column is not None,
    )


def _kept_index(schema: Any) -> str | None:
    """The one stored column that pandas had as its index."""
    noted = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    stored = [name for name in noted if isinstance(name, str)]  # a range is not stored
    return stored[0] if len(stored) == 1 else None


def _batches(files: list[str], columns: list[str], rows: int) -> Iterator[Any]:
    import pyarrow.parquet as pq

    for file in files:
        # A dataset's own scanner reads whole row groups ahead; buffered, a file is read by pages.
        with pq.ParquetFile(file, buffer_size=PAGE_BYTES, pre_buffer=False) as opened:
            yield from opened.iter_batches(rows, columns=columns, use_threads=False)


def _blocks(
    table: Any, path: str, features: list[str], index: str | None, rows: int
) -> Iterator[Block]:
    columns = features if index is None else [*features, index]
    for batch in _batches(sorted(table.files), columns, rows):
        arrays = [batch.column(name) for name in features]
        whole = all(array.type.to_pandas_dtype() in (np.float32, np.float64) for array in arrays)
        for name, array in zip(features, arrays, strict=True):
            if not whole and array.null_count:
                raise RequestError(
                    "missing_values",
                    f"Column {name!r} of {path} holds nulls, and not all columns are floating "
                    "point.",
                    "Write the columns as floating point, such as pandas' frame.astype('float64').",
                )
        values = np.column_stack([a.to_numpy(zero_copy_only=False) for a in arrays])
        names = None
        if index is not None:
            names = np.array([str(x) for x in batch.column(index).to_pylist()], dtype=object)
        yield values, names

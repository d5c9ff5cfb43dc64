"""Convert values to another dtype, and refuse those that it cannot hold."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.errors import RequestError, unknown_value
from kmufs_stream.sources.layout import Block, with_values
from kmufs_stream.sources.matrix import ChangedRows, Matrix

WHOLE = 2**53  # up to here float64 holds every integer
DTYPES = (
    *("float32", "float64", "float16", "bool"),
    *(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")),
)


def parse_dtype(text: str) -> np.dtype[Any]:
    """Return the dtype of real numbers of that name. Raises RequestError for other names."""
    if text not in DTYPES:
        raise unknown_value("dtype", text, DTYPES)
    return np.dtype(text)


def cast(
    values: NDArray[Any], dtype: np.dtype[Any], source: str, hint: str, *, exactly: bool = False
) -> NDArray[Any]:
    """Convert values to another dtype; only to floating point they may be rounded.

    Raises RequestError, with the given hint, for a value that is out of range or not an integer,
    and, if asked to convert ``exactly``, for integers that float64 would round.
    """
    rounded = exactly and values.dtype.kind in "iu" and dtype.kind == "f"
    if np.can_cast(values.dtype, dtype, "safe") and not rounded:
        return values.astype(dtype, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        made = values.astype(dtype)
    lost = np.isinf(made) & np.isfinite(values) if dtype.kind == "f" else made != values
    if rounded:
        lost |= (values > WHOLE) | (values < -WHOLE)
    if lost.any():
        value = values[lost][0]
        what = "a missing value" if np.isnan(value) else repr(value.item())
        raise RequestError(
            "does_not_fit_dtype", f"{source} holds {what}, which {dtype} cannot.", hint
        )
    return made


def read_as(matrix: Matrix, dtype: np.dtype[Any], hint: str) -> Matrix:
    """Return the matrix with its values converted by :func:`cast` when read."""
    if matrix.dtype == dtype:
        return matrix
    change = partial(_cast_block, dtype=dtype, source=matrix.source, hint=hint)
    rows = ChangedRows(matrix.rows, change)
    return replace(matrix, rows=rows, dtype=dtype, layout=replace(matrix.layout, copied=True))


def _cast_block(block: Block, start: int, *, dtype: np.dtype[Any], source: str, hint: str) -> Block:
    return with_values(block, lambda values: cast(values, dtype, source, hint))

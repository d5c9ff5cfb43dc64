"""Values in another dtype, where it holds them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from kmufs_stream.errors import RequestError, Text, did_you_mean
from kmufs_stream.sources.layout import Block
from kmufs_stream.sources.matrix import Matrix, Rows

WHOLE = 2**53  # up to here float64 holds every integer
DTYPES = (
    *("float32", "float64", "float16", "bool"),
    *(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")),
)


def parse_dtype(text: str) -> np.dtype[Any]:
    """A dtype of real numbers by its name; RequestError for any other."""
    if text not in DTYPES:
        raise RequestError(
            "bad_option",
            Text("{dtype} {!r} is no dtype of real numbers.", text),
            f"{did_you_mean(text, DTYPES)}Choose one of {', '.join(DTYPES)}.",
        )
    return np.dtype(text)


def cast(values: NDArray[Any], dtype: np.dtype[Any], source: str, remedy: str) -> NDArray[Any]:
    """The values in another dtype: rounded where that is floating point, else as they are.

    Raises RequestError for a value that is out of range, or that an integer cannot be.
    """
    if np.can_cast(values.dtype, dtype, "safe"):
        return values.astype(dtype, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        made = values.astype(dtype)
    lost = np.isinf(made) & np.isfinite(values) if dtype.kind == "f" else made != values
    if lost.any():
        value = values[lost][0]
        what = "a missing value" if np.isnan(value) else repr(value.item())
        raise RequestError(
            "does_not_fit_dtype", f"{source} holds {what}, which {dtype} cannot.", remedy
        )
    return made


def cast_exactly(
    values: NDArray[Any], dtype: np.dtype[Any], source: str, remedy: str
) -> NDArray[Any]:
    """The same, but where integers become floating point, those above WHOLE are refused."""
    if values.dtype.kind in "iu" and dtype.kind == "f":
        large = (values > WHOLE) | (values < -WHOLE)
        if large.any():
            raise RequestError(
                "does_not_fit_dtype",
                f"{source} holds {values[large][0]}, which {dtype} would round.",
                remedy,
            )
    return cast(values, dtype, source, remedy)


@dataclass(frozen=True)
class CastRows:
    """Rows whose values are read in another dtype, and taken as they are stored."""

    rows: Rows
    dtype: np.dtype[Any]
    source: str
    remedy: str

    def read(self, start: int, stop: int) -> Block:
        """See Rows."""
        block: Any = self.rows.read(start, stop)
        if not isinstance(block, csr_array):
            return cast(block, self.dtype, self.source, self.remedy)
        values = cast(block.data, self.dtype, self.source, self.remedy)
        return csr_array((values, block.indices, block.indptr), shape=block.shape)

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        """See Rows."""
        return self.rows.take(start, stop, columns)


def read_as(matrix: Matrix, dtype: np.dtype[Any], remedy: str) -> Matrix:
    """The matrix with its values read in ``dtype``; ``remedy`` is told where one does not fit."""
    if matrix.dtype == dtype:
        return matrix
    rows = CastRows(matrix.rows, dtype, matrix.source, remedy)
    return replace(matrix, rows=rows, dtype=dtype, layout=replace(matrix.layout, copied=True))

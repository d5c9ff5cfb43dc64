"""Transform values as they are read; transformed values are not stored.

Transforms keep zeros, so sparse data stay sparse, and change each row by itself, so the division
into blocks does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from kmufs_stream.errors import RequestError, did_you_mean
from kmufs_stream.sources.layout import Block, with_values
from kmufs_stream.sources.matrix import ChangedRows, Matrix

TOTAL = 10_000.0
KNOWN = "Choose log1p, normalise-rows or normalise-rows:TOTAL, TOTAL above 0."


@dataclass(frozen=True)
class Transform:
    """``log1p``, log(1 + x), or ``normalise-rows``, which scales each row to a given sum.

    Attributes
    ----------
    name : canonical text, such as ``normalise-rows:10000``.
    total : sum of a row; None for log1p.
    """

    name: str
    total: float | None

    @classmethod
    def parse(cls, text: str) -> Transform:
        """Parse ``log1p``, ``normalise-rows`` (to 10000) or ``normalise-rows:TOTAL``."""
        name, colon, given = text.partition(":")
        if text == "log1p":
            return cls(text, None)
        with suppress(ValueError):
            total = float(given) if colon else TOTAL
            if name == "normalise-rows" and 0 < total < np.inf:
                return cls(f"normalise-rows:{total:.17g}", total)
        near = did_you_mean(text, ("log1p", "normalise-rows"))
        raise RequestError("bad_option", f"Transform {text!r} is unknown.", near + KNOWN)

    def apply(self, block: Any, start: int) -> None:
        """Transform a floating-point block, (rows, p) dense or CSR, in place.

        ``start`` is the number of its first row. Raises RequestError for values that the transform
        is not defined for; other checks find values that are not finite.
        """
        values = block.data if isinstance(block, csr_array) else block
        least = -1.0 if self.total is None else 0.0
        bad = values <= least if self.total is None else values < least
        if bad.any():
            raise RequestError(
                "bad_transform",
                f"Transform {self.name} is not defined for {values[bad].min():g}, found in rows "
                f"{start}..{start + block.shape[0] - 1}.",
                "It is meant for counts and intensities; leave it out, or choose other values.",
            )
        if self.total is None:
            np.log1p(values, out=values)
            return
        totals = _totals(block)
        factors = np.where(np.isfinite(totals) & (totals > 0), self.total / totals, 1.0)
        factors = factors.astype(values.dtype)
        if isinstance(block, csr_array):
            values *= np.repeat(factors, np.diff(block.indptr))
        else:
            values *= factors[:, None]


def by_row(names: Iterable[str]) -> bool:
    """Whether any of the transforms needs all features of a row to change one."""
    return any(Transform.parse(name).total is not None for name in names)


def _totals(block: Any) -> NDArray[np.float64]:
    """Sums of the rows in float64, ignoring NaN; NaN instead of 0."""
    values = block.data if isinstance(block, csr_array) else block
    if np.isnan(values).any():
        block = block.copy()
        known = block.data if isinstance(block, csr_array) else block
        known[np.isnan(known)] = 0.0
    totals = np.asarray(block.sum(axis=1, dtype=np.float64)).ravel()
    return np.where(totals == 0, np.nan, totals)


def transformed(matrix: Matrix, names: Sequence[str]) -> Matrix:
    """Return the matrix with its values transformed, in the order of the names, when read."""
    if not names:
        return matrix
    transforms = tuple(Transform.parse(name) for name in names)
    single = np.can_cast(matrix.dtype, np.float32, "safe")
    dtype = np.dtype(np.float32 if single else np.float64)
    return replace(
        matrix,
        rows=ChangedRows(matrix.rows, partial(_apply, transforms, dtype)),
        dtype=dtype,
        transforms=(*matrix.transforms, *(transform.name for transform in transforms)),
    )


def _apply(
    transforms: tuple[Transform, ...], dtype: np.dtype[Any], stored: Block, start: int
) -> Block:
    block = with_values(stored, lambda values: values.astype(dtype))
    for transform in transforms:
        transform.apply(block, start)
    return block

"""Rows of the correlation matrix: kept with the factor, or what the factor says of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kmufs_stream.typing import Float, Int

Rows = Callable[[Int], Float]
"""From m indices to those rows of the p x p correlation matrix, shape (m, p)."""


def kept_rows(correlation: Float) -> Rows:
    """Rows of a matrix at hand: exact, free."""
    return lambda index: correlation[index]


def factor_rows(components: Float, eigenvalues: Float) -> Rows:
    """Rows of ``P diag(eigenvalues) P^T`` with its diagonal raised to 1.

    What the r components leave of a feature counts as its own, uncorrelated with all others: the
    model of factor analysis. O(p r) a row, p r numbers kept.

    Parameters
    ----------
    components : float array, shape (p, r)
        All components that there are, orthonormal columns.
    eigenvalues : float array, shape (r,)
    """
    scaled = components * np.sqrt(eigenvalues)

    def rows(index: Int) -> Float:
        found: Float = scaled[index] @ scaled.T
        found[np.arange(len(index)), index] = 1.0
        return found

    return rows

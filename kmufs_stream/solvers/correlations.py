"""Rows of the correlation matrix, approximated where it was not formed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kmufs_stream.typing import Float, Int

Rows = Callable[[Int], Float]
"""From m indices to those rows of the p x p correlation matrix, shape (m, p)."""


def factor_rows(components: Float, eigenvalues: Float) -> Rows:
    """Compute rows of ``P diag(eigenvalues) P^T``, with 1 on the diagonal, from r components.

    What the components leave of a feature is taken to be uncorrelated with all others: the model
    of factor analysis. O(p r) per row; keeps p r numbers.
    """
    scaled = components * np.sqrt(eigenvalues)

    def rows(index: Int) -> Float:
        found: Float = scaled[index] @ scaled.T
        found[np.arange(len(index)), index] = 1.0
        return found

    return rows

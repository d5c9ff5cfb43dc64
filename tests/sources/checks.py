"""What holds of the matrix that any source gives."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from kmufs_stream import Matrix


def names(matrix: Matrix) -> tuple[str, str, str]:
    return matrix.metadata.name, matrix.metadata.sample_dim, matrix.metadata.feature_dim


def values(matrix: Matrix, start: int = 0, stop: int | None = None) -> npt.NDArray[Any]:
    """Rows of the table, as a dense array."""
    block: Any = matrix.rows.read(start, matrix.shape[0] if stop is None else stop)
    assert sp.issparse(block) == (matrix.layout.sparsity is not None)
    assert block.dtype.newbyteorder("=") == matrix.dtype.newbyteorder("=")
    return np.asarray(block.toarray() if sp.issparse(block) else block)


def check_rows(matrix: Matrix, X: npt.NDArray[Any]) -> None:
    """Compare blocks and columns with X, in another process too."""
    assert matrix.shape == X.shape
    some = np.array([0, 2, 5])
    for rows in (matrix.rows, pickle.loads(pickle.dumps(matrix.rows))):
        taken = rows.take(7, 41, some)
        assert taken.dtype.newbyteorder("=") == matrix.layout.dtype.newbyteorder("=")
        np.testing.assert_array_equal(taken, X[7:41][:, some])
        np.testing.assert_array_equal(values(replace(matrix, rows=rows), 7, 41), X[7:41])
    np.testing.assert_array_equal(values(matrix), X)

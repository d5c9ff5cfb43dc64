"""The paper's problem before its relaxation: clusters and features found in turn."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from kmufs_stream.solvers.correlations import Rows
from kmufs_stream.solvers.exact import exact
from kmufs_stream.solvers.scores import ranking
from kmufs_stream.solvers.solution import Solution, Watcher, unwatched
from kmufs_stream.typing import Float, Int


def joint(
    components: Float,
    eigenvalues: Float,
    rows: Rows,
    h: int,
    *,
    tolerance: float,
    max_iter: int = 1000,
    watch: Watcher = unwatched,
) -> Solution:
    """Choose, in turn, h features and the k-dimensional subspace that explains most of them.

    Given the features, the subspace is spanned by the leading k left singular vectors of their
    columns; given the subspace, the features with most variance in it are chosen. The start is
    :func:`exact`. ``solver_objective`` is the variance of the chosen features in their own best
    subspace: the sum of the k largest eigenvalues of their correlation matrix. It rises from
    iteration to iteration; ``converged`` means that no exchange raises it any more.

    O(h^3 + p h k) and h rows of the correlation matrix per iteration; nothing is read again.

    Source: eq. 6 of Sun, Ding and Fan, arXiv 2411.15197, relaxed in the indicators alone.
    """
    selected = exact(components, eigenvalues, h, tolerance=tolerance).selected
    k = min(np.size(eigenvalues), h)
    value, variances = _subspace(rows(selected), selected, k)
    values = [value]
    changed = [h]
    converged = False
    while len(values) <= max_iter:
        candidate = np.sort(ranking(variances, tolerance)[:h])
        exchanged = np.setdiff1d(candidate, selected, assume_unique=True).size
        if exchanged:
            value, variances = _subspace(rows(candidate), candidate, k)
        # Exchanges among ties and of the last bits raise nothing, and might never end.
        if not exchanged or value <= values[-1] * (1 + 1e-12):
            converged = True
            break
        selected = candidate
        values.append(value)
        changed.append(exchanged)
        watch(solver_objective=value, rows_changed=exchanged)
    return Solution(
        selected,
        values[-1],
        iterations=len(values),
        converged=converged,
        history={
            "solver_objective": np.array(values),
            "rows_changed": np.array(changed, dtype=np.int64),
        },
    )


def joint_bytes(p: int, k: int, h: int) -> int:
    """Bound the working memory of :func:`joint`, in bytes.

    The chosen rows, twice for a moment; their own square and what LAPACK needs for it; k rows of
    length p with their squares.
    """
    return 8 * (2 * p * h + 4 * h * h + 3 * k * p + 8 * p) + 2**20


def _subspace(chosen: Float, selected: Int, k: int) -> tuple[float, Float]:
    """Return the variance of the chosen features in their best subspace, and each feature's in it.

    With C[S, S] = V L V^T, the left singular vectors are Q = Z_S V L^{-1/2} / sqrt(n), and
    Q^T Z / sqrt(n) = L^{-1/2} V^T C[S, :].
    """
    h = len(selected)
    values, vectors = scipy.linalg.eigh(chosen[:, selected], subset_by_index=(h - k, h - 1))
    kept = values > h * np.finfo(np.float64).eps * values[-1]
    values, vectors = values[kept], vectors[:, kept]
    along = (vectors / np.sqrt(values)).T @ chosen
    return float(values.sum()), np.einsum("ji,ji->i", along, along)

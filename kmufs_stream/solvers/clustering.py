"""scikit-learn's K-means, the same bit for bit whatever the number of threads."""

from __future__ import annotations

import warnings
from typing import Any

from kmufs_stream.system import blas
from kmufs_stream.typing import Float, Int

MAX_ITERATIONS = 300
TOL = 1e-4  # total squared movement of the centres, in mean variances of the columns, at the end


def fit_kmeans(
    rows: Float, k: int, *, starts: int, seed: int, copy: bool = True, weights: Int | None = None
) -> Any:
    """Fit a ``sklearn.cluster.KMeans`` with k clusters, the best of several starts.

    Parameters
    ----------
    rows : float64 array, shape (m, p), m >= k
    copy : False allows rounding errors in ``rows`` afterwards.
    weights : (m,) how many rows each row stands for; 1 by default.

    Fewer distinct rows than clusters give fewer clusters, without a warning. O(m p k) per
    iteration.
    """
    from sklearn.cluster import KMeans  # nearly a second, for those who cluster alone
    from sklearn.exceptions import ConvergenceWarning

    means = KMeans(
        k, n_init=starts, max_iter=MAX_ITERATIONS, tol=TOL, random_state=seed, copy_x=copy
    )
    # With several threads the order in which they add to a cluster's sum would vary.
    with blas.one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return means.fit(rows, sample_weight=weights)

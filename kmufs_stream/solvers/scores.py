"""Feature scores (the diagonal of A) and their order."""

from __future__ import annotations

import numpy as np

from kmufs_stream.typing import Float, Int


def feature_scores(components: Float, eigenvalues: Float, k: int) -> Float:
    """Score every feature: the share of its variance that the leading k components explain.

    ``a_i = sum_{j<k} lambda_j P_ij^2``, the diagonal of ``A = P_k diag(lambda) P_k^T``. The
    objective of Sun, Ding and Fan (arXiv 2411.15197) is the sum of the a_i of the chosen features.

    Parameters
    ----------
    components : float array, shape (p, r)
    eigenvalues : float array, shape (r,)
    k : int
        Number of components to use, 1..r.

    Returns
    -------
    float64 array, shape (p,)
    """
    components = np.asarray(components, dtype=np.float64)
    eigenvalues = np.asarray(eigenvalues, dtype=np.float64)
    if components.ndim != 2 or eigenvalues.shape != components.shape[1:]:
        raise ValueError(
            f"components of shape {components.shape} need {components.shape[-1]} eigenvalues, "
            f"not an array of shape {eigenvalues.shape}"
        )
    if not 1 <= k <= eigenvalues.size:
        raise ValueError(f"k is {k}; it must lie between 1 and {eigenvalues.size}")
    leading = components[:, :k]
    scores: Float = np.einsum("ij,ij,j->i", leading, leading, eigenvalues[:k])
    return scores


def ranking(scores: Float, tolerance: float) -> Int:
    """Order features by falling score, ties by lower index.

    From the highest score down, every score within ``tolerance`` of the first one of a run
    (inclusive) ties with it, and the next score begins a new run. So all members of a tie lie
    within one tolerance of each other, however long a chain of close neighbours is.

    Parameters
    ----------
    scores : float array, shape (p,)
        Finite.
    tolerance : float
        Absolute; 0 ties equal scores only.

    Returns
    -------
    int64 array, shape (p,)
        A permutation of ``range(p)``, best first.
    """
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 1 or not np.isfinite(scores).all():
        raise ValueError("scores must be a one-dimensional array of finite numbers")
    if not tolerance >= 0:
        raise ValueError(f"tolerance is {tolerance}; it must be 0 or more")
    order = np.argsort(-scores, kind="stable").astype(np.int64)
    falling = scores[order]
    close = falling[:-1] - falling[1:] <= tolerance
    # Only where a score is close to the next can a run begin; all others stay as sorted.
    edges = np.flatnonzero(np.diff(np.concatenate(([False], close, [False])).astype(np.int8)))
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        start = int(first)
        while start < last:
            chain = falling[start : last + 1]
            stop = start + int(np.searchsorted(chain[0] - chain, tolerance, side="right"))
            order[start:stop].sort()
            start = stop
    return order


def check_h(h: int, p: int) -> None:
    """Raise ValueError for an h outside 1..p."""
    if not 1 <= h <= p:
        raise ValueError(f"h is {h}; it must lie between 1 and the {p} features")

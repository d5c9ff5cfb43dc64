"""Solvers: pure functions of arrays that choose h of p features.

They share these arguments:

components : float64 array, shape (p, k)
    P_k, orthonormal columns, by falling eigenvalue.
eigenvalues : float64 array, shape (k,)
    ``s_j^2 / n``, s the singular values of the standardised data; A is
    ``P_k diag(eigenvalues) P_k^T``.
rows : callable
    From indices to rows of the correlation matrix.
h : int
    Number of features to choose, 1..p.
tolerance : float
    What differs by no more is a tie, and ties go to the lower index.
watch : callable
    Called after each iteration with what ``Solution.history`` keeps of it.

All raise ValueError for an h outside 1..p and for shapes that disagree. Working memory without
the arguments is bounded by functions such as :func:`admm_bytes`.
"""

from kmufs_stream.solvers.admm import admm, admm_bytes
from kmufs_stream.solvers.consensus import Blocks, consensus, consensus_bytes
from kmufs_stream.solvers.correlations import Rows, factor_rows
from kmufs_stream.solvers.css import css, css_bytes
from kmufs_stream.solvers.exact import exact
from kmufs_stream.solvers.joint import joint, joint_bytes
from kmufs_stream.solvers.scores import feature_scores, ranking
from kmufs_stream.solvers.solution import Solution, Watcher

__all__ = [
    "Blocks",
    "Rows",
    "Solution",
    "Watcher",
    "admm",
    "admm_bytes",
    "consensus",
    "consensus_bytes",
    "css",
    "css_bytes",
    "exact",
    "factor_rows",
    "feature_scores",
    "joint",
    "joint_bytes",
    "ranking",
]

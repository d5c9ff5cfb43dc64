"""Solvers: which h features. Pure functions of arrays; nothing here knows a store."""

from kmufs_stream.solvers.admm import admm, admm_bytes
from kmufs_stream.solvers.exact import exact
from kmufs_stream.solvers.scores import feature_scores, ranking
from kmufs_stream.solvers.solution import Solution

__all__ = ["Solution", "admm", "admm_bytes", "exact", "feature_scores", "ranking"]

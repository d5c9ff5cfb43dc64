"""Solvers: which h features. Pure functions of arrays; nothing here knows a store."""

from kmufs_stream.solvers.admm import admm, admm_bytes
from kmufs_stream.solvers.consensus import consensus, consensus_bytes
from kmufs_stream.solvers.correlations import factor_rows, kept_rows
from kmufs_stream.solvers.css import css, css_bytes
from kmufs_stream.solvers.exact import exact
from kmufs_stream.solvers.joint import joint, joint_bytes
from kmufs_stream.solvers.scores import feature_scores, ranking
from kmufs_stream.solvers.solution import Solution

__all__ = [
    "Solution",
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
    "kept_rows",
    "ranking",
]

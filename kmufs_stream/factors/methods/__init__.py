"""Routes to the factor: the leading components from reads of the rows."""

from kmufs_stream.factors.methods.gram import BY_GRAM
from kmufs_stream.factors.methods.lanczos import BY_LANCZOS
from kmufs_stream.factors.methods.method import Problem, Route
from kmufs_stream.factors.methods.tsqr import BY_TSQR

__all__ = ["ROUTES", "Problem", "Route"]

ROUTES: dict[str, Route] = {"gram": BY_GRAM, "tsqr": BY_TSQR, "lanczos": BY_LANCZOS}
"""All routes by the name of their method; of those that ``auto`` may take, the first it does."""

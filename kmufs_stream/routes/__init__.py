"""Routes to the factor: the leading components from reads of the rows."""

from kmufs_stream.routes.gram import BY_GRAM
from kmufs_stream.routes.lanczos import BY_LANCZOS
from kmufs_stream.routes.route import LanczosOptions, Problem, Route
from kmufs_stream.routes.tsqr import BY_TSQR

__all__ = ["ROUTES", "LanczosOptions", "Problem", "Route"]

ROUTES: dict[str, Route] = {"gram": BY_GRAM, "tsqr": BY_TSQR, "lanczos": BY_LANCZOS}
"""All routes by the name of their method; of those that ``auto`` may take, the first it does."""

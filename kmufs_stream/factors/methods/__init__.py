"""Methods that find the leading components: what a factor is computed by."""

from kmufs_stream.factors.methods import gram, lanczos, tsqr
from kmufs_stream.factors.methods.method import Method, Problem

__all__ = ["METHODS", "Method", "Problem"]

METHODS: dict[str, Method] = {"gram": gram.METHOD, "tsqr": tsqr.METHOD, "lanczos": lanczos.METHOD}
"""All methods by name; ``auto`` takes the first that does not pass."""

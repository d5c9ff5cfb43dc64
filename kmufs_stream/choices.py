"""What is asked for by name: all names that there are, of solvers, routes and the rest."""

from __future__ import annotations

from typing import Literal

SolverName = Literal["admm", "consensus", "css", "exact", "joint"]
MethodName = Literal["auto", "gram", "lanczos", "tsqr"]
PrecisionName = Literal["auto", "float32", "float64"]
MissingPolicy = Literal["raise", "drop-features", "drop-samples", "mean"]

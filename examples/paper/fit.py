"""The result of an iterative baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Fit:
    """Weights of the features.

    Attributes
    ----------
    weights : (p, k), sparse in rows.
    indicators : (n, k) Y at the end.
    objective : (iterations,) value minimised, penalty included, after each iteration.
    """

    weights: NDArray[np.float64]
    indicators: NDArray[np.float64]
    objective: NDArray[np.float64]

    @property
    def scores(self) -> NDArray[np.float64]:
        """(p,) 2-norms of the rows of the weights; high is good."""
        return np.asarray(np.linalg.norm(self.weights, axis=1))

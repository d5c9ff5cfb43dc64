"""Laplacian score: He, Cai and Niyogi, "Laplacian score for feature selection" (2005)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from examples.paper.graph import Graph

Float = NDArray[np.float64]


def laplacian_scores(Z: Float, graph: Graph) -> Float:
    """Return f^T L f / f^T D f of each feature f, centred with weights D; low is good.

    (p,) between 0 and 2. O(n p) for a sparse graph.
    """
    centred = Z - graph.degrees @ Z / graph.degrees.sum()
    spread = graph.degrees @ centred**2
    alike = np.einsum("ij,ij->j", centred, graph.similarity @ centred)
    return np.asarray(1 - alike / np.maximum(spread, 1e-300))

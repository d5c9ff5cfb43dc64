"""The graph of nearest neighbours that all baselines need, and its spectral clustering.

It takes the distances of all pairs of samples: O(n^2 p) time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.neighbors import kneighbors_graph

Float = NDArray[np.float64]

NEIGHBOURS = 5


@dataclass(frozen=True, eq=False)
class Graph:
    """A weighted, undirected graph of the samples.

    Attributes
    ----------
    similarity : (n, n) sparse, S: symmetric, not negative.
    degrees : (n,) row sums of S, all above 0.
    normalised : (n, n) sparse, D^-1/2 S D^-1/2; the normalised Laplacian is I minus this.
    """

    similarity: scipy.sparse.csr_array
    degrees: Float
    normalised: scipy.sparse.csr_array

    def roughness(self, Y: Float) -> float:
        """Tr(Y^T L Y) with the normalised Laplacian L."""
        return float(np.vdot(Y, Y) - np.vdot(Y, self.normalised @ Y))


def neighbour_graph(Z: Float) -> Graph:
    """Join samples where either is among the five nearest of the other, with Gaussian weights.

    The width sigma, which the paper does not give, is the mean squared distance of neighbours. The
    minus sign in exp(-d^2 / sigma) is missing in the paper; a similarity must fall with distance.
    """
    distances = kneighbors_graph(Z, min(NEIGHBOURS, len(Z) - 1), mode="distance")
    squares = distances.power(2)
    width = squares.data.mean() or 1.0
    squares.data = np.exp(-squares.data / width)
    similarity = scipy.sparse.csr_array(squares.maximum(squares.T))
    # The degree of a sample far from all others must not be 0.
    similarity.data = np.maximum(similarity.data, 1e-12)
    degrees: Float = similarity @ np.ones(len(Z))
    scale = scipy.sparse.diags_array(1 / np.sqrt(degrees))
    return Graph(similarity, degrees, scipy.sparse.csr_array(scale @ similarity @ scale))


def indicators(graph: Graph, k: int, seed: int = 0) -> Float:
    """Return (n, k) orthonormal, non-negative indicators of a spectral clustering.

    K-means on the rows of the k leading eigenvectors of the normalised similarity (Ng, Jordan and
    Weiss, 2001, with rows of unit length). Dense eigenvectors: O(n^2 k) and more.
    """
    n = graph.normalised.shape[0]
    start = np.random.default_rng(seed).standard_normal(n)
    vectors = scipy.sparse.linalg.eigsh(graph.normalised, k=k, which="LA", v0=start)[1]
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    labels = KMeans(k, n_init=10, random_state=seed).fit(vectors).labels_
    Y = np.zeros((n, k))
    Y[np.arange(n), labels] = 1.0
    return np.asarray(Y / np.sqrt(Y.sum(axis=0)))

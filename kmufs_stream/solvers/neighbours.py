"""Spectral embedding of rows by a graph of nearest rows: its clusters need not be round."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy  # loads its parts when they are used
from scipy.linalg import eigh
from scipy.sparse import csr_array, diags_array

from kmufs_stream.system import blas
from kmufs_stream.typing import Float, Int

NEIGHBOURS = 10  # nearest places that a place is joined to, itself included
GRID = 2**20  # steps from zero to the largest coordinate: finer differences are rounding
DENSE = 500  # places up to which the eigenproblem is solved whole
TOL = 1e-4  # residual of an eigenvector at which Lanczos ends
RESTARTS = 100  # of Lanczos, before LOBPCG takes over, which always returns its best so far
ITERATIONS = 30  # of LOBPCG


def embedding(rows: Float, q: int) -> tuple[Float, Int]:
    """Embed rows in the leading q eigenvectors of the graph of nearest places.

    Places are joined where either is among the ten nearest of the other; the matrix is
    ``D^-1/2 A D^-1/2``, A the graph and D its degrees. Rows that are equal up to rounding are one
    place, so duplicated rows change nothing, and many equal rows do not form a part of their own.

    A graph in c parts has the eigenvalue 1 c times. Of all bases of its space, the one along which
    the places differ most is taken, so that fewer vectors than parts still separate places that
    are far apart.

    Parameters
    ----------
    rows : float64 array, shape (m, k)
        Coordinates, as many as there are clusters: a place has no more neighbours than a cluster
        has places on average.
    q : int
        At most the number of places.

    Returns
    -------
    (n, q) orthonormal vectors, the largest eigenvalue first, with a row for each of n places in the
    order of their coordinates; and the (m,) place of each row.

    Notes
    -----
    O(m^2 k) at most for the neighbours, O(m q^2) for a restart of Lanczos. Deterministic: one
    thread, a fixed start, and exact distances, since the coordinates are whole numbers.

    Source: Ng, Jordan and Weiss (NIPS 2001); von Luxburg (Statistics and Computing 2007).
    """
    step = GRID / (float(np.abs(rows).max()) or 1.0)
    with blas.one_thread():
        places, place_of = np.unique(np.rint(rows * step), axis=0, return_inverse=True)
        graph = _graph(places)
        q = min(q, len(places))
        parts = _leading_parts(graph, places, q)
        vectors = np.hstack([parts, _others(graph, q - parts.shape[1])])
        return vectors, place_of.reshape(-1)


def unit_rows(points: Float) -> Float:
    """Divide each row by its length, if that is not 0."""
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    scaled: Float = points / np.where(lengths > 0, lengths, 1.0)
    return scaled


class Graph(NamedTuple):
    """A normalised graph, and an eigenvector of eigenvalue 1 for each of its connected parts."""

    matrix: csr_array  # (n, n), symmetric, eigenvalues above -1 and up to 1
    parts: csr_array  # (n, c), orthonormal, each column 0 outside its part


def _graph(places: Float) -> Graph:
    from sklearn.neighbors import NearestNeighbors  # nearly a second, for those who cluster alone

    n, k = places.shape
    each = min(NEIGHBOURS, n, max(n // k, 2))
    # Trees are faster up to some five coordinates, and many times slower at fifteen.
    found = NearestNeighbors(n_neighbors=each, algorithm="brute").fit(places)
    near = csr_array(found.kneighbors_graph(places))
    joined = near.maximum(near.T)
    degrees = np.asarray(joined.sum(axis=1))
    scale = diags_array(1 / np.sqrt(degrees))
    _, part = scipy.sparse.csgraph.connected_components(joined, directed=False)
    stationary = np.sqrt(degrees / np.bincount(part, degrees)[part])
    parts = csr_array((stationary, (np.arange(n), part)))
    return Graph(csr_array(scale @ joined @ scale), parts)


def _leading_parts(graph: Graph, places: Float, q: int) -> Float:
    """Return up to q eigenvectors of eigenvalue 1, those along which places differ most first."""
    directions, _, _ = np.linalg.svd(graph.parts.T @ places, full_matrices=False)
    # More parts than coordinates: the rest of the basis, from the largest parts.
    largest = np.argsort(-np.bincount(graph.parts.indices), kind="stable")[:q]
    units = np.zeros((graph.parts.shape[1], len(largest)))
    units[largest, np.arange(len(largest))] = 1.0
    basis, _ = np.linalg.qr(np.hstack([directions, units]))
    vectors: Float = graph.parts @ basis[:, :q]
    return vectors


def _others(graph: Graph, q: int) -> Float:
    """Return the q eigenvectors that follow those of eigenvalue 1."""
    n = graph.matrix.shape[0]
    if q == 0:
        return np.zeros((n, 0))

    def deflated(x: Float) -> Float:
        """Multiply with the matrix whose eigenvalues 1 are replaced by -1, below all others."""
        product: Float = graph.matrix @ x - 2 * (graph.parts @ (graph.parts.T @ x))
        return product

    if n <= max(DENSE, 2 * q):
        return _falling(*eigh(deflated(np.eye(n)), subset_by_index=[n - q, n - 1]))
    operator = scipy.sparse.linalg.LinearOperator(
        (n, n), matvec=deflated, matmat=deflated, dtype=np.float64
    )
    start = np.random.default_rng(0).standard_normal((n, q))
    try:
        return _falling(
            *scipy.sparse.linalg.eigsh(
                operator, q, which="LA", v0=start[:, 0], tol=TOL, maxiter=RESTARTS
            )
        )
    except scipy.sparse.linalg.ArpackError:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that it has not converged
            return _falling(
                *scipy.sparse.linalg.lobpcg(
                    operator, start, largest=True, tol=TOL, maxiter=ITERATIONS
                )
            )


def _falling(values: Any, vectors: Any) -> Float:
    ordered: Float = vectors[:, np.argsort(-values, kind="stable")]
    return ordered

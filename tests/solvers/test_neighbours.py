"""The spectral embedding, against a dense, literal version of it."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt
import pytest

from kmufs_stream.solvers import neighbours
from kmufs_stream.solvers.neighbours import embedding, unit_rows
from tests.solvers.oracles import spectral_embedding

Array = npt.NDArray[np.float64]


def clusters(m: int, apart: float) -> Array:
    """Rows of three Gaussian clusters."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, m)
    return apart * rng.standard_normal((3, 3))[y] + rng.standard_normal((m, 3))


def of_rows(rows: Array, q: int) -> Array:
    """Embed each row at its place."""
    vectors, place_of = embedding(rows, q)
    return vectors[place_of]


def projector(vectors: Array) -> Array:
    """Return the projector on the span, the same for every basis."""
    return vectors @ vectors.T


@pytest.mark.parametrize("m", [200, 700])  # the whole eigenproblem, and Lanczos
@pytest.mark.parametrize("apart", [0.5, 2.0, 30.0])  # the last in parts
def test_spans_the_leading_eigenvectors(
    m: int, apart: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "TOL", 1e-10)
    rows = clusters(m, apart)
    found = of_rows(rows, 6)
    np.testing.assert_allclose(found.T @ found, np.eye(6), atol=1e-9)
    expected = spectral_embedding(rows, 6)
    np.testing.assert_allclose(projector(found), projector(expected), atol=1e-7)


def test_without_convergence_the_vectors_still_tell_the_clusters_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(neighbours, "RESTARTS", 1)
    monkeypatch.setattr(neighbours, "TOL", 1e-14)
    rows = clusters(2000, 2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = of_rows(rows, 3)
    np.testing.assert_allclose(found.T @ found, np.eye(3), atol=5e-3)
    monkeypatch.undo()
    np.testing.assert_allclose(projector(found), projector(of_rows(rows, 3)), atol=0.02)


def test_fewer_vectors_than_parts_tell_apart_what_lies_far_apart() -> None:
    rng = np.random.default_rng(0)
    centres = np.array([[-90.0, -20.0], [-90.0, 20.0], [90.0, -20.0], [90.0, 20.0]])
    y = np.repeat(np.arange(4), 60)
    found = unit_rows(of_rows(centres[y] + rng.standard_normal((240, 2)), 8)[:, :1])
    np.testing.assert_allclose(found[:120], np.tile(found[0], (120, 1)))
    np.testing.assert_allclose(found[120:], np.tile(-found[0], (120, 1)))


def test_equal_rows_are_one_place() -> None:
    rows = clusters(150, 1.0)
    counts = np.random.default_rng(1).integers(1, 40, 150)
    found = of_rows(np.repeat(rows, counts, axis=0), 6)
    np.testing.assert_array_equal(found, np.repeat(of_rows(rows, 6), counts, axis=0))


@pytest.mark.parametrize("m", [150, 700])
def test_the_order_of_rows_and_rounding_do_not_matter(m: int) -> None:
    rows = clusters(m, 1.0)
    rng = np.random.default_rng(2)
    order = rng.permutation(m)
    rounded = rows * (1 + 1e-15 * rng.standard_normal(rows.shape))
    np.testing.assert_array_equal(of_rows(rounded[order], 6), of_rows(rows, 6)[order])


@pytest.mark.parametrize("m", [1, 2, 3, 9, 10, 11, 12])
@pytest.mark.parametrize(("k", "q"), [(1, 2), (3, 6), (20, 40)])
def test_tiny_samples(m: int, k: int, q: int) -> None:
    found = of_rows(np.random.default_rng(m).standard_normal((m, k)), q)
    assert found.shape == (m, min(m, q))
    np.testing.assert_allclose(found.T @ found, np.eye(min(m, q)), atol=1e-9)


def test_rows_at_the_origin() -> None:
    np.testing.assert_allclose(np.abs(of_rows(np.zeros((30, 2)), 4)), np.ones((30, 1)))
    np.testing.assert_array_equal(unit_rows(np.zeros((3, 2))), np.zeros((3, 2)))


def test_a_graph_of_cliques_has_two_eigenvalues_alone() -> None:
    rng = np.random.default_rng(0)
    rows = np.repeat(100.0 * np.eye(60), 10, axis=0) + rng.random((600, 60))
    found = of_rows(rows, 120)
    np.testing.assert_allclose(found.T @ found, np.eye(120), atol=5e-3)
    cliques = np.kron(np.eye(60), np.full((10, 10), 0.1))
    np.testing.assert_allclose(projector(found[:, :60]), cliques, atol=1e-9)

"""The baselines against their models: objectives, constraints, and each step, on small data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.optimize

from examples.paper import graph, protocol
from examples.paper.eufs import eufs
from examples.paper.laplacian_score import laplacian_scores
from examples.paper.ndfs import ndfs
from examples.paper.nonnegative import ridge
from examples.paper.rufs import rufs
from examples.paper.sets import Labelled
from examples.paper.sf2sog import least_subspace, nearest_graph, sf2sog

Float = npt.NDArray[np.float64]

USEFUL = 6  # features of the data that tell its clusters apart
FITS: dict[str, Callable[..., Any]] = {
    "ndfs": ndfs,
    "rufs": rufs,
    "eufs": lambda *given, alpha, **others: eufs(*given, **others),  # has one parameter
}


@pytest.fixture(scope="module")
def start(data: Labelled) -> Float:
    return graph.indicators(data.graph, data.k)


def test_the_graph_is_symmetric_and_joins_each_to_its_nearest(data: Labelled) -> None:
    similarity = data.graph.similarity.toarray()
    distances = np.linalg.norm(data.Z[:, None] - data.Z[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    assert (similarity == similarity.T).all()
    assert (np.diag(similarity) == 0).all()
    assert (similarity >= 0).all()
    assert (similarity <= 1).all()
    nearest = np.argsort(distances, axis=1)[:, : graph.NEIGHBOURS]
    expected = np.zeros(similarity.shape, dtype=bool)
    np.put_along_axis(expected, nearest, True, axis=1)
    assert ((similarity > 0) == (expected | expected.T)).all()


def test_the_laplacian_score_is_its_formula_and_finds_features(data: Labelled) -> None:
    S = data.graph.similarity.toarray()
    D = np.diag(S.sum(axis=1))
    ones = np.ones(len(S))
    scores = laplacian_scores(data.Z, data.graph)
    assert set(protocol.by_score(-scores)(4).tolist()) <= set(range(USEFUL))
    for f, found in zip(data.Z.T, scores, strict=True):
        centred = f - (f @ D @ ones) / (ones @ D @ ones)
        assert found == pytest.approx((centred @ (D - S) @ centred) / (centred @ D @ centred))


@pytest.mark.parametrize("name", FITS)
def test_a_baseline_s_objective_is_that_of_its_model(
    name: str, data: Labelled, start: Float
) -> None:
    """Recompute the objective from Y and the weights; for RUFS its least value over all C."""
    alpha, beta = 0.5, 0.3
    fit = FITS[name](data.Z, data.graph, start, alpha=alpha, beta=beta, iterations=3)
    Y, W, Z = fit.indicators, fit.weights, data.Z
    S, d = data.graph.similarity.toarray(), data.graph.degrees
    L = np.eye(len(S)) - S / np.sqrt(np.outer(d, d))
    known = np.trace(Y.T @ L @ Y) + beta * np.linalg.norm(W, axis=1).sum()
    known += 1e8 / 2 * np.linalg.norm(Y.T @ Y - np.eye(data.k)) ** 2
    if name == "ndfs":
        known += alpha * ((Z @ W - Y) ** 2).sum()
    elif name == "eufs":
        known += np.linalg.norm(Z - Y @ W.T, axis=1).sum()
    else:
        known += alpha * np.linalg.norm(Z @ W - Y, axis=1).sum()
        C = np.linalg.lstsq(Y, Z, rcond=None)[0]
        misfit = fit.objective[-1] - known
        assert misfit >= np.linalg.norm(Z - Y @ C)  # sum of norms >= norm of all, any C
        assert misfit <= 1.1 * np.linalg.norm(Z, axis=1).sum()
        return
    assert fit.objective[-1] == pytest.approx(known, rel=1e-9)


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1e-2), (1e-2, 1e2), (1e2, 1.0)])
@pytest.mark.parametrize("name", FITS)
def test_a_baseline_s_objective_falls_and_its_constraints_hold(
    name: str, alpha: float, beta: float, data: Labelled, start: Float
) -> None:
    fit = FITS[name](data.Z, data.graph, start, alpha=alpha, beta=beta, iterations=60)
    assert (np.diff(fit.objective) <= 1e-9 * fit.objective[:-1]).all()
    assert fit.objective[-1] < fit.objective[0]
    assert (fit.indicators >= 0).all()
    np.testing.assert_allclose(fit.indicators.T @ fit.indicators, np.eye(data.k), atol=2e-2)
    if beta < 1:  # the features that tell clusters apart are found
        assert set(protocol.by_score(fit.scores)(4).tolist()) <= set(range(USEFUL))


@pytest.mark.parametrize("shape", [(40, 10), (10, 40)])
def test_ridge_is_stationary(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    Z, Y = rng.standard_normal(shape), rng.standard_normal((shape[0], 3))
    weights, ridges = rng.uniform(0.1, 2, shape[0]), rng.uniform(0.1, 2, shape[1])
    W = ridge(Z, Y, weights, ridges)
    gradient = Z.T @ (weights[:, None] * (Z @ W - Y)) + ridges[:, None] * W
    np.testing.assert_allclose(gradient, 0, atol=1e-10)


@pytest.mark.parametrize(("lambda_", "gamma"), [(1e-2, 1.0), (1.0, 1e-2), (1e2, 1e2)])
def test_the_objective_of_sf2sog_falls_and_its_constraints_hold(
    lambda_: float, gamma: float, data: Labelled
) -> None:
    fit = sf2sog(data.Z, data.graph, data.k, 5, lambda_=lambda_, gamma=gamma)
    Y, W, G, Z = fit.embedding, fit.weights, fit.graph, data.Z
    assert (np.diff(fit.objective) <= 0).all()
    assert len(fit.objective) > 1
    S = data.graph.similarity.toarray()
    S /= S.sum(axis=1, keepdims=True)
    pairs = ((Y[:, None] - Y[None]) ** 2).sum(axis=2)
    model = (
        (G * pairs).sum() / 2 + lambda_ * ((Z @ W - Y) ** 2).sum() + gamma * ((G - S) ** 2).sum()
    )
    assert fit.objective[-1] == pytest.approx(model, rel=1e-9)
    np.testing.assert_allclose(W.T @ W, np.eye(data.k), atol=1e-12)
    assert np.flatnonzero(W.any(axis=1)).tolist() == fit.selected.tolist()
    assert len(fit.selected) == 5
    assert (G >= 0).all()
    assert (G <= 1 + 1e-12).all()
    np.testing.assert_allclose(G.sum(axis=1), 1, atol=1e-12)


def test_the_step_of_w_ends_at_the_best_w_of_rows_no_worse_than_the_first() -> None:
    rng = np.random.default_rng(3)
    R = rng.standard_normal((30, 12))
    B = R.T @ R
    start = np.arange(5)
    W, chosen = least_subspace(B, 2, start)
    least = np.linalg.eigvalsh(B[np.ix_(start, start)])[:2].sum()
    found = np.linalg.eigvalsh(B[np.ix_(chosen, chosen)])[:2].sum()
    assert np.trace(W.T @ B @ W) == pytest.approx(found)
    assert found <= least


def test_each_row_of_the_graph_is_the_nearest_there_is() -> None:
    wanted = np.random.default_rng(4).standard_normal((6, 6))
    found = nearest_graph(wanted)
    for i, row in enumerate(wanted):
        others = np.delete(row, i)
        best = scipy.optimize.minimize(
            lambda g, others=others: ((g - others) ** 2).sum(),
            np.full(5, 0.2),
            bounds=[(0, 1)] * 5,
            constraints={"type": "eq", "fun": lambda g: g.sum() - 1},
            options={"ftol": 1e-14},
        )
        np.testing.assert_allclose(np.delete(found[i], i), best.x, atol=1e-6)
        assert found[i, i] == 0


def test_sf2sog_as_printed_is_minimised_by_copies(data: Labelled) -> None:
    """As many copies as clusters give Z W = 0, the least cost, whatever the clusters are."""
    Z = np.hstack([data.Z, data.Z[:, -data.k :]])
    fit = sf2sog(Z, data.graph, data.k, 2 * data.k, lambda_=1.0, gamma=1.0)
    p = data.Z.shape[1]
    assert fit.selected.tolist() == list(range(p - data.k, p + data.k))
    assert fit.objective[-1] < 1e-20

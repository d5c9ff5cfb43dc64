"""The paper's experiments: baselines against their models, and the protocol, on small data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import real_data

import graph
import printed
import protocol
import run
from eufs import eufs
from kmufs_stream import solvers
from labelled import Labelled, labelled, load
from laplacian_score import laplacian_scores
from literal_admm import MU_MAX, admm
from ndfs import ndfs
from nonnegative import ridge
from rufs import rufs

Float = npt.NDArray[np.float64]

USEFUL = 6  # features that tell the clusters apart; the others are noise
FITS: dict[str, Callable[..., Any]] = {"ndfs": ndfs, "rufs": rufs, "eufs": eufs}


def blobs(n: int = 90, p: int = 24, seed: int = 0) -> Labelled:
    """Three clusters that the first features tell apart; the last feature is constant."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = rng.standard_normal((n, p))
    X[:, :USEFUL] += 5 * rng.choice([-1, 0, 1], (3, USEFUL))[y] + 6 * np.eye(3, USEFUL)[y]
    X[:, -1] = 7.0
    return labelled("blobs", X, y)


@pytest.fixture(scope="module")
def data() -> Labelled:
    return blobs()


@pytest.fixture(scope="module")
def start(data: Labelled) -> Float:
    return graph.indicators(data.graph, data.k)


def settings(name: str, alpha: float, beta: float) -> dict[str, float]:
    return {"beta": beta} if name == "eufs" else {"alpha": alpha, "beta": beta}


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


def test_the_laplacian_score_is_its_formula(data: Labelled) -> None:
    S = data.graph.similarity.toarray()
    D = np.diag(S.sum(axis=1))
    ones = np.ones(len(S))
    for f, found in zip(data.Z.T, laplacian_scores(data.Z, data.graph), strict=True):
        centred = f - (f @ D @ ones) / (ones @ D @ ones)
        assert found == pytest.approx((centred @ (D - S) @ centred) / (centred @ D @ centred))


@pytest.mark.parametrize("alpha", [1e-2, 1.0, 1e2])
@pytest.mark.parametrize("beta", [1e-2, 1.0, 1e2])
@pytest.mark.parametrize("name", FITS)
def test_a_baseline_s_objective_falls_and_its_constraints_hold(
    name: str, alpha: float, beta: float, data: Labelled, start: Float
) -> None:
    fit = FITS[name](data.Z, data.graph, start, **settings(name, alpha, beta), iterations=60)
    assert (np.diff(fit.objective) <= 1e-9 * fit.objective[:-1]).all()
    assert fit.objective[-1] < fit.objective[0]
    assert (fit.indicators >= 0).all()
    np.testing.assert_allclose(fit.indicators.T @ fit.indicators, np.eye(data.k), atol=2e-2)


@pytest.mark.parametrize("name", FITS)
def test_a_baseline_s_objective_is_that_of_its_model(
    name: str, data: Labelled, start: Float
) -> None:
    """Recomputed from Y and the weights; of C in RUFS only what any C costs at least is known."""
    alpha, beta = 0.5, 0.3
    fit = FITS[name](data.Z, data.graph, start, **settings(name, alpha, beta), iterations=3)
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


@pytest.mark.parametrize("name", [*FITS, "laplacian"])
def test_a_baseline_finds_the_features_that_tell_clusters_apart(
    name: str, data: Labelled, start: Float
) -> None:
    if name == "laplacian":
        scores = -laplacian_scores(data.Z, data.graph)
    else:
        scores = FITS[name](data.Z, data.graph, start, **settings(name, 1.0, 1e-2)).scores
    assert set(protocol.by_score(scores)(4).tolist()) <= set(range(USEFUL))


@pytest.mark.parametrize("shape", [(40, 10), (10, 40)])
def test_ridge_is_stationary(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    Z, Y = rng.standard_normal(shape), rng.standard_normal((shape[0], 3))
    weights, ridges = rng.uniform(0.1, 2, shape[0]), rng.uniform(0.1, 2, shape[1])
    W = ridge(Z, Y, weights, ridges)
    gradient = Z.T @ (weights[:, None] * (Z @ W - Y)) + ridges[:, None] * W
    np.testing.assert_allclose(gradient, 0, atol=1e-10)


def test_only_the_quadratic_admm_blows_up_on_dna() -> None:
    X, _ = real_data.load("DNA_statlog")
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    _, s, Pt = np.linalg.svd(Z, full_matrices=False)
    A = (Pt[:3].T * s[:3] ** 2) @ Pt[:3]
    quadratic, bilinear = (admm(A, 8, form, iterations=15) for form in ("quadratic", "bi-linear"))
    assert quadratic.norms.max() > 1e9
    np.testing.assert_allclose(bilinear.norms, np.sqrt(8))


def test_the_bi_linear_admm_is_the_library_s(data: Labelled) -> None:
    """At h = k, where the start does not depend on how eigenvectors are completed."""
    factor, k = data.factor, data.k
    P, squares = factor.components[:, :k], factor.singular_values[:k] ** 2
    found = solvers.admm(P, squares, k, tolerance=0.0, mu0=0.1, mu_max=MU_MAX)
    course = admm((P * squares) @ P.T, k, "bi-linear", iterations=found.iterations)
    assert course.selected.tolist() == found.selected.tolist()


def test_perfect_clusters_score_100_and_the_best_size_is_taken(data: Labelled) -> None:
    judge = protocol.Judge(data, runs=3)
    useful, noise = np.arange(USEFUL), np.arange(USEFUL, 2 * USEFUL)
    assert judge.scores(noise).mean() < 60
    best = judge.best(iter([lambda h: noise, lambda h: useful]), sizes=(USEFUL,))
    assert best.accuracy.max() == 100
    assert best.nmi.max() == pytest.approx(100)


def test_every_method_chooses_h_different_features(data: Labelled) -> None:
    scale = replace(protocol.QUICK, grid=(1.0,))
    for method, choices in protocol.methods(data, scale).items():
        for choice in choices():
            chosen = choice(5)
            expected = data.Z.shape[1] if method == "all features" else 5
            assert len(set(chosen.tolist())) == len(chosen) == expected, method
            assert 0 <= chosen.min() <= chosen.max() < data.Z.shape[1]


def test_the_admm_is_the_paper_s(data: Labelled) -> None:
    """Absolute penalties in the scale of the unnormalised A."""
    options = protocol.paper_options(data)
    assert options.mu0 == pytest.approx(0.1 / len(data.X))
    assert options.mu_max == pytest.approx(1e7 / len(data.X))
    assert options.rho == 1.05


def test_printed_cells() -> None:
    for table in (printed.ACCURACY, printed.NMI):
        assert all(len(row.split(", ")) == len(printed.METHODS) for row in table.values())
    find = printed.printed
    assert find(printed.ACCURACY, "MicroMass_mixed360", "SF2SOG") == "51.6 ± 2.73"
    assert find(printed.NMI, "MNIST_first3468", "K-means UFS (admm)") == "44.8 ± 0.34"
    assert find(printed.NMI, "DNA_statlog", "NDFS") is None
    assert find(printed.NMI, "HARS_3000", "css") is None


def test_one_command_prints_tables_and_draws_figures(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(2)
    for name in ("DNA_small", "HARS_small", "MicroMass_small"):
        y = np.arange(80) % 3
        X = rng.standard_normal((80, 60)) + 2 * rng.standard_normal((3, 60))[y]
        np.savez(tmp_path / f"{name}.npz", X=X, y=y)
    assert load(tmp_path / "DNA_small.npz", most=30).X.shape == (30, 60)
    monkeypatch.setattr(run, "QUICK", protocol.Scale(None, (50,), 1, (1.0,)))
    monkeypatch.setattr("sys.argv", ["run.py", str(tmp_path), str(tmp_path / "figures"), "--quick"])
    run.main()
    output = capsys.readouterr().out
    for method in ("NDFS", "RUFS", "EUFS", "Laplacian score", "exact", "consensus"):
        assert output.count(f"| {method} |") == 2
    assert "(52.3 ± 5.65)" in output
    assert "(48.4 ± 0.12)" in output
    for number in (2, 3, 4):
        assert (tmp_path / "figures" / f"figure{number}.png").read_bytes()[1:4] == b"PNG"

"""What features explain of the cluster structure beyond noise, and what is suggested."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import pytest
from helpers import few_telling, planted
from reference import reference

from kmufs_stream import Selection, decompose, select
from kmufs_stream.factors.noise import beyond_noise
from kmufs_stream.factors.structure import cluster_structure, knee, suggest_k

X = planted(300, 12)
X[:, 5] = X[:, 2]  # a copy
FACTOR = decompose(X, 4)


def explained(selected: list[int], k: int) -> float:
    """By least squares on the whole standardised table."""
    ref = reference(X)
    Z = (X - ref.mean) / ref.std
    Q = Z @ ref.components[:, :k] / ref.singular_values[:k]
    Z = Z[:, selected]
    rest = Q - Z @ np.linalg.lstsq(Z, Q, rcond=None)[0]
    return float(1 - (rest**2).sum() / k)


@pytest.mark.parametrize("held", ["correlation", "sample"])
@pytest.mark.parametrize("selected", [[0], [2, 5], [1, 2, 4, 5, 9], list(range(12))], ids=str)
def test_explained_is_that_of_least_squares(held: str, selected: list[int]) -> None:
    # The sample holds all 300 rows, so that both ways have to agree.
    factor = FACTOR
    if held == "sample":
        factor = dataclasses.replace(FACTOR, correlation=None)
    structure = cluster_structure(factor, np.arange(12))
    some = cluster_structure(factor, np.array([*selected, 3]))  # of which it knows no others
    for k in (1, 3, 4):
        found = structure.explained(np.array(selected), k)
        assert found == pytest.approx(explained(selected, k), abs=1e-9)
        assert some.explained(np.array(selected), k) == pytest.approx(found, abs=1e-12)
    correlation, _ = structure.of(np.array(selected))
    expected = np.corrcoef(X[:, selected].T).reshape(len(selected), -1)
    np.testing.assert_allclose(correlation, expected, atol=1e-12)


@pytest.mark.parametrize("clusters", [2, 10])
def test_separated_clusters_are_counted(clusters: int) -> None:
    rng = np.random.default_rng(clusters)
    centres = rng.normal(size=(clusters, 60)) * 2
    table = centres[rng.integers(clusters, size=2000)] + rng.normal(size=(2000, 60))
    found = suggest_k(decompose(table, 15))
    assert (found.k, found.by) == (clusters, "noise edge")
    assert found.widest_gap == clusters
    assert found.above_noise == clusters - 1
    assert found.components == 31


def test_clusters_of_unlike_distances_are_counted() -> None:
    # One cluster far away: the widest gap is behind the first component, and speaks for two.
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 40))
    centres[0] += 3
    table = centres[rng.integers(4, size=2000)] + rng.normal(size=(2000, 40))
    factor = decompose(table, 10)
    assert np.argmax(factor.eigenvalues[:3] / factor.eigenvalues[1:4]) == 0
    for found in (suggest_k(factor), suggest_k(decompose(table, 2))):  # whatever k it is of
        assert (found.k, found.widest_gap) == (4, 2)


def test_where_nearly_all_is_above_noise_the_gap_counts() -> None:
    values = np.array([30.0, 28, 26, *np.linspace(12, 8, 18)])
    factor = decompose(planted(500, 40), 10)
    steep = dataclasses.replace(factor, singular_values=np.sqrt(500 * values))
    found = suggest_k(steep)
    assert (found.k, found.by, found.above_noise) == (4, "widest gap", 21)


def test_noise_suggests_hardly_anything() -> None:
    noise = np.random.default_rng(0).normal(size=(1000, 40))
    factor = decompose(noise, 3)
    found = suggest_k(factor)
    assert found.noise_edge == pytest.approx((1 + 0.2) ** 2)
    assert found.above_noise <= 1  # the largest eigenvalue may fluctuate across the edge
    # Exactly uncorrelated: every eigenvalue is 1.
    flat = suggest_k(dataclasses.replace(factor, singular_values=np.full(7, np.sqrt(1000.0))))
    assert (flat.k, flat.widest_gap, flat.above_noise) == (None, None, 0)


def test_a_knee_takes_a_clear_bend() -> None:
    h = np.array([1, 2, 3, 5, 8, 14, 24, 40, 66, 110, 182, 300])
    noise = np.random.default_rng(0).normal(0, 0.02, len(h))
    bent = 1 - np.exp(-h / 20)
    for curve in (h / 300, h / 300 + noise, h / 300 + 0.05, (h / 300) ** 0.9, (h / 300) ** 2):
        assert knee(h.tolist(), curve.tolist()) is None
    for curve in (bent, bent + noise):
        found = knee(h.tolist(), curve.tolist())
        assert found is not None
        assert 40 <= found <= 110
    assert knee([1, 2, 4, 8, 16], [1, 2, 4, 4.1, 4.2]) == 4
    assert knee([10, 20, 30], [0.1, 0.2, 0.3]) is None
    assert knee([10, 20], [0.0, 0.0]) is None
    assert knee([10], [0.5]) is None
    # Straight from its first point on: where it has bent before is not seen.
    assert knee([20, 30, 40, 50], [0.5, 0.55, 0.6, 0.65]) is None


TELLING = 12


def found(X: npt.NDArray[np.float64], k: int) -> npt.NDArray[np.bool_]:
    factor = decompose(X, k)
    return beyond_noise(factor.components[:, :k], factor.eigenvalues[:k], len(X))


@pytest.mark.parametrize(("n", "p", "k"), [(2000, 60, 5), (200, 400, 4)])
def test_features_that_tell_clusters_apart_are_found_and_hardly_others(
    n: int, p: int, k: int
) -> None:
    right, wrong = 0, 0
    for seed in range(3):
        beyond = found(few_telling(n, p, k, TELLING, seed=seed), k)
        right += int(beyond[:TELLING].sum())
        wrong += int(beyond[TELLING:].sum())
    assert right >= 0.85 * 3 * TELLING
    assert wrong <= 7  # one a table is expected; more than seven of three: once in a hundred


def test_in_mere_noise_hardly_any_is_found_and_of_copies_all() -> None:
    rng = np.random.default_rng(0)
    tables = [found(rng.normal(size=(500, 50)), 3) for _ in range(10)]
    assert np.mean([table.any() for table in tables]) <= 0.4
    assert not found(rng.normal(size=(100, 1)), 1).any()
    assert found(np.repeat(rng.normal(size=(200, 1)), 6, axis=1), 1).all()


@pytest.mark.parametrize("method", ["gram", "lanczos"])
def test_a_result_tells_what_is_noise_in_it(method: str) -> None:
    X = few_telling(800, 60, 4, TELLING)

    def of(solver: str, h: int) -> Selection:
        return select(X, 4, h, solver=solver, method=method)

    assert of("exact", TELLING - 1).at_noise.tolist() == []
    css = of("css", TELLING)
    assert css.at_noise.tolist() == [i for i in css.selected if not css.beyond_noise[i]]
    assert len(css.at_noise) >= 3
    many = of("exact", 40).summary()
    assert many["beyond_noise"] in (TELLING, TELLING + 1)
    assert len(many["at_noise"]) == 40 - many["beyond_noise"]

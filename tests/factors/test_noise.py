"""Which features vary with the components more than noise would."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import few_telling
from numpy.typing import NDArray

from kmufs_stream import Selection, decompose, select
from kmufs_stream.factors.noise import beyond_noise

TELLING = 12


def found(X: NDArray[np.float64], k: int) -> NDArray[np.bool_]:
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


def test_in_mere_noise_hardly_any_is_found() -> None:
    rng = np.random.default_rng(0)
    tables = [found(rng.normal(size=(500, 50)), 3) for _ in range(10)]
    assert np.mean([table.any() for table in tables]) <= 0.4
    assert not found(rng.normal(size=(100, 1)), 1).any()


def test_all_copies_of_one_feature_are_found() -> None:
    X = np.random.default_rng(0).normal(size=(200, 1)) @ np.ones((1, 6))
    assert found(X, 1).all()


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

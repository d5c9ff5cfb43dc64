"""The joint choice: objective, start and end of the alternation."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from kmufs_stream.solvers.correlations import factor_rows
from kmufs_stream.solvers.exact import exact
from kmufs_stream.solvers.joint import joint, joint_bytes
from tests.solvers.oracles import CLUSTERS, factors, leading, standardised

Array = npt.NDArray[np.float64]


def value(C: Array, chosen: npt.NDArray[np.int64], k: int) -> float:
    """Variance of the chosen features in their best k-dimensional subspace."""
    return float(np.linalg.eigvalsh(C[np.ix_(chosen, chosen)])[-k:].sum())


@pytest.mark.parametrize("name", CLUSTERS)
def test_rises_from_the_exact_choice_to_a_fixed_point(name: str) -> None:
    (Z, C), (P, lam), k, h = standardised(name), factors(name), CLUSTERS[name], 50
    found = joint(P, lam, C.__getitem__, h, tolerance=1e-12)
    rising = found.history["solver_objective"]
    assert (np.diff(rising) > 0).all()
    begun = exact(P, lam, h, tolerance=1e-12).selected
    assert rising[0] == pytest.approx(value(C, begun, k), rel=1e-10)
    assert found.solver_objective == rising[-1]
    assert found.solver_objective == pytest.approx(value(C, found.selected, k), rel=1e-10)
    assert found.converged
    assert len(rising) == len(found.history["rows_changed"]) == found.iterations
    # Given the subspace of the chosen, none of the others has more variance in it.
    U, _, _ = np.linalg.svd(Z[:, found.selected], full_matrices=False)
    variance = ((U[:, :k].T @ Z) ** 2).sum(axis=0) / len(Z)
    assert np.sort(variance)[-h:].sum() == pytest.approx(variance[found.selected].sum(), rel=1e-9)
    stopped = joint(P, lam, C.__getitem__, h, tolerance=1e-12, max_iter=1)
    assert (stopped.iterations, stopped.converged) == (2, False)


def test_no_choice_is_much_better_on_small_data() -> None:
    rng = np.random.default_rng(3)
    Z = rng.standard_normal((50, 2)) @ rng.standard_normal((2, 9)) + rng.standard_normal((50, 9))
    C = np.corrcoef(Z.T)
    found = joint(*leading(C, 2), C.__getitem__, 4, tolerance=1e-12)
    best = max(value(C, np.array(rows), 2) for rows in combinations(range(9), 4))
    assert 0.98 * best <= found.solver_objective <= best * (1 + 1e-12)


@pytest.mark.parametrize(("k", "h"), [(3, 2), (3, 1), (1, 5), (4, 8)])
def test_every_shape(k: int, h: int) -> None:
    P = np.linalg.qr(np.random.default_rng(1).standard_normal((8, k)))[0]
    lam = 1.0 / (P**2).sum(axis=1).max() * np.linspace(1.0, 0.5, k)
    found = joint(P, lam, factor_rows(P, lam), h, tolerance=1e-12)
    assert np.array_equal(found.selected, np.unique(found.selected))
    assert found.selected.size == h
    assert found.solver_objective <= h * (1 + 1e-12)


def test_copies_do_not_make_it_cycle() -> None:
    C = np.kron(np.eye(3), np.ones((4, 4)))
    P = np.kron(np.eye(3), np.full((4, 1), 0.5))
    found = joint(P, np.full(3, 4.0), C.__getitem__, 5, tolerance=1e-12)
    assert found.converged
    assert found.selected.tolist() == [0, 1, 2, 3, 4]
    assert joint_bytes(12, 3, 5) > 8 * 12 * 5

"""The solvers that use correlations: column subset selection, and the joint choice."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from kmufs_stream.solvers.correlations import factor_rows
from kmufs_stream.solvers.css import css, css_bytes
from kmufs_stream.solvers.exact import exact
from kmufs_stream.solvers.joint import joint, joint_bytes
from tests.solvers.oracles import CLUSTERS, factors, leading, standardised, traced_peak

Array = npt.NDArray[np.float64]


def literal_css(Z: Array, Q: Array, h: int) -> list[int]:
    """Each step tries every feature: a least-squares projection of Q onto the chosen columns."""
    chosen: list[int] = []
    for _ in range(h):
        best, gained = -1, -np.inf
        for i in range(Z.shape[1]):
            if i not in chosen:
                value = explained(Z[:, [*chosen, i]], Q)
                if value > gained * (1 + 1e-10):
                    best, gained = i, value
        chosen.append(best)
    return sorted(chosen)


def explained(columns: Array, Q: Array) -> float:
    basis, values, _ = np.linalg.svd(columns, full_matrices=False)
    return float(((basis[:, values > 1e-9 * values[0]].T @ Q) ** 2).sum())


def small(n: int, p: int, k: int, seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """Standardised data with Q_k, P_k and eigenvalues."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, 4)) @ rng.standard_normal((4, p)) + rng.standard_normal((n, p))
    Z = (Z - Z.mean(axis=0)) / Z.std(axis=0)
    Q, s, Pt = np.linalg.svd(Z, full_matrices=False)
    return Z, Q[:, :k], np.ascontiguousarray(Pt[:k].T), s[:k] ** 2 / n


@pytest.mark.parametrize(("p", "k", "h"), [(12, 3, 1), (12, 3, 5), (12, 1, 4), (9, 4, 9)])
def test_css_is_the_same_as_trying_every_feature(p: int, k: int, h: int) -> None:
    Z, Q, P, lam = small(60, p, k)
    found = css(P, lam, (Z.T @ Z / len(Z)).__getitem__, h, tolerance=1e-12)
    assert found.selected.tolist() == literal_css(Z, Q, h)
    value = explained(Z[:, found.selected], Q)
    assert found.solver_objective == pytest.approx(value, rel=1e-9)
    rising = found.history["solver_objective"]
    assert len(rising) == h
    assert rising[-1] == found.solver_objective
    assert (np.diff(rising) >= 0).all()
    (Z, C), (P, lam) = standardised("DNA_statlog"), factors("DNA_statlog")
    found = css(P, lam, C.__getitem__, h, tolerance=1e-10)
    assert found.selected.tolist() == literal_css(Z, Z @ P / np.sqrt(lam * len(Z)), h)


def test_css_gains_nothing_by_copies() -> None:
    Z, _, _, _ = small(60, 8, 3)
    C = np.tile(Z.T @ Z / 60, (2, 2))
    P, lam = leading(C, 3)
    assert css(P, lam, C.__getitem__, 8, tolerance=1e-10).selected.tolist() == list(range(8))
    # Beyond the rank the highest scores follow.
    assert css(P, lam, C.__getitem__, 16, tolerance=1e-10).selected.size == 16


def test_css_without_the_matrix_the_factor_replaces_it() -> None:
    # With all components the factor gives the matrix itself; of fewer it keeps the diagonal.
    Z, _, P, lam = small(60, 10, 10)
    C = Z.T @ Z / len(Z)
    kept, modelled = (
        css(P[:, :3], lam[:3], rows, 6, tolerance=1e-10)
        for rows in (C.__getitem__, factor_rows(P, lam))
    )
    assert modelled.selected.tolist() == kept.selected.tolist()
    np.testing.assert_allclose(factor_rows(P, lam)(np.arange(10)), C, atol=1e-12)
    expected = (P[:, :3] * lam[:3]) @ P[:, :3].T
    np.fill_diagonal(expected, 1.0)
    truncated = factor_rows(P[:, :3], lam[:3])(np.array([7, 2]))
    np.testing.assert_allclose(truncated, expected[[7, 2]], atol=1e-14)


def test_memory_of_css_stays_below_the_bound() -> None:
    p, k, h = 3000, 10, 60
    P = np.linalg.qr(np.random.default_rng(0).standard_normal((p, k)))[0]
    rows = factor_rows(P, np.full(k, 20.0))
    peak = traced_peak(lambda: css(P, np.full(k, 20.0), rows, h, tolerance=1e-12))
    assert 8 * p * h <= peak <= css_bytes(p, k, h)


def value(C: Array, chosen: npt.NDArray[np.int64], k: int) -> float:
    """Variance of the chosen features in their best k-dimensional subspace."""
    return float(np.linalg.eigvalsh(C[np.ix_(chosen, chosen)])[-k:].sum())


@pytest.mark.parametrize("name", CLUSTERS)
def test_joint_rises_from_the_exact_choice_to_a_fixed_point(name: str) -> None:
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


def test_no_choice_is_much_better_than_joint_on_small_data() -> None:
    rng = np.random.default_rng(3)
    Z = rng.standard_normal((50, 2)) @ rng.standard_normal((2, 9)) + rng.standard_normal((50, 9))
    C = np.corrcoef(Z.T)
    found = joint(*leading(C, 2), C.__getitem__, 4, tolerance=1e-12)
    best = max(value(C, np.array(rows), 2) for rows in combinations(range(9), 4))
    assert 0.98 * best <= found.solver_objective <= best * (1 + 1e-12)


@pytest.mark.parametrize(("k", "h"), [(3, 2), (3, 1), (1, 5), (4, 8)])
def test_joint_of_every_shape(k: int, h: int) -> None:
    P = np.linalg.qr(np.random.default_rng(1).standard_normal((8, k)))[0]
    lam = 1.0 / (P**2).sum(axis=1).max() * np.linspace(1.0, 0.5, k)
    found = joint(P, lam, factor_rows(P, lam), h, tolerance=1e-12)
    assert np.array_equal(found.selected, np.unique(found.selected))
    assert found.selected.size == h
    assert found.solver_objective <= h * (1 + 1e-12)


def test_copies_do_not_make_joint_cycle() -> None:
    C = np.kron(np.eye(3), np.ones((4, 4)))
    P = np.kron(np.eye(3), np.full((4, 1), 0.5))
    found = joint(P, np.full(3, 4.0), C.__getitem__, 5, tolerance=1e-12)
    assert found.converged
    assert found.selected.tolist() == [0, 1, 2, 3, 4]
    assert joint_bytes(12, 3, 5) > 8 * 12 * 5

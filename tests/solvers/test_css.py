"""Column subset selection against its literal form."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from kmufs_stream.solvers.correlations import factor_rows
from kmufs_stream.solvers.css import css, css_bytes
from tests.solvers.oracles import factors, leading, standardised, traced_peak

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
def test_same_as_trying_every_feature(p: int, k: int, h: int) -> None:
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


def test_copies_gain_nothing() -> None:
    Z, _, _, _ = small(60, 8, 3)
    C = np.tile(Z.T @ Z / 60, (2, 2))
    P, lam = leading(C, 3)
    assert css(P, lam, C.__getitem__, 8, tolerance=1e-10).selected.tolist() == list(range(8))
    # Beyond the rank the highest scores follow.
    assert css(P, lam, C.__getitem__, 16, tolerance=1e-10).selected.size == 16


def test_without_the_matrix_the_factor_replaces_it() -> None:
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


def test_memory_stays_below_the_bound() -> None:
    p, k, h = 3000, 10, 60
    P = np.linalg.qr(np.random.default_rng(0).standard_normal((p, k)))[0]
    rows = factor_rows(P, np.full(k, 20.0))
    peak = traced_peak(lambda: css(P, np.full(k, 20.0), rows, h, tolerance=1e-12))
    assert 8 * p * h <= peak <= css_bytes(p, k, h)


def test_h_outside_the_features_is_refused() -> None:
    with pytest.raises(ValueError, match="h is 5"):
        css(np.eye(4), np.ones(4), np.eye(4).__getitem__, 5, tolerance=0.0)

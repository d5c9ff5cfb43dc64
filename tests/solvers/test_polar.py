"""The polar step, for matrices of every condition."""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt
import pytest
import scipy.linalg
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kmufs_stream.solvers.polar import Polar, deviation, graded_polar, orthonormalise, polar, probes

module = sys.modules["kmufs_stream.solvers.polar"]
Array = npt.NDArray[np.float64]


def split_problem(
    seed: int, p: int, k: int, h: int, small: float, condition: float
) -> tuple[Array, Array, Array]:
    """P, T of size 1 and R of size ``small`` with the given condition, P^T R = 0."""
    rng = np.random.default_rng(seed)
    P = np.linalg.qr(rng.standard_normal((p, k)))[0]
    T = rng.standard_normal((k, h))
    R = rng.standard_normal((p, h)) * np.geomspace(1, 1 / condition, h)
    R = R @ np.linalg.qr(rng.standard_normal((h, h)))[0]
    for _ in range(2):
        R -= P @ (P.T @ R)
    return P, T, np.ascontiguousarray(small * R)


def solve(P: Array, T: Array, R: Array) -> tuple[Array, Polar]:
    U = np.full_like(R, np.nan)
    return U, polar(P, T, R, U)


def assert_polar_factor(U: Array, H: Array, size: float = 1e-11) -> None:
    """U has orthonormal columns and H = U (symmetric, not negative)."""
    h = H.shape[1]
    assert np.linalg.norm(U.T @ U - np.eye(h)) <= 1e-12
    S = U.T @ H
    scale = np.linalg.norm(H)
    assert np.linalg.norm(S - S.T) <= size * scale
    assert np.linalg.eigvalsh((S + S.T) / 2).min() >= -size * scale
    assert np.linalg.norm(U @ S - H) <= size * scale


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(40, 3, 12), (30, 8, 4), (25, 1, 25), (12, 12, 12), (50, 2, 1)]),
    small=st.sampled_from([1.0, 1e-3, 1e-6, 1e-12, 0.0]),
    condition=st.sampled_from([1.0, 1e3, 1e6, 1e9, 1e14]),
)
@example(seed=4654, shape=(40, 3, 12), small=1e-12, condition=1e9)
def test_ill_conditioned_matrices(
    seed: int, shape: tuple[int, int, int], small: float, condition: float
) -> None:
    P, T, R = split_problem(seed, *shape, small, condition)
    U, result = solve(P, T, R)
    assert_polar_factor(U, P @ T + R)
    np.testing.assert_allclose(result.along, P.T @ U, atol=1e-11)


def test_the_small_part_is_as_accurate_as_the_large() -> None:
    # P and R on disjoint coordinates: the factor is known from two small SVDs.
    rng = np.random.default_rng(5)
    P = np.vstack([np.eye(3), np.zeros((20, 3))])
    T = np.hstack([rng.standard_normal((3, 3)), np.zeros((3, 5))])
    block = rng.standard_normal((20, 5))
    R = np.zeros((23, 8))
    R[3:, 3:] = 1e-9 * block
    U, result = solve(P, T, R)
    expected = np.zeros((23, 8))
    for rows, columns, part in ((slice(3), slice(3), T[:, :3]), (slice(3, 23), slice(3, 8), block)):
        X, _, Yt = np.linalg.svd(part, full_matrices=False)
        expected[rows, columns] = X @ Yt
    assert result.method == "cholesky"
    np.testing.assert_allclose(U, expected, atol=1e-13)


@pytest.mark.parametrize(
    ("small", "condition", "method"),
    [(1e-6, 1.0, "cholesky"), (1e-6, 1e3, "refined"), (1e-6, 1e12, "householder"),
     (0.0, 1.0, "householder")],
)  # fmt: skip
def test_every_method_is_used_where_it_should(
    small: float, condition: float, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK_ENTRIES", 1)  # several blocks of rows
    P, T, R = split_problem(0, 300, 4, 40, small, condition)
    U, result = solve(P, T, R)
    assert result.method == method
    assert_polar_factor(U, P @ T + R)


@pytest.mark.parametrize(("routine", "method"), [("svd", "cholesky"), ("cholesky", "householder")])
def test_a_routine_that_fails(routine: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise np.linalg.LinAlgError("SVD did not converge")

    P, T, R = split_problem(8, 200, 4, 20, 1e-6 if method == "cholesky" else 1.0, 10.0)
    before = [x.copy() for x in (P, T, R)]
    monkeypatch.setattr(np.linalg, routine, fails)
    U, result = solve(P, T, R)
    assert result.method == method
    assert_polar_factor(U, P @ T + R)
    np.testing.assert_allclose(U, scipy.linalg.polar(P @ T + R)[0], atol=1e-9)
    assert all(np.array_equal(a, b) for a, b in zip((P, T, R), before, strict=True))


@pytest.mark.parametrize("where", ["T", "R"])
def test_entries_that_are_not_finite_are_refused(where: str) -> None:
    P, T, R = split_problem(11, 30, 3, 5, 1.0, 1.0)
    (T if where == "T" else R)[0, 0] = np.nan
    with pytest.raises(ValueError, match="finite"):
        solve(P, T, R)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), size=st.floats(1e-14, 1e-2), rank=st.integers(1, 30))
def test_the_estimate_of_the_deviation_is_not_far_too_small(
    seed: int, size: float, rank: int
) -> None:
    rng = np.random.default_rng(seed)
    E = rng.standard_normal((30, rank))
    E = E @ E.T
    E *= size / np.linalg.norm(E)
    g = probes(30)
    estimate = deviation(g + E @ g, g)
    assert size / 10 <= estimate + 1e-15
    assert estimate <= 5 * size + 1e-15


def test_graded_columns_keep_their_digits() -> None:
    # Z^T C D must be symmetric to rounding even among its columns of size 1e-9: an SVD alone is off
    # by 1e-7 there, though not of matrices as small as 6 x 6.
    rng = np.random.default_rng(12)
    X = np.linalg.qr(rng.standard_normal((100, 100)))[0]
    D = np.repeat([1.0, 1e-9], [20, 80])
    Z = graded_polar(X, D)
    np.testing.assert_allclose(Z.T @ Z, np.eye(100), atol=1e-13)
    S = (Z.T @ X) * D
    np.testing.assert_allclose((S - S.T)[20:, 20:] / 1e-9, 0, atol=1e-12)


@pytest.mark.parametrize("p", [7, 128, 129, 135])
def test_orthonormalise(p: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_ENTRIES", 1)  # blocks of 128 rows
    out = np.random.default_rng(13).standard_normal((p, 7))
    out[:, 3] = out[:, 1]
    before = out.copy()
    triangle = orthonormalise(out)
    np.testing.assert_allclose(out.T @ out, np.eye(7), atol=1e-13)
    np.testing.assert_allclose(out @ triangle, before, atol=1e-12)
    assert np.array_equal(triangle, np.triu(triangle))

"""The bi-linear ADMM of the paper, on factors: A is never formed.

The iteration needs four p x h arrays. With W = F on the chosen rows and 0 elsewhere, the update of
Gamma gives 0 on the chosen rows and ``mu F`` elsewhere, so one array, ``split``, holds both
``-mu W`` and ``Gamma``, each where the other is zero. ``rest`` holds Omega between iterations and,
within one, the part of ``mu V + Omega`` orthogonal to P_k, which the polar step takes separately
from the rest of H (early on it is a million times smaller).
"""

from __future__ import annotations

import numpy as np

from kmufs_stream.solvers.polar import (
    block_rows,
    orthonormalise,
    polar,
    polar_entries,
    row_blocks,
    svd,
)
from kmufs_stream.solvers.scores import check_h, feature_scores, ranking
from kmufs_stream.solvers.solution import Solution, UnsolvableError, Watcher, unwatched
from kmufs_stream.typing import Float, Int

MU0, MU_MAX = 1e-6, 1e3  # default first and last penalty, as multiples of A's largest eigenvalue


def admm(
    components: Float,
    eigenvalues: Float,
    h: int,
    *,
    tolerance: float,
    mu0: float | None = None,
    mu_max: float | None = None,
    rho: float = 1.05,
    max_iter: int = 3000,
    patience: int = 30,
    watch: Watcher = unwatched,
) -> Solution:
    """Choose h features by the bi-linear alternating direction method of multipliers.

    ``solver_objective`` is Tr(S^T A S) of the chosen features; ``converged`` is False when
    ``max_iter`` was reached first. Rows of equal 2-norm tie, and ties go to the lower index.

    Parameters
    ----------
    tolerance : float
        Scores this close tie in the order that completes P_k to h columns at the start.
    mu0, mu_max : float, optional
        First and last penalty, in the scale of A. Default: 1e-6 and 1e3 times its largest
        eigenvalue.
    rho : float
        Growth of the penalty per iteration, 1 or more.
    patience : int
        Stop when the chosen rows have not changed for this many iterations.

    Raises
    ------
    ValueError
        Shapes that disagree, entries that are not finite, columns that are not orthonormal to
        1e-4, options out of range.

    Notes
    -----
    2 p h^2 + O(p h k + h^3) multiplications per iteration. The path depends on the last bits of
    the products, hence on the number of BLAS threads, which callers have to fix.

    Source: Sun, Ding and Fan, arXiv 2411.15197, Algorithm 1.
    """
    components, eigenvalues = _checked(components, eigenvalues, h)
    largest = float(eigenvalues.max())
    mu = MU0 * largest if mu0 is None else float(mu0)
    mu_max = MU_MAX * largest if mu_max is None else float(mu_max)
    if not (0 < mu <= mu_max < np.inf and 1 <= rho < np.inf):
        raise UnsolvableError(
            f"mu0={mu}, mu_max={mu_max}, rho={rho}: need 0 < mu0 <= mu_max, rho >= 1"
        )
    if max_iter < 1 or patience < 1:
        raise ValueError(f"max_iter={max_iter}, patience={patience}: both must be 1 or more")

    p, k = components.shape
    scores = feature_scores(components, eigenvalues, k)
    u = start(components, ranking(scores, tolerance), h)
    u_along = components.T @ u
    v = np.empty_like(u)
    rest = np.zeros_like(u)
    split = np.multiply(u, -mu)
    chosen = np.arange(p)  # the rows where W is not 0: all of them at the start
    history: list[dict[str, float]] = []
    unchanged = 0
    work = np.empty((min(p, block_rows(h)), h))

    for _ in range(max_iter):
        # D = A U + mu (U + W) - Omega - Gamma, and the products of P_k with D and Omega.
        weighted = eigenvalues[:, None] * u_along
        squared = 0.0
        v_along = np.zeros((k, h))
        omega_along = np.zeros((k, h))
        for rows in row_blocks(p, h):
            block, basis, spare = v[rows], components[rows], work[: rows.stop - rows.start]
            np.matmul(basis, weighted, out=block)
            block += np.multiply(u[rows], mu, out=spare)
            block -= rest[rows]
            block -= split[rows]
            squared += float(np.vdot(block, block))
            v_along += basis.T @ block
            omega_along += basis.T @ rest[rows]
        length = np.sqrt(h / squared)
        v_along *= length

        # V, mu V + Omega (less its part along P_k) and mu F = mu V + Gamma.
        along = mu * v_along + omega_along
        split[chosen] = 0.0
        v_squares = np.empty(p)
        f_squares = np.empty(p)
        for rows in row_blocks(p, h):
            block, spare = v[rows], work[: rows.stop - rows.start]
            block *= length
            np.einsum("ij,ij->i", block, block, out=v_squares[rows])
            rest[rows] -= np.matmul(components[rows], along, out=spare)
            np.multiply(block, mu, out=spare)
            rest[rows] += spare
            split[rows] += spare
            np.einsum("ij,ij->i", split[rows], split[rows], out=f_squares[rows])

        found = polar(components, eigenvalues[:, None] * v_along + along, rest, u)
        u_along = found.along

        # Omega = (mu V + Omega) - mu U.
        apart = 0.0
        for rows in row_blocks(p, h):
            spare = work[: rows.stop - rows.start]
            rest[rows] += np.matmul(components[rows], along, out=spare)
            rest[rows] -= np.multiply(u[rows], mu, out=spare)
            np.subtract(v[rows], u[rows], out=spare)
            apart += float(np.vdot(spare, spare))

        before = chosen
        chosen = np.sort(np.argsort(-f_squares, kind="stable")[:h])
        others = np.ones(p, dtype=bool)
        others[chosen] = False
        gap = v[chosen]
        gap -= split[chosen] / mu
        changed = np.setdiff1d(chosen, before, assume_unique=True).size if history else h
        figures = {
            "objective": float(scores[chosen].sum()),
            "residual_u": float(np.sqrt(apart)),
            "residual_w": float(np.sqrt(v_squares[others].sum() + np.vdot(gap, gap))),
            "rows_changed": changed,
        }
        if not np.isfinite(figures["residual_u"] + figures["residual_w"]):
            raise UnsolvableError("the iteration left the range of float64; lower mu_max")
        history.append(figures)
        watch(**figures)

        # W = F on the chosen rows, Gamma = mu F on the others.
        following = min(rho * mu, mu_max)
        split[chosen] *= -following / mu
        mu = following
        unchanged = unchanged + 1 if changed == 0 else 0
        if unchanged >= patience:
            break

    return Solution(
        selected=chosen.astype(np.int64),
        solver_objective=figures["objective"],
        iterations=len(history),
        converged=unchanged >= patience,
        primal_residuals=(figures["residual_u"], figures["residual_w"]),
        history={name: np.array([each[name] for each in history]) for name in figures},
    )


def admm_bytes(p: int, k: int, h: int) -> int:
    """Bound the working memory of :func:`admm`, in bytes.

    Four p x h arrays, the polar step at its largest (the start needs less), the components copied
    and made orthonormal (with LAPACK's copies), the chosen rows, a block of rows, some vectors of
    length p, and a megabyte for history and small things.
    """
    loop = 4 * p * h + polar_entries(p, k, h) + block_rows(h) * h + 4 * h * h + 8 * k * h
    return 8 * (loop + 6 * p * k + 8 * k * k + 16 * p) + 2**20


def start(components: Float, order: Int, h: int) -> Float:
    """Return P_h, (p, h): the leading h eigenvectors of A, those beyond k chosen by us.

    The first h columns of the QR (with a positive diagonal) of ``[P_k, e_i1, e_i2, ...]``, i the
    features in the given order, by falling score; a unit vector in the span of the columns before
    it is skipped. O(p h^2).
    """
    p, k = components.shape
    if h <= k:
        return components[:, :h].copy()
    used = order[: h - k]
    following = h - k
    while True:
        basis = np.zeros((p, h))
        basis[:, :k] = components
        basis[used, np.arange(k, h)] = 1.0
        triangle = orthonormalise(basis)
        diagonal = np.diagonal(triangle)[k:]
        dependent = np.flatnonzero(np.abs(diagonal) < 1e-8)
        if dependent.size == 0 or following >= p:
            break
        # One at a time: columns after a dependent one were compared with an arbitrary direction.
        used = np.append(np.delete(used, dependent[0]), order[following])
        following += 1
    basis *= np.where(np.diagonal(triangle) < 0, -1.0, 1.0)
    basis[:, :k] = components
    return basis


def _checked(components: Float, eigenvalues: Float, h: int) -> tuple[Float, Float]:
    """Return the factors as C-ordered float64, orthonormal to rounding; refuse bad ones."""
    components = np.ascontiguousarray(components, dtype=np.float64)
    eigenvalues = np.asarray(eigenvalues, dtype=np.float64)
    if components.ndim != 2 or eigenvalues.shape != components.shape[1:] or eigenvalues.size == 0:
        raise ValueError(
            f"components of shape {components.shape} and eigenvalues of shape "
            f"{eigenvalues.shape} do not belong together"
        )
    p, k = components.shape
    check_h(h, p)
    if not (np.isfinite(eigenvalues).all() and eigenvalues.min() >= 0 < eigenvalues.max()):
        raise ValueError("eigenvalues must be finite, not negative, and not all zero")
    off = float(np.abs(components.T @ components - np.eye(k)).max())
    if not off <= 1e-4:
        raise ValueError(f"the columns of components are not orthonormal: off by {off:.1e}")
    if off > 1e-13:
        # The same A with orthonormal columns, for components in single precision: the polar step
        # relies on P^T R = 0.
        basis, triangle = np.linalg.qr(components)
        left, values, _ = svd(triangle * np.sqrt(eigenvalues))
        turned = basis @ left
        signs = np.where(np.einsum("ij,ij->j", turned, components) < 0, -1.0, 1.0)
        components, eigenvalues = np.ascontiguousarray(turned * signs), values**2
    return components, eigenvalues

"""Block Lanczos against whole-array NumPy: scores, error estimates, reads."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from helpers import planted
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import load
from reference import Reference, reference, top

from kmufs_stream import LanczosOptions
from kmufs_stream.errors import BrokenError, RequestError
from kmufs_stream.factors.methods.krylov import Krylov, contenders
from kmufs_stream.factors.methods.lanczos import METHOD, block_columns, lanczos
from kmufs_stream.factors.methods.leading import Leading
from kmufs_stream.factors.methods.method import Problem
from kmufs_stream.factors.methods.screening import standardise
from kmufs_stream.solvers.scores import feature_scores
from kmufs_stream.streaming.kernels.kernel import Kernel, State
from kmufs_stream.streaming.kernels.products import Product, StartProduct
from kmufs_stream.streaming.kernels.scaling import Scaling

Array = npt.NDArray[Any]


class Reader:
    """Reads rows in partitions of a block, and keeps the kernels of its reads."""

    standardise = staticmethod(partial(standardise, feature_name="feature {}".format))

    def __init__(self, x: Array, rows: int = 500) -> None:
        self.x, self.rows = x, rows
        self.kernels: list[Kernel[Any]] = []

    def __call__(self, kernel: Kernel[State], /) -> State:
        self.kernels.append(kernel)
        state = kernel.init()
        for start in range(0, len(self.x), self.rows):
            state += kernel.update(kernel.init(), self.x[start : start + self.rows], start)
        return state


def run(x: Array, k: int, reader: Reader | None = None, **options: Any) -> Leading:
    precision: Any = "float64" if x.dtype == np.float64 else "float32"
    scaling = Scaling.from_probe(x[:: max(len(x) // 512, 1)], precision)
    return lanczos(problem(x.shape[1], k, **options), reader or Reader(x), scaling)


def problem(p: int, k: int, h: int | None = None, **options: Any) -> Problem:
    lanczos = LanczosOptions(**{"max_passes": 40, **options})
    return Problem(p, k, h, sparse=False, fills=False, lanczos=lanczos)


def scores_of(found: Leading, k: int) -> npt.NDArray[np.float64]:
    return feature_scores(found.components, found.eigenvalues, k)


def correlation(x: Array, expected: Reference) -> npt.NDArray[np.float64]:
    usable = expected.usable
    z = (x[:, usable].astype(np.float64) - expected.mean[usable]) / expected.std[usable]
    return z.T @ z / len(x)


def clusters(n: int, p: int, k: int, seed: int, share: float = 0.2) -> Array:
    """k strong clusters in a share of the features, noise in all."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, p))
    q = max(int(share * p), 1)
    x[:, :q] += 1.5 * rng.standard_normal((k, q))[rng.integers(k, size=n)]
    return x[:, rng.permutation(p)]


def duplicated(n: int, p: int, k: int, seed: int) -> Array:
    x = clusters(n, p, k, seed)
    x[:, p // 2 : p // 2 * 2] = x[:, : p // 2]
    return x


def low_rank(n: int, p: int, k: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, k + 4)) @ rng.standard_normal((k + 4, p))


def noise(n: int, p: int, k: int, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((n, p))


def decaying(n: int, p: int, k: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    strong = rng.standard_normal((n, 40)) * 0.85 ** np.arange(40)
    return strong @ rng.standard_normal((40, p)) + 0.1 * rng.standard_normal((n, p))


KINDS = [clusters, duplicated, low_rank, noise, decaying]


Example = tuple[int, int, int, int | None, bool, float, int]
examples: st.SearchStrategy[Example] = st.tuples(
    st.sampled_from([25, 150, 900]),  # n
    st.sampled_from([8, 40, 250]),  # p
    st.sampled_from([1, 2, 5]),  # k
    st.sampled_from([None, 6]),  # h
    st.booleans(),  # whether in float64
    st.sampled_from([1e-2, 1e-4]),  # tol
    st.integers(0, 1000),  # seed
)


def check(make: Any, example: Example, max_passes: int) -> Leading:
    """The error of scores is at most twice the estimate, and all else what it says."""
    n, p, k, h, wide, tol, seed = example
    x = make(n, p, k, seed).astype(np.float64 if wide else np.float32)
    reader = Reader(x)
    found = run(x, k, reader, h=h, tol=tol, max_passes=max_passes, seed=seed)
    expected = reference(x)
    scores, right = scores_of(found, k), expected.scores(k)
    counted = np.ones(len(right), bool)
    if h is not None:
        counted[:] = False
        counted[[*top(right, h), *top(scores, h)]] = True
    assert np.abs(scores - right)[counted].max() <= 2 * found.score_error
    if found.settled:
        # Or all was found, and the error comes from a gap that rounding blurs.
        exhausted = found.residuals.max() <= 1e-5 * found.eigenvalues[0]
        assert found.score_error < tol or exhausted
    else:
        assert found.passes == max_passes
    assert found.passes == len(reader.kernels) <= max_passes
    r = min(len(right), 2 * k + 1)
    assert found.components.shape == (len(right), r)
    identity = found.components.T @ found.components
    np.testing.assert_allclose(identity, np.eye(r), atol=1e-11)
    return found


@pytest.mark.parametrize("make", KINDS)
@settings(deadline=None, max_examples=12)
@given(example=examples)
def test_errors_are_no_larger_than_estimated(make: Any, example: Example) -> None:
    assert check(make, example, 30).settled


@pytest.mark.parametrize("make", KINDS)
def test_errors_are_as_estimated_where_reads_run_out(make: Any) -> None:
    """The estimate is no bound there: these examples are always the same.

    Of more than 12,000 drawn ones the error of one was 2.8 times the estimate: that of
    clusters(150, 250, 1, seed=724) in float32 after 3 reads, with h = 6. It had not found all
    features in question.
    """
    rng = np.random.default_rng(0)
    for max_passes in (3, 3, 3, 6, 6, 6):
        n, p, k = (int(rng.choice(some)) for some in ([150, 900], [40, 250], [1, 2, 5]))
        h, wide = (None, 6)[rng.integers(2)], bool(rng.integers(2))
        check(make, (n, p, k, h, wide, 1e-4, int(rng.integers(1000))), max_passes)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("make", [clusters, decaying])
def test_pairs_and_residuals_against_numpy(make: Any, dtype: Any) -> None:
    x = make(800, 120, 4, 1).astype(dtype)
    found = run(x, 4, tol=1e-9 if dtype == np.float64 else 1e-5)
    expected = reference(x)
    eps = 1e-12 if dtype == np.float64 else 1e-5
    assert found.settled
    np.testing.assert_allclose(found.eigenvalues[:4], expected.eigenvalues[:4], rtol=eps)
    np.testing.assert_allclose(found.features.mean, expected.mean, atol=1e-6)
    np.testing.assert_allclose(found.features.std, expected.std, rtol=1e-5)
    matrix = correlation(x, expected)
    residuals = np.linalg.norm(
        matrix @ found.components - found.components * found.eigenvalues, axis=0
    )
    np.testing.assert_allclose(found.residuals, residuals, rtol=1e-3, atol=eps * matrix.max() * 50)
    largest = np.abs(found.components).argmax(axis=0)
    assert (found.components[largest, range(found.components.shape[1])] > 0).all()


def test_reading_ends_when_the_space_is_exhausted() -> None:
    x = planted(300, 20)  # spanned by the first block
    found = run(x, 3, tol=1e-12)
    assert (found.passes, found.settled) == (1, True)
    np.testing.assert_allclose(scores_of(found, 3), reference(x).scores(3), atol=1e-12)
    assert found.score_error < 1e-11
    x = low_rank(500, 200, 3, 0)  # of rank 7, all of which the first images hold
    found = run(x, 3, tol=1e-300)
    assert (found.passes, found.settled) == (2, True)
    np.testing.assert_allclose(scores_of(found, 3), reference(x).scores(3), atol=1e-9)
    np.testing.assert_allclose(found.eigenvalues[7:], 0, atol=1e-12)
    found = run(clusters(4, 60, 2, 0), 10, tol=1e-8)  # fewer samples than components
    assert found.settled
    assert found.components.shape == (60, 21)
    np.testing.assert_allclose(found.eigenvalues.sum(), 60, rtol=1e-12)
    np.testing.assert_allclose(scores_of(found, 10), 1, atol=1e-12)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_a_probe_that_misleads_costs_no_digits(offset: float) -> None:
    x = clusters(3000, 80, 3, 0)
    x[:, 5] *= 1e6
    x[:, 6] *= 1e-6
    x += offset * x.std(axis=0)
    flat = np.repeat(x[:1], 5, axis=0)
    scaling = Scaling.from_probe(flat, "float64")
    found = lanczos(problem(80, 3, tol=1e-8), Reader(x), scaling)
    assert found.settled
    assert np.abs(scores_of(found, 3) - reference(x).scores(3)).max() <= 2e-8


def test_running_out_of_reads_is_reported() -> None:
    x = noise(2000, 400, 3, 0)
    reader = Reader(x)
    found = run(x, 3, reader, tol=1e-8, max_passes=4)
    assert not found.settled
    assert found.passes == 4
    assert 1e-8 < found.last_change < 1
    assert 1e-8 < found.score_error < 1
    assert found.residuals[2] > 1e-3
    alone = run(x, 3, tol=1e-8, max_passes=1)
    assert not alone.settled
    assert alone.last_change == np.inf
    with pytest.raises(RequestError, match="max_passes"):
        run(x, 3, max_passes=0)


def test_only_the_scores_in_question_have_to_settle_with_h() -> None:
    x = clusters(4000, 500, 5, 0).astype(np.float32)
    every, leading = (run(x, 5, h=h, tol=2e-3) for h in (None, 40))
    assert leading.settled
    assert leading.passes < every.passes
    expected = reference(x).scores(5)
    chosen = top(scores_of(leading, 5), 40)
    assert np.abs(scores_of(leading, 5) - expected)[chosen].max() <= 2e-3
    last = np.sort(expected)[-40]
    assert expected[chosen].min() >= last - 4e-3


def test_contenders_are_those_whose_errors_reach() -> None:
    scores, errors = np.array([0.9, 0.5, 0.45, 0.1, 0.3]), np.array([0.01, 0.02, 0.04, 0.01, 0.3])
    assert contenders(scores, errors, 2).tolist() == [True, True, True, False, True]
    assert contenders(scores, np.zeros(5), 2).tolist() == [True, True, False, False, False]
    assert contenders(scores, errors, None).all()
    assert contenders(scores, errors, 5).all()


def test_seeds_and_partitions_change_rounding_only_and_repeats_nothing() -> None:
    x = clusters(1500, 200, 3, 0)
    first = run(x, 3, Reader(x, 200), tol=1e-10)
    again = run(x, 3, Reader(x, 200), tol=1e-10)
    assert first.components.tobytes() == again.components.tobytes()
    assert first.eigenvalues.tobytes() == again.eigenvalues.tobytes()
    assert first.score_error == again.score_error
    for other in (run(x, 3, Reader(x, 77), tol=1e-10), run(x, 3, tol=1e-10, seed=9)):
        np.testing.assert_allclose(scores_of(other, 3), scores_of(first, 3), atol=1e-9)


@pytest.mark.parametrize(
    ("count", "split", "dtype"),
    [(0, True, "f2"), (5, True, "f4"), (5, True, "i2"), (0, True, "u1"), (20, False, "f4")],
)
def test_few_large_means_leave_the_others_as_they_are(count: int, split: bool, dtype: str) -> None:
    x = clusters(1000, 100, 3, 0) * 20 + 120
    x[:, :count] += 30_000
    x = np.round(x).clip(0, 255 if dtype == "u1" else None).astype(dtype)
    reader = Reader(x)
    found = run(x, 3, reader, tol=1e-3)
    product = reader.kernels[-1]
    assert isinstance(product, Product)
    assert (product.scaling is None) == split
    assert (0 if product.far is None else len(product.far.features)) == (count if split else 0)
    assert found.settled
    assert np.abs(scores_of(found, 3) - reference(x).scores(3)).max() <= 2e-3


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_values_gone_bad_between_reads_are_an_error(offset: float) -> None:
    class Changing(Reader):
        def __call__(self, kernel: Kernel[State], /) -> State:
            if self.kernels:
                self.x[3, 3] = np.nan
            return super().__call__(kernel)

    x = noise(300, 80, 2, 0) + offset
    with pytest.raises(BrokenError, match="no longer are"):
        run(x, 2, Changing(x))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_block_that_float32_cannot_hold_is_right(dtype: Any) -> None:
    x = clusters(2000, 90, 3, 0).astype(dtype)
    x[1200, 7] = 1e16
    found = run(x, 3)
    expected = reference(x)
    np.testing.assert_allclose(found.eigenvalues[:2], expected.eigenvalues[:2], rtol=1e-5)
    np.testing.assert_allclose(scores_of(found, 2), expected.scores(2), atol=1e-4)


@pytest.mark.parametrize("rank", [3, 12, 40])
def test_basis_stays_orthonormal_through_breakdown(rank: int) -> None:
    rng = np.random.default_rng(1)
    root = rng.standard_normal((40, rank))
    matrix = root @ root.T
    start = np.linalg.qr(rng.standard_normal((40, 6)))[0]
    space = Krylov(start, 6, 10, float(np.finfo(float).eps), rng)
    while space.done < 40:
        space.extend(np.asfortranarray(matrix @ space.newest))
        v = space.vectors
        np.testing.assert_allclose(v.T @ v, np.eye(space.size), atol=1e-12)
        image = matrix @ v[:, : space.done]
        np.testing.assert_allclose(v @ space.coupling, image, atol=1e-12 * matrix.max() * 40)
    assert space.size == 40
    assert space.invariant


def test_bytes_bound_the_arrays() -> None:
    p, k, steps = 4000, 5, 6
    asked = problem(p, k, max_passes=steps)
    block = block_columns(asked)
    size = METHOD.cost(asked, 500, 8)
    x = noise(600, p, k, 0)
    scaling = Scaling.from_probe(x, "float64")
    state = StartProduct(scaling, np.ones((block, p))).init()
    moments = state.moments
    arrays: list[Array] = [moments.total, moments.low, moments.high]
    arrays += [moments.missing, moments.infinite]
    arrays += [state.squares, state.product]
    assert sum(a.nbytes for a in arrays) <= size.state
    assert size.driver >= 8 * p * block * (steps + 1)
    assert METHOD.cost(replace(asked, p=10 * p), 500, 8).driver < 10 * size.driver
    single = METHOD.cost(asked, 500, 4)
    assert single.update == size.update - 4 * (block * p + 2 * block * 500)


@pytest.mark.parametrize(("data", "k"), [("MicroMass_mixed360", 10), ("DNA_statlog", 3)])
def test_same_choice_as_numpy_on_real_data(data: str, k: int) -> None:
    x, _ = load(data)
    expected = reference(x)
    right = expected.scores(k)
    for h in (50, 100):
        found = run(x, k, h=h, tol=1e-7)
        scores = scores_of(found, k)
        assert found.settled
        np.testing.assert_array_equal(found.features.usable, expected.usable)
        chosen = top(scores.round(6), h)
        assert chosen == top(right.round(6), h)
        assert np.abs(scores - right)[chosen].max() <= 2 * found.score_error

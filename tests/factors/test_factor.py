"""What a factor keeps and says of itself."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import few_telling, planted, tied_table

from kmufs_stream import LanczosOptions, RequestError, decompose
from kmufs_stream.factors.factor import RowSample


def test_variance_beyond_double_precision_is_refused() -> None:
    X = planted(2000, 3)
    X[:, 2] = 0.0
    X[0, 2] = 1e-200  # in a row that the probe does not see
    with pytest.raises(RequestError, match="feature 2") as caught:
        decompose(X, 1)
    assert caught.value.code == "range"


def test_largest_numbers_are_standardised() -> None:
    X = planted(100, 3)
    X[:, 2] = np.resize([1.7e308, -1.7e308], 100)
    np.testing.assert_allclose(decompose(X, 1).features.std[2], 1.7e308)


@pytest.mark.parametrize("cuts", [[], [0, 7, 7, 8], [20]])
@pytest.mark.parametrize("rows", [1, 4, 50])
def test_runs_of_a_sample_do_not_follow_its_pieces_nor_join_them(
    cuts: list[int], rows: int
) -> None:
    x = np.random.default_rng(0).standard_normal((20, 6)).astype(np.float32)
    columns = np.array([1, 4, 5])
    sample = RowSample(np.arange(20), np.split(x, cuts))
    runs = list(sample.runs(rows, columns))
    assert [len(run) for run in runs] == [len(x[a : a + rows]) for a in range(0, 20, rows)]
    np.testing.assert_array_equal(np.concatenate(runs), x[:, columns])
    assert len(sample.pieces) == len(cuts) + 1
    np.testing.assert_array_equal(sample.values, x)
    assert len(sample.pieces) == 1


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("method", ["gram", "tsqr", "lanczos"])
def test_eigenvalues_that_tie_with_the_k_th_are_told(method: str, precision: str) -> None:
    factor = decompose(tied_table((5, 3, 3, 3, 2, 1)), 4, method=method, precision=precision)
    np.testing.assert_allclose(factor.eigenvalues, [5, 3, 3, 3, 2, 1, 0, 0, 0], atol=1e-5)
    for k in (1, 4, 5, 6):
        assert factor.tied_components(k) is None
    for k in (2, 3):
        tied = factor.tied_components(k)
        assert tied is not None
        assert (tied.first, tied.last, tied.noise, tied.try_k) == (2, 4, False, (1, 4))
        assert 0 < tied.within < (1e-4 if precision == "float32" else 1e-12)


def test_eigenvalues_that_only_float64_separates_tie_in_float32() -> None:
    # Two pairs of features, whose correlations differ in the seventh digit.
    noise = 1e-3 * tied_table((1,) * 6)[:, 2:6] * [1, 1, 1 + 5e-5, 1 + 5e-5]
    X = tied_table((2, 2)) + noise
    exact = np.linalg.eigvalsh(np.corrcoef(X.T))[::-1]
    assert 1e-11 < exact[0] - exact[1] < 1e-9
    assert decompose(X, 1, precision="float64").tied_components(1) is None
    assert decompose(X, 1, precision="float32").tied_components(1) is not None


def test_all_features_tie_where_none_is_related_to_another() -> None:
    factor = decompose(tied_table((1,) * 12), 2)
    tied = factor.tied_components(2)
    assert tied is not None
    # Five of twelve components are kept: where the tie ends is not known.
    assert (tied.first, tied.last, tied.try_k) == (1, 5, ())
    whole = decompose(tied_table((1,) * 4), 2)
    tied = whole.tied_components(2)
    assert tied is not None
    assert (tied.first, tied.last, tied.noise, tied.try_k) == (1, 4, True, ())
    assert whole.tied_components(4) is None


def test_the_noise_after_the_components_of_k_clusters_speaks_for_no_other_k() -> None:
    X = few_telling(900, 600, 5, 60)
    factor = decompose(X, 10, method="lanczos", lanczos=LanczosOptions(tol=0.1))
    for k, instead in ((5, ()), (7, (5,))):
        tied = factor.tied_components(k)
        assert tied is not None
        assert (tied.first, tied.noise, tied.try_k) == (5, True, instead)
    assert factor.tied_components(4) is None
    early = decompose(X, 10, method="lanczos", lanczos=LanczosOptions(tol=1e-9, max_passes=2))
    tied = early.tied_components(5)
    assert tied is not None
    assert (tied.noise, tied.try_k) == (False, ())  # more reads would tell

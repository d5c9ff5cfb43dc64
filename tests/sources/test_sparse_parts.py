"""Parts of sparse data and missing values, compared with the same numbers in a dense array."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from anndata import AnnData
from helpers import every_score
from reference import assert_same_scores, reference
from sources.anndata_stores import Write, annotated, counts, write_h5ad, write_zarr3
from sources.checks import values

from kmufs_stream import (
    LanczosOptions,
    RequestError,
    Screening,
    decompose,
    open_matrix,
    select,
)

K = 3
METHODS = ["gram", "lanczos", "tsqr"]
CLOSE = LanczosOptions(tol=1e-9, max_passes=30)
POLICIES = [
    Screening("drop-features"),
    Screening("drop-samples"),
    Screening("mean"),
    Screening("mean", min_nonzero=0.1),
    Screening("drop-samples", min_std=0.6, min_nonzero=0.05),
]


def gappy() -> npt.NDArray[np.float64]:
    """Return counts with gaps: all of one gene, all but equal ones of another."""
    X = counts(n=240, p=30).astype(np.float64)
    rng = np.random.default_rng(1)
    X[rng.random(X.shape) < 0.002] = np.nan
    X[:, 3] = np.nan
    X[:, 4] = 5
    X[::3, 4] = np.nan
    X[5, 6] = X[6, 6] = np.nan
    return X


@pytest.fixture(scope="module")
def gaps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the missing values as entries, and layers that no method takes."""
    missing = counts().astype(np.float64)
    missing[3, 5] = np.nan
    infinite = missing.copy()
    infinite[4, 6] = -np.inf
    layers = {"missing": sp.csr_matrix(missing), "infinite": sp.csr_matrix(infinite)}
    adata = annotated(sp.csr_matrix(gappy()), layers=layers)
    return write_zarr3(adata, tmp_path_factory.mktemp("gaps") / "cells")


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_matrix])
def test_entries_of_one_place_are_summed(tmp_path: Path, kind: Any) -> None:
    X = counts(n=60, p=8)
    once = kind(X)
    twice = kind(
        (np.repeat(once.data / 2, 2), np.repeat(once.indices, 2), 2 * once.indptr), once.shape
    )
    path = write_h5ad(AnnData(twice), tmp_path / "cells")
    found = values(open_matrix(path, transform="log1p"))
    np.testing.assert_array_equal(found, np.log1p(X.astype(found.dtype)))


@pytest.mark.parametrize("method", METHODS)
def test_all_samples_and_features(method: str, stored: Callable[[Write], Path]) -> None:
    X = counts(seed=1).astype(np.float64)
    expected = reference(X)
    matrix = open_matrix(stored(write_h5ad), layer="float64")
    factor = decompose(matrix, K, method=method, lanczos=CLOSE)
    assert_same_scores(every_score(factor, K), expected.every_score(K), 1e-9)
    np.testing.assert_allclose(factor.features.mean, expected.mean, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(factor.features.std, expected.std, rtol=1e-10)
    assert factor.features.excluded["constant"].tolist() == expected.constant.tolist()
    np.testing.assert_array_equal(factor.sample.values, X[factor.sample.index])


@pytest.mark.parametrize("screening", POLICIES, ids=lambda s: f"{s.missing} {s.min_nonzero}")
def test_missing_values_and_rare_features(screening: Screening, gaps: Path) -> None:
    expected = decompose(gappy(), K, method="gram", screening=screening)
    theirs, matrix = expected.features, open_matrix(gaps)
    for method in METHODS:
        found = decompose(matrix, K, method=method, lanczos=CLOSE, screening=screening)
        ours = found.features
        np.testing.assert_equal(ours.excluded, theirs.excluded)
        for name in ("usable", "dropped", "missing", "samples"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-12)
        np.testing.assert_allclose(ours.std, theirs.std, rtol=1e-10)
        np.testing.assert_array_equal(found.sample.index, expected.sample.index)
        np.testing.assert_allclose(found.sample.values, expected.sample.values, rtol=1e-12)
        assert_same_scores(every_score(found, K), every_score(expected, K), 1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_missing_or_infinite_is_refused_by_name(method: str, gaps: Path) -> None:
    with pytest.raises(RequestError, match=r"1 value in 1 of 30 .* is missing .*feature 5"):
        decompose(open_matrix(gaps, layer="missing"), K, method=method)
    matrix = open_matrix(gaps, layer="infinite")
    with pytest.raises(RequestError, match=r"is infinite .*feature 6") as error:
        decompose(matrix, K, method=method, screening=Screening("mean"))
    assert error.value.code == "not_finite"


@pytest.mark.parametrize("write", [write_zarr3, write_h5ad])
@pytest.mark.parametrize("kind", ["float64", "csc"])
def test_some_samples_and_some_features(
    kind: str, write: Write, stored: Callable[[Write], Path]
) -> None:
    rows = np.arange(240)
    rows = rows[(np.linspace(0, 1, 240) > 0.2) & (rows < 230) & (rows % 3 == 0)]
    expected = np.log1p(counts(seed=1)[rows].astype(np.float64))
    matrix = open_matrix(
        stored(write),
        layer=kind,
        where="depth > 0.2 and obs_both < 230 and kind == 'a'",
        exclude_features=["gene é 2?", "gene é 4"],
        transform="log1p",
    )
    assert matrix.shape == (len(rows), 30)
    assert matrix.layout.sparsity is not None
    np.testing.assert_array_equal(values(matrix, 5, 57), expected[5:57])
    taken = matrix.rows.take(5, 57, np.array([1, 7]))
    np.testing.assert_array_equal(taken, counts(seed=1)[rows][5:57][:, [1, 7]])
    asked = np.setdiff1d(np.arange(30), [4, *range(20, 30)])
    scores = np.full(30, np.nan)
    scores[asked] = every_score(decompose(expected[:, asked], K, method="gram"), K)
    for method in METHODS:
        found = decompose(matrix, K, method=method, lanczos=CLOSE)
        assert_same_scores(every_score(found, K), scores, 1e-8)
        np.testing.assert_array_equal(found.sample.values, expected[found.sample.index])


def test_a_factor_knows_the_rows_kept(stored: Callable[[Write], Path]) -> None:
    path = stored(write_h5ad)
    matrix = open_matrix(path, where="depth > 0.3")
    factor = decompose(matrix, K)
    same = open_matrix(path, where="depth > 0.2 and depth > 0.3")
    assert select(same, K, 6, solver="exact", factor=factor).passes == 0
    other = open_matrix(path, where="depth > 0.3 and obs_both != 99 or obs_both == 5")
    assert other.shape == matrix.shape
    with pytest.raises(RequestError, match="does not belong"):
        select(other, K, 6, factor=factor)

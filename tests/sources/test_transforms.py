"""Transforms of dense and sparse data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
import xarray as xr
from anndata import AnnData
from helpers import every_score
from reference import assert_optimal, assert_same_scores, reference
from sources.anndata_stores import counts, write_h5ad
from sources.checks import values

from kmufs_stream import RequestError, open_matrix, select

STEPS = ["normalise-rows:500", "log1p"]


def by_hand(X: npt.NDArray[Any], total: float) -> npt.NDArray[np.float64]:
    """Return log1p of rows scaled to sum to the total; empty rows stay."""
    sums = X.sum(axis=1, keepdims=True, dtype=np.float64)
    return np.log1p(X / np.where(sums > 0, sums, 1) * total)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csc_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.int64])
def test_values_are_those_computed_by_hand(kind: Any, dtype: Any, tmp_path: Path) -> None:
    X = counts().astype(dtype)
    X[5] = 0
    matrix = open_matrix(write_h5ad(AnnData(kind(X)), tmp_path / "cells"), transform=STEPS)
    single = np.can_cast(dtype, np.float32, "safe")
    found = values(matrix)
    assert matrix.dtype == found.dtype == (np.float32 if single else np.float64)
    np.testing.assert_allclose(found, by_hand(X, 500), rtol=1e-6 if single else 1e-14)
    np.testing.assert_array_equal(values(matrix, 100, 200), found[100:200])


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_the_subset_keeps_the_stored_values(kind: Any, tmp_path: Path) -> None:
    X = counts().astype(np.uint16)
    matrix = open_matrix(write_h5ad(AnnData(kind(X)), tmp_path / "cells"), transform=STEPS)
    result = select(matrix, 3, 8, solver="exact", out=tmp_path / "out.zarr")
    expected = reference(by_hand(X, 500)).every_score(3)
    assert_same_scores(every_score(result.factor, 3), expected, 1e-5)
    assert_optimal(result.selected, expected, 8, 1e-5)
    written = xr.open_zarr(tmp_path / "out.zarr")
    np.testing.assert_array_equal(written["X"].values, X[:, result.selected])
    assert written["X"].dtype == np.uint16
    assert written.attrs["transforms"] == "normalise-rows:500, log1p"
    assert result.summary()["transforms"] == ["normalise-rows:500", "log1p"]


def test_the_order_is_the_one_given_and_arrays_in_memory_stay() -> None:
    X = counts().astype(np.float64)
    before, logged = X.copy(), np.log1p(X)
    expected = logged / logged.sum(axis=1, keepdims=True) * 10_000
    found = values(open_matrix(X, transform=["log1p", "normalise-rows"]))
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    np.testing.assert_array_equal(X, before)


def test_a_row_with_a_gap_is_scaled_by_what_is_known_of_it() -> None:
    rows = np.array([[1.0, np.nan, 3.0], [2.0, 2.0, 0.0]])
    found = values(open_matrix(rows, transform="normalise-rows:8"))
    np.testing.assert_array_equal(found, [[2.0, np.nan, 6.0], [4.0, 4.0, 0.0]])
    found = values(open_matrix(np.array([[1.0, np.inf], [2.0, 2.0]]), transform=STEPS))
    np.testing.assert_array_equal(np.isfinite(found), [[True, False], [True, True]])


@pytest.mark.parametrize(
    ("transform", "value", "message"),
    [("log1p", -1.0, "log1p is not defined for -1,"), ("normalise-rows", -0.5, "for -0.5")],
)
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_values_it_is_not_defined_for_are_refused(
    transform: str, value: float, message: str, kind: Any, tmp_path: Path
) -> None:
    X = counts()
    X[17, 3] = value
    path = write_h5ad(AnnData(kind(X)), tmp_path / "cells")
    with pytest.raises(RequestError, match=message) as error:
        select(open_matrix(path, transform=transform), 3, 8)
    assert error.value.code == "bad_transform"


@pytest.mark.parametrize(
    "name", ["log2", "log1p:3", "normalise-rows:", "normalise-rows:0", "normalise-rows:x", ""]
)
def test_unknown_transforms_are_refused(name: str) -> None:
    with pytest.raises(RequestError, match=r"(?i)transform") as error:
        open_matrix(counts(), transform=[name])
    assert "normalise-rows:TOTAL" in error.value.remedy

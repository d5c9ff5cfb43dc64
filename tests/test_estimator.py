"""KMeansUFS among scikit-learn's tools, and on every kind of table."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xarray as xr
from helpers import planted
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from kmufs_stream import KMeansUFS, RequestError, open_matrix, save_factor, select
from kmufs_stream.factors.methods import gram
from kmufs_stream.factors.solving import SOLVERS
from kmufs_stream.streaming.kernels import sample

X = planted(300, 12)
X[:, 3] = 5
NAMES = [f"gene {i}" for i in range(12)]
CHOSEN = select(X, 3, 5, solver="exact").selected


@parametrize_with_checks([KMeansUFS(solver="exact")])
def test_scikit_learn_s_own_checks(estimator: KMeansUFS, check: Any) -> None:
    check(estimator)


TABLES = {
    "numpy": X,
    "float32": X.astype("f4"),
    "list": X.tolist(),
    "pandas": pd.DataFrame(X, columns=NAMES),
    "csr": scipy.sparse.csr_array(X),
    "csc": scipy.sparse.csc_matrix(X),
    "dask": da.from_array(X, chunks=(70, 12)),
    "xarray": xr.DataArray(X, dims=("cell", "gene"), coords={"gene": NAMES}),
    "lazy xarray": xr.DataArray(X, dims=("cell", "gene")).chunk(cell=100),
}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("way", ["fit", "partial_fit"])
def test_tables_of_every_kind(kind: str, way: str) -> None:
    table = TABLES[kind]
    fitted = getattr(KMeansUFS(3, 5, solver="exact"), way)(table)
    assert fitted.get_support(indices=True).tolist() == CHOSEN.tolist()
    assert fitted.n_features_in_ == 12
    labelled = kind in ("pandas", "xarray")
    expected = [NAMES[i] if labelled else f"x{i}" for i in CHOSEN]
    assert fitted.get_feature_names_out().tolist() == expected
    assert hasattr(fitted, "feature_names_in_") == labelled
    columns = fitted.transform(table)
    if kind in ("dask", "xarray", "lazy xarray"):
        assert type(columns) is type(table)
    if kind == "lazy xarray":
        assert columns.chunks is not None
    if scipy.sparse.issparse(columns):
        columns = columns.toarray()
    dtype = np.float32 if kind == "float32" else np.float64
    np.testing.assert_array_equal(np.asarray(columns), X[:, CHOSEN].astype(dtype))


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_answer_is_that_of_select(solver: str) -> None:
    chosen = select(X, 3, 4, solver=solver)
    fitted = KMeansUFS(k=3, h=4, solver=solver).fit(X)
    assert fitted.get_support(indices=True).tolist() == chosen.selected.tolist()
    np.testing.assert_array_equal(fitted.scores_[chosen.selected], chosen.scores)
    assert np.flatnonzero(np.isnan(fitted.scores_)).tolist() == [3]
    assert fitted.solution_.iterations == chosen.solution.iterations


@mock.patch.object(sample, "SAMPLE_ROWS", 40)
@settings(deadline=None, max_examples=25)
@example(cuts=[1, 2, 3, 4], dtypes=["f8"] * 7)  # one by one
@given(
    cuts=st.lists(st.integers(1, 299), max_size=6, unique=True),
    dtypes=st.lists(st.sampled_from(["f8", "f4"]), min_size=7, max_size=7),
)
def test_batches_of_rows_end_where_all_rows_do(cuts: list[int], dtypes: list[str]) -> None:
    table = X.astype("f4").astype("f8")  # the same numbers in both
    batches = np.split(table, sorted(cuts))
    parts = KMeansUFS(3, 5, solver="exact")
    for batch, dtype in zip(batches, dtypes, strict=False):
        parts.partial_fit(batch.astype(dtype))
    whole = KMeansUFS(3, 5, solver="exact").fit(table)
    np.testing.assert_allclose(parts.scores_, whole.scores_, rtol=1e-10)
    assert parts.get_support().tolist() == whole.get_support().tolist()
    assert len(parts.factor_.sample.index) == 40
    np.testing.assert_array_equal(parts.factor_.sample.index, whole.factor_.sample.index)
    np.testing.assert_array_equal(parts.factor_.sample.values, whole.factor_.sample.values)


def test_a_factor_of_batches_answers_for_all_rows_together(tmp_path: Path) -> None:
    batches = KMeansUFS(3, 4, solver="exact").partial_fit(X[:120]).partial_fit(X[120:])
    factor = batches.factor_
    save_factor(factor, tmp_path / "f.zarr")
    expected = select(X, 3, 5, solver="exact").selected.tolist()
    for known in (factor, tmp_path / "f.zarr"):
        assert select(X, 3, 5, solver="exact", factor=known).selected.tolist() == expected
    matrix = open_matrix(X)
    for other, why in [
        (X[:-1], "its shape is 300 x 12, that of the data 299 x 12"),
        (X[::-1], "rows of its sample differ"),
        (replace(matrix, asked=np.arange(6)), "it was made from other features"),
        (replace(matrix, rows=open_matrix(X + 1).rows), "rows of its sample differ"),
    ]:
        with pytest.raises(RequestError, match=why) as caught:
            select(other, 3, 5, factor=factor)
        assert caught.value.code == "wrong_factor"


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_rows_follow_fit(dtype: str) -> None:
    table = X.astype(dtype)
    both = KMeansUFS(3, 5, solver="exact").fit(table[:100])
    first = select(table[:100], 3, 5, solver="exact").selected
    assert both.get_support(indices=True).tolist() == first.tolist()
    copy = pickle.loads(pickle.dumps(both))
    both.partial_fit(table[100:])
    assert copy.partial_fit(table[100:]).get_support().tolist() == both.get_support().tolist()
    whole = KMeansUFS(3, 5, solver="exact").fit(table)
    np.testing.assert_allclose(both.scores_, whole.scores_, rtol=1e-5 if dtype == "f4" else 1e-10)
    np.testing.assert_array_equal(both.factor_.sample.values, table)
    assert both.get_support().tolist() == whole.get_support().tolist()
    assert both.factor_.features.excluded["constant"].tolist() == [3]
    further = table[:50].copy()
    further[:, 3] += 1
    assert both.partial_fit(further).factor_.features.excluded == {}


def test_no_rows_follow_fit_of_wide_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gram, "GRAM_FEATURES", 5)
    with pytest.raises(RequestError, match="no rows can follow"):
        KMeansUFS(3, 5, solver="exact").fit(X).partial_fit(X)
    restarted = KMeansUFS(3, 5, solver="exact").partial_fit(X[:50]).fit(X)
    assert restarted.get_support(indices=True).tolist() == CHOSEN.tolist()


def test_in_a_pipeline_and_a_grid_search() -> None:
    pipeline = make_pipeline(KMeansUFS(k=3), StandardScaler(), KMeans(3, n_init=1, random_state=0))
    grid = {"kmeansufs__h": [2, 4], "kmeansufs__solver": ["exact", "css"]}
    searched = GridSearchCV(pipeline, grid, cv=2).fit(X)
    assert set(searched.best_params_) == set(grid)
    assert len(searched.predict(X)) == 300
    assert clone(searched.best_estimator_[0]).get_params()["k"] == 3
    frame = pd.DataFrame(X, columns=NAMES)
    out = KMeansUFS(3, 5, solver="exact").set_output(transform="pandas").fit_transform(frame)
    assert out.columns.tolist() == [NAMES[i] for i in CHOSEN]


def test_half_of_what_varies_is_chosen_by_default_and_more_is_refused() -> None:
    assert KMeansUFS(k=2, solver="exact").fit(X).get_support().sum() == 5
    assert KMeansUFS(k=1, solver="exact").fit(X[:, :2]).get_support().sum() == 1
    with pytest.raises(ValueError, match="h is 12, but the number of usable features is 11"):
        KMeansUFS(3, 12).fit(X)
    with pytest.raises(ValueError, match="minimum of 13 is required"):
        KMeansUFS(13, 5).fit(X)


def test_other_widths_and_unfitted_ones_are_refused() -> None:
    lazy = da.from_array(X[:, :7], chunks=(100, 7))
    fitted = KMeansUFS(3, 5, solver="exact").fit(X)
    for way in (fitted.transform, fitted.partial_fit):
        with pytest.raises(ValueError, match="7 features"):
            way(lazy)
    named = xr.DataArray(X, dims=("s", "f"), coords={"f": NAMES})
    with pytest.raises(ValueError, match="same order"):
        KMeansUFS(3, 5, solver="exact").fit(named).transform(named[:, ::-1])
    for unfitted in (lambda: KMeansUFS().transform(lazy), KMeansUFS().get_support):
        with pytest.raises(NotFittedError):
            unfitted()


def test_columns_that_are_no_numbers_are_named() -> None:
    table = pd.DataFrame(X, columns=NAMES).assign(
        kind="left", day=pd.Timestamp("2024-01-01"), whole=range(len(X))
    )
    for fit in (KMeansUFS(2, 3).fit, lambda data: select(data, 2, 3)):
        with pytest.raises(RequestError, match="are not numbers: 'kind', 'day'"):
            fit(table)
    KMeansUFS(2, 3, solver="exact").fit(table.drop(columns=["kind", "day"]).astype(object))


@pytest.mark.parametrize("turned", [np.asarray, scipy.sparse.csr_matrix, pd.DataFrame])
def test_missing_values_are_refused(turned: Callable[[Any], Any]) -> None:
    gaps = X.copy()
    gaps[3, 2] = np.nan
    for fit in (KMeansUFS(2, 3).fit, KMeansUFS(2, 3).partial_fit):
        with pytest.raises(ValueError, match=r"contains NaN(.|\n)*imputer"):
            fit(turned(gaps))
    gaps[3, 2] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        KMeansUFS(2, 3).fit(turned(gaps))


def test_columns_that_describe_the_samples_are_warned_of() -> None:
    frame = pd.DataFrame(X, columns=NAMES).assign(group=np.arange(300) % 3)
    assert "'group'" in select(frame, 3, 4, solver="exact").notes[0]
    assert open_matrix(frame, sample_dims="feature").doubt is None  # columns are samples then
    with pytest.warns(UserWarning, match="whole numbers, .*'group'.*leave those columns out"):
        KMeansUFS(3, 4).fit(frame)
    KMeansUFS(3, 4, solver="exact").fit(frame.drop(columns="group"))

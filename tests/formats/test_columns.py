"""Columns of CSV and Parquet tables: numbers are features, what describes samples coordinates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from formats.tables import KIND, LABELS, N, X, convert_and_open, converted, frame, written

from kmufs_stream import RequestError, convert, evaluate, open_matrix, select


@pytest.mark.parametrize("kind", ["csv", "parquet", "folder"])
@pytest.mark.parametrize("categorical", [False, True])
def test_text_describes_the_samples(tmp_path: Path, kind: str, categorical: bool) -> None:
    table = frame(station=[f"é {i}" for i in range(N)])
    if categorical:
        table["class"] = table["class"].astype("category")
    done, found = convert_and_open(written(tmp_path, kind, table))
    assert done.features == tuple(LABELS)
    assert done.columns == {"class": "class", "station": "station"}
    assert done.summary()["coordinates"] == done.columns
    assert found["feature"].values.tolist() == LABELS
    np.testing.assert_array_equal(found["data"], X)
    assert found["station"].dims == ("sample",)
    assert found["station"].values.tolist() == table["station"].tolist()
    np.testing.assert_array_equal(found["class"].isnull(), table["class"].isna())
    assert found["class"].values[8] == KIND[8]


@pytest.mark.parametrize("kind", ["csv", "parquet", "folder"])
def test_they_choose_and_judge_samples(tmp_path: Path, kind: str) -> None:
    convert_and_open(written(tmp_path, kind, frame(year=2000 + np.arange(N))), coordinates=["year"])
    store, out = str(tmp_path / "out.zarr"), tmp_path / "chosen.zarr"
    part = open_matrix(store, where="class == 'far off' and year < 2100")
    some = select(part, 3, 2, out=out)
    expected = (KIND == "far off") & (np.arange(N) < 100)
    np.testing.assert_array_equal(some.selected, select(X[expected], 3, 2).selected)
    with xr.open_zarr(out) as written_out:
        assert set(written_out["class"].values) == {"far off"}
        assert written_out["year"].values.max() < 2100
    with xr.open_zarr(out, group="all_features") as every:
        assert every.sizes == {"source_feature": 6}
    select(store, 3, 2, out=out, overwrite=True)
    for data in (None, store):
        judged = evaluate(out, labels="class", data=data).agreement
        assert judged is not None
        assert (judged.classes, judged.samples) == (3, N - 2)


def test_names_that_a_store_cannot_have(tmp_path: Path) -> None:
    table = frame(**{"station name": KIND, "km/h": KIND, "data": KIND, "__x": KIND})
    table.columns = pd.Index([*table.columns[:-1], "class"])  # twice
    done, found = convert_and_open(written(tmp_path, "csv", table))
    assert done.columns == {
        "class": "class",
        "station_name": "station name",
        "km_h": "km/h",
        "data_": "data",
        "class_": "class",
    }
    for name in done.columns:
        assert found[name].dims == ("sample",)
    assert found["data"].shape == (N, 6)
    assert open_matrix(str(tmp_path / "out.zarr"), where="km_h == 'left'").shape == (N // 3, 6)


def test_a_column_called_sample_names_them(tmp_path: Path) -> None:
    names = [f"s{i}" for i in range(N)]
    found = converted(written(tmp_path, "csv", frame(sample=names)))
    assert found.indexes["sample"].tolist() == names


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"coordinates": ["clas"]}, "Did you mean 'class'"),
        ({"coordinates": LABELS}, "columns of numbers are needed"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_what_cannot_be_met(tmp_path: Path, kind: str, options: Any, word: str) -> None:
    path = written(tmp_path, kind, frame())
    with pytest.raises(RequestError) as raised:
        convert(path, tmp_path / "out.zarr", **options)
    assert word in raised.value.remedy
    assert not (tmp_path / "out.zarr").exists()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_integers_that_float64_would_round(tmp_path: Path, kind: str) -> None:
    large = 2**53 + 1 + 2 * np.arange(N)
    path = written(tmp_path, kind, pd.DataFrame({"a": large, "b": np.arange(N)}))
    found = converted(path, dtype="int64")
    np.testing.assert_array_equal(found["data"][:, 0], large)
    found = converted(path, dtype="float64", overwrite=True)
    np.testing.assert_array_equal(found["data"][:, 0], large.astype(float))
    path = written(tmp_path, kind, pd.DataFrame({"a": large, "b": X[:, 0]}))
    with pytest.raises(RequestError, match=r"'a' .*9007199254740993") as raised:
        convert(path, tmp_path / "other.zarr")
    assert "`coordinates='a'`" in raised.value.remedy
    found = converted(path, coordinates=["a"], overwrite=True)
    np.testing.assert_array_equal(found["a"], large)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_integers_beside_gaps_that_float64_would_round(tmp_path: Path, kind: str) -> None:
    large = pd.array([2**53 + 1, None, *range(N - 2)], dtype="Int64")
    path = written(tmp_path, kind, pd.DataFrame({"a": large, "b": X[:, 0]}))
    with pytest.raises(RequestError, match=r"'a' .*9007199254740993") as raised:
        convert(path, tmp_path / "other.zarr")
    assert "`dtype='int64'`" not in raised.value.remedy  # which has no gaps
    found = converted(path, dtype="float64")
    np.testing.assert_array_equal(found["data"][:, 0], [2.0**53, np.nan, *range(N - 2)])
    if kind == "csv":
        assert "`coordinates='a'`" in raised.value.remedy
        found = converted(path, coordinates=["a"], overwrite=True)
        assert found["a"].values[0] == str(2**53 + 1)
    else:
        assert "store it as text" in raised.value.remedy

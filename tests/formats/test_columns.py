"""Columns of CSV and Parquet tables: numbers are features, what describes samples coordinates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from formats.tables import (
    KIND,
    LABELS,
    N,
    X,
    convert_and_open,
    converted,
    frame,
    refused,
    written,
)

from kmufs_stream import open_matrix


@pytest.mark.parametrize(
    ("kind", "categorical"),
    [("csv", False), ("parquet", False), ("parquet", True), ("folder", True)],
)
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


def test_names_that_a_store_cannot_have(tmp_path: Path) -> None:
    names = [f"s{i}" for i in range(N)]
    table = frame(**{"station name": KIND, "km/h": KIND, "data": KIND, "sample": names, "_": KIND})
    table.columns = pd.Index([*table.columns[:-1], "class"])  # twice
    done, found = convert_and_open(written(tmp_path, "csv", table))
    assert done.columns == {
        "sample": "sample",
        "class": "class",
        "station_name": "station name",
        "km_h": "km/h",
        "data_": "data",
        "class_": "class",
    }
    for name in done.columns:
        assert found[name].dims == ("sample",)
    assert found["data"].shape == (N, 6)
    assert found.indexes["sample"].tolist() == names
    assert open_matrix(str(tmp_path / "out.zarr"), where="km_h == 'left'").shape == (N // 3, 6)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"coordinates": ["clas"]}, "Did you mean 'class'"),
        ({"coordinates": LABELS}, "columns of numbers are needed"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_what_cannot_be_met(tmp_path: Path, kind: str, options: Any, said: str) -> None:
    refused(written(tmp_path, kind, frame()), said, **options)


LARGE = 2**53 + 1  # which float64 rounds


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_integers_that_float64_would_round(tmp_path: Path, kind: str) -> None:
    large = LARGE + 2 * np.arange(N)
    path = written(tmp_path, kind, pd.DataFrame({"a": large, "b": np.arange(N)}))
    np.testing.assert_array_equal(converted(path, dtype="int64")["data"][:, 0], large)
    rounded = converted(path, dtype="float64")["data"][:, 0]
    np.testing.assert_array_equal(rounded, large.astype(float))
    path = written(tmp_path, kind, pd.DataFrame({"a": large, "b": X[:, 0]}))
    refused(path, f"'a' .*{LARGE}.*`coordinates='a'`")
    np.testing.assert_array_equal(converted(path, coordinates=["a"])["a"], large)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_integers_beside_gaps_that_float64_would_round(tmp_path: Path, kind: str) -> None:
    large = pd.array([LARGE, None, *range(N - 2)], dtype="Int64")
    path = written(tmp_path, kind, pd.DataFrame({"a": large, "b": X[:, 0]}))
    hint = {"csv": "`coordinates='a'`", "parquet": "store it as text"}[kind]
    error = refused(path, f"'a' .*{LARGE}.*{hint}")
    assert "`dtype='int64'`" not in error.remedy  # which has no gaps
    found = converted(path, dtype="float64")
    np.testing.assert_array_equal(found["data"][:, 0], [2.0**53, np.nan, *range(N - 2)])
    if kind == "csv":
        assert converted(path, coordinates=["a"])["a"].values[0] == str(LARGE)

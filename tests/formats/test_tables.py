"""Tables of any format as stores: which columns are features, in which dtype and memory."""

from __future__ import annotations

import warnings
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.io
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
from scipy import sparse

from kmufs_stream import open_matrix
from kmufs_stream.formats import blocks


@pytest.mark.parametrize(
    ("kind", "categorical", "dtype"),
    [
        ("csv", False, "float32"),
        ("parquet", False, "float16"),
        ("parquet", True, "float64"),
        ("folder", True, None),
    ],
)
def test_text_describes_the_samples(
    tmp_path: Path, kind: str, categorical: bool, dtype: str | None
) -> None:
    table = frame(station=[f"é {i}" for i in range(N)])
    if categorical:
        table["class"] = table["class"].astype("category")
    path = written(tmp_path, kind, table)
    done, found = convert_and_open(path, dtype=dtype)
    assert done.features == tuple(LABELS)
    assert done.columns == {"class": "class", "station": "station"}
    assert done.summary()["coordinates"] == done.columns
    assert found["feature"].values.tolist() == LABELS
    np.testing.assert_array_equal(found["data"], X.astype(dtype or "float64"), strict=True)
    assert found["station"].dims == ("sample",)
    assert found["station"].values.tolist() == table["station"].tolist()
    np.testing.assert_array_equal(found["class"].isnull(), table["class"].isna())
    assert found["class"].values[8] == KIND[8]
    refused(path, "Did you mean 'class'", coordinates=["clas"])
    refused(path, "columns of numbers are needed", coordinates=LABELS)


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

    gaps = pd.array([LARGE, None, *range(N - 2)], dtype="Int64")
    path = written(tmp_path, kind, pd.DataFrame({"a": gaps, "b": X[:, 0]}))
    hint = {"csv": "`coordinates='a'`", "parquet": "store it as text"}[kind]
    error = refused(path, f"'a' .*{LARGE}.*{hint}")
    assert "`dtype='int64'`" not in error.remedy  # which has no gaps
    found = converted(path, dtype="float64")
    np.testing.assert_array_equal(found["data"][:, 0], [2.0**53, np.nan, *range(N - 2)])
    if kind == "csv":
        assert converted(path, coordinates=["a"])["a"].values[0] == str(LARGE)


def test_sparse_files_are_told_how_to_become_anndata(tmp_path: Path) -> None:
    counts = sparse.csc_matrix(np.rint(X))
    scipy.io.savemat(tmp_path / "x.mat", {"X": counts})
    sparse.save_npz(tmp_path / "x.npz", counts)
    for name in ("x.mat", "x.npz"):
        error = refused(tmp_path / name, "sparse matrix")
        program = error.remedy.partition(": ")[2].partition(";")[0]
        made = str(tmp_path / f"{name}.h5ad")
        with warnings.catch_warnings():  # SciPy's, of what it will return one day
            warnings.simplefilter("ignore", DeprecationWarning)
            exec(program.replace("x.h5ad", made), {"anndata": anndata, "scipy": scipy})
        found = open_matrix(made)
        np.testing.assert_array_equal(found.rows.take(0, len(X), np.arange(X.shape[1])), np.rint(X))


@pytest.mark.parametrize(
    ("value", "dtype", "said"),
    [
        (1e39, "float32", r"1e\+39"),
        (1.5, "int16", "1.5"),
        (40_000, "int16", "40000"),
        (-1, "uint8", "-1"),
        (None, "int64", "missing"),
        (2, "bool", "2"),
    ],
)
def test_a_value_that_the_dtype_does_not_hold(
    tmp_path: Path, value: float | None, dtype: str, said: str
) -> None:
    table = pd.DataFrame({"a": [0.0] * 149 + [value], "b": np.arange(N) % 2})
    error = refused(written(tmp_path, "csv", table), f"{said}.*`dtype", dtype=dtype)
    assert error.code == "does_not_fit_dtype"


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("first", [0, 30])
def test_long_texts_keep_to_the_budget(tmp_path: Path, first: int, kind: str) -> None:
    notes = ["short"] * first + ["漢" * 300_000] * 10  # two bytes each in memory, three in a file
    path = written(tmp_path, kind, pd.DataFrame({"a": np.arange(len(notes)), "note": notes}))
    error = refused(path, "takes .* of memory", memory=blocks.BASELINE + 3 * blocks.MB)
    assert error.code == "does_not_fit"
    found = converted(path, memory="2GB")
    assert found["note"].values[-1] == notes[-1]
    np.testing.assert_array_equal(found["data"][:, 0], np.arange(len(notes)))

"""Tables of any format as stores: which table, in which dtype, in how much memory."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.io
from formats.tables import N, X, converted, frame, written
from helpers import slow
from scipy import sparse

from kmufs_stream import RequestError, convert, open_matrix
from kmufs_stream.formats import blocks


@pytest.mark.parametrize("kind", ["mat", "npz", "mat 7.3"])
def test_vectors_and_cells_beside_a_table_are_passed_over(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("x.npz" if kind == "npz" else "x.mat")
    if kind == "mat":
        scipy.io.savemat(path, {"y": np.arange(90), "X": X, "names": np.array(["a"], object)})
    elif kind == "npz":
        np.savez(path, y=np.arange(90)[:, None], X=X, z=np.arange(3))
    else:
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w") as file:
            file["#refs#/a"], file["X"] = X[:2, :3], X.T
    np.testing.assert_array_equal(converted(path)["data"], X)


def test_sparse_files_are_told_how_to_become_anndata(tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata")
    counts = sparse.csc_matrix(np.rint(X))
    scipy.io.savemat(tmp_path / "x.mat", {"X": counts})
    sparse.save_npz(tmp_path / "x.npz", counts)
    for name in ("x.mat", "x.npz"):
        with pytest.raises(RequestError, match="sparse matrix") as raised:
            convert(tmp_path / name, tmp_path / "out.zarr")
        program = raised.value.remedy.partition(": ")[2].partition(";")[0]
        made = str(tmp_path / f"{name}.h5ad")
        with warnings.catch_warnings():  # SciPy's, of what it will return one day
            warnings.simplefilter("ignore", DeprecationWarning)
            exec(program.replace("x.h5ad", made), {"anndata": anndata, "scipy": scipy})
        found = open_matrix(made)
        np.testing.assert_array_equal(found.rows.take(0, len(X), np.arange(X.shape[1])), np.rint(X))


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_floats_are_rounded(tmp_path: Path, dtype: str) -> None:
    found = converted(written(tmp_path, "csv", frame()), dtype=dtype)
    assert found["data"].dtype == dtype
    np.testing.assert_array_equal(found["data"], X.astype(dtype))
    assert "class" in found.coords


def test_whole_numbers_as_integers(tmp_path: Path) -> None:
    table = pd.DataFrame(np.arange(N * 2).reshape(N, 2) % 250, columns=["a", "b"])
    path = written(tmp_path, "csv", table)
    found = converted(path, dtype="uint8")
    assert found["data"].dtype == np.uint8
    np.testing.assert_array_equal(found["data"], table)


@pytest.mark.parametrize(
    ("value", "dtype", "said"),
    [
        (1e39, "float32", "1e+39"),
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
    with pytest.raises(RequestError) as raised:
        convert(written(tmp_path, "csv", table), tmp_path / "out.zarr", dtype=dtype)
    assert said in raised.value.message
    assert raised.value.code == "does_not_fit_dtype"
    assert "`dtype" in raised.value.remedy
    assert not (tmp_path / "out.zarr").exists()


@pytest.mark.parametrize("first", [slow(0), 30])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_long_texts_keep_to_the_budget(tmp_path: Path, kind: str, first: int) -> None:
    notes = ["short"] * first + ["漢" * 900_000] * 20  # two bytes each in memory, three in a file
    path = written(tmp_path, kind, pd.DataFrame({"a": np.arange(len(notes)), "note": notes}))
    with pytest.raises(RequestError, match=r"takes .* of memory") as raised:
        convert(path, tmp_path / "out.zarr", memory=blocks.BASELINE + 10 * blocks.MB)
    assert raised.value.code == "does_not_fit"
    found = converted(path, memory="2GB")
    assert found["note"].values[-1] == notes[-1]

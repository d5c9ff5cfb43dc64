"""Tables of any format as stores: which table, in which dtype, in how much memory."""

from __future__ import annotations

import warnings
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.io
from formats.tables import N, X, converted, frame, refused, written
from scipy import sparse

from kmufs_stream import open_matrix
from kmufs_stream.formats import blocks


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


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_floats_are_rounded(tmp_path: Path, dtype: str) -> None:
    found = converted(written(tmp_path, "csv", frame()), dtype=dtype)
    assert found["data"].dtype == dtype
    np.testing.assert_array_equal(found["data"], X.astype(dtype))
    assert "class" in found.coords


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
    assert converted(path, memory="2GB")["note"].values[-1] == notes[-1]

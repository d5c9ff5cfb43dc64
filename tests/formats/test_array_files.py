"""Files that hold arrays, of NumPy, HDF5 and MATLAB, as stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
from formats.tables import X, converted, refused


@pytest.mark.parametrize("dtype", ["f4", "i2", "bool", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numpy(tmp_path: Path, dtype: str, order: Any) -> None:
    Y = np.asarray(X.astype(dtype), order=order)
    np.save(tmp_path / "x.npy", Y)
    np.savez_compressed(tmp_path / "x.npz", y=np.arange(90)[:, None], table=Y, z=np.arange(8))
    for name in ("x.npy", "x.npz"):
        found = converted(tmp_path / name)["data"]
        assert found.dims == ("sample", "feature")
        assert found.dtype == Y.dtype.newbyteorder("=")
        np.testing.assert_array_equal(found, Y)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.array([[1, "a"]], object), "values of dtype object"),
        (np.zeros(5, [("a", "f4"), ("b", "f4")]), "values of dtype"),
        (np.arange(5.0), "no table"),
    ],
)
def test_arrays_that_are_no_tables(tmp_path: Path, values: Any, said: str) -> None:
    np.save(tmp_path / "x.npy", values, allow_pickle=True)
    refused(tmp_path / "x.npy", said)


def test_one_of_several_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=X, b=X * 2)
    refused(tmp_path / "x.npz", "no single table.*x.npz::a")
    np.testing.assert_array_equal(converted(f"{tmp_path}/x.npz::b")["data"], X * 2)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["deep/counts"] = X.astype("f4")
        file["other"] = X
    refused(tmp_path / "x.h5", "x.h5::/deep/counts")
    found = converted(f"{tmp_path}/x.h5::/deep/counts")
    np.testing.assert_array_equal(found["data"], X.astype("f4"))

    with h5py.File(tmp_path / "scales.h5", "w") as file:
        file["time"], file["table"] = np.arange(150), X
        file["time"].make_scale("time")
        file["table"].dims[0].attach_scale(file["time"])
    np.testing.assert_array_equal(converted(tmp_path / "scales.h5")["data"], X)


def test_matlab_beside_vectors_text_and_cells(tmp_path: Path) -> None:
    cells = np.array(["a"], object)
    scipy.io.savemat(tmp_path / "old.mat", {"y": np.arange(90), "X": X, "c": cells, "note": "text"})
    with h5py.File(tmp_path / "new.mat", "w") as file:  # as -v7.3 stores it
        file["#refs#/a"], file["X"] = X[:2, :3], X.T
    for name in ("old.mat", "new.mat"):
        np.testing.assert_array_equal(converted(tmp_path / name)["data"], X)

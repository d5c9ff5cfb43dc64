"""HDF5 and MATLAB files as stores."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import scipy.io
from formats.tables import X, converted, refused


def test_hdf5(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["deep/counts"] = X.astype("f4")
        file["other"] = X
    refused(tmp_path / "x.h5", "x.h5::/deep/counts")
    found = converted(f"{tmp_path}/x.h5::/deep/counts")
    np.testing.assert_array_equal(found["data"], X.astype("f4"))


def test_hdf5_of_which_some_dimensions_have_scales(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["time"], file["table"] = np.arange(150), X
        file["time"].make_scale("time")
        file["table"].dims[0].attach_scale(file["time"])
    np.testing.assert_array_equal(converted(tmp_path / "x.h5")["data"], X)


def test_matlab(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "old.mat", {"X": X, "note": "text"})
    np.testing.assert_array_equal(converted(tmp_path / "old.mat")["data"], X)
    with h5py.File(tmp_path / "new.mat", "w") as file:  # as -v7.3 stores it
        file["X"] = X.T
    np.testing.assert_array_equal(converted(tmp_path / "new.mat")["data"], X)

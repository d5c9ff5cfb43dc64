"""NumPy's files as stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from formats.tables import X, converted, refused


@pytest.mark.parametrize("dtype", ["f4", "i2", "bool", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numpy(tmp_path: Path, dtype: str, order: Any) -> None:
    Y = np.asarray(X.astype(dtype), order=order)
    np.save(tmp_path / "x.npy", Y)
    np.savez_compressed(tmp_path / "x.npz", table=Y, names=np.arange(8))
    for name in ("x.npy", "x.npz"):
        found = converted(tmp_path / name)["data"]
        assert found.dims == ("sample", "feature")
        assert found.dtype == Y.dtype.newbyteorder("=")
        np.testing.assert_array_equal(found, Y)


def test_several_arrays_of_an_archive(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=X, b=X * 2)
    refused(tmp_path / "x.npz", "no single table.*x.npz::a")
    np.testing.assert_array_equal(converted(f"{tmp_path}/x.npz::b")["data"], X * 2)


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

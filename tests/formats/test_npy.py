"""NumPy's files as stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from formats.tables import converted
from helpers import planted

from kmufs_stream import RequestError, convert

X = planted(150, 8)


@pytest.mark.parametrize("dtype", ["f4", "i2", "bool", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_numpy(tmp_path: Path, dtype: str, order: Any, suffix: str) -> None:
    Y = np.asarray(X.astype(dtype), order=order)
    path = tmp_path / f"x{suffix}"
    if suffix == ".npy":
        np.save(path, Y)
    else:
        np.savez_compressed(path, table=Y, names=np.arange(8))
    found = converted(path)["data"]
    assert found.dims == ("sample", "feature")
    assert found.dtype == Y.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, Y)


def test_several_arrays_of_an_archive(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=X, b=X * 2)
    with pytest.raises(RequestError, match="no single table") as raised:
        converted(tmp_path / "x.npz")
    assert "x.npz::a" in raised.value.remedy
    np.testing.assert_array_equal(converted(f"{tmp_path}/x.npz::b")["data"], X * 2)


@pytest.mark.parametrize(
    ("values", "word"),
    [
        (np.array([[1, "a"]], object), "values of dtype object"),
        (np.zeros(5, [("a", "f4"), ("b", "f4")]), "values of dtype"),
        (np.arange(5.0), "no table"),
    ],
)
def test_arrays_that_are_no_tables(tmp_path: Path, values: Any, word: str) -> None:
    np.save(tmp_path / "x.npy", values, allow_pickle=True)
    with pytest.raises(RequestError, match=word):
        convert(tmp_path / "x.npy", tmp_path / "out.zarr")

"""Arrays and tables of Python; test_contract.py has what they share with stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from helpers import labelled, planted, write_xarray
from reference import assert_optimal, reference
from sources.checks import check_rows, names

from kmufs_stream import RequestError, open_matrix, select

X = planted(120, 12)


def test_numpy_has_default_names_and_no_labels() -> None:
    matrix = open_matrix(np.asfortranarray(X)[::-1, ::2])
    check_rows(matrix, X[::-1, ::2])
    assert names(matrix) == ("data", "sample", "feature")
    assert matrix.labels is None
    with pytest.raises(RequestError) as caught:
        open_matrix(X, variable="x")
    assert caught.value.code == "not_a_store"


@pytest.mark.parametrize(
    ("chunks", "dtype"),
    [
        ((120, 12), "bool"),
        ((1, 12), "i1"),
        ((37, 5), "f4"),
        (((1, 100, 19), (11, 1)), "u8"),
        (((50, 0, 70), (12,)), ">f8"),
        ((50, 12), ">i4"),
        ((120, 1), "f2"),
    ],
    ids=str,
)
def test_dask_arrays_of_any_chunks_and_dtype(chunks: Any, dtype: str) -> None:
    whole = (X > 0.5) if dtype == "bool" else np.abs(np.rint(X * 5)).astype(dtype)
    matrix = open_matrix(da.from_array(whole, chunks=chunks))
    assert matrix.dtype == whole.dtype
    check_rows(matrix, whole)


@pytest.mark.parametrize("named", [{"sample_dims": "cell"}, {"feature_dims": "gene"}])
def test_a_transposed_dataarray_keeps_its_metadata(named: dict[str, str]) -> None:
    array = labelled(X).transpose()
    matrix = open_matrix(array, **named)
    check_rows(matrix, X)
    assert names(matrix) == ("counts", "cell", "gene")
    assert matrix.labels is not None
    assert list(matrix.labels) == list(array["gene"].values)
    assert matrix.metadata.attrs == {"units": "1"}
    assert set(matrix.metadata.coords.coords) == set(array.coords)
    chosen = select(matrix, 3, 4, solver="exact")
    assert chosen.dataset["counts"].dims == ("gene", "cell")
    np.testing.assert_array_equal(chosen.dataset["counts"].values, X[:, chosen.selected].T)


def test_what_is_lazy_is_computed_block_by_block(tmp_path: Path) -> None:
    counts = np.rint(np.exp(X))
    path = write_xarray(tmp_path / "a.zarr", labelled(counts), chunks=(25, 12))
    with xr.open_zarr(path) as opened:
        lazy = np.log1p(opened["counts"])
        assert not open_matrix(lazy).layout.in_memory
        chosen = select(lazy, 3, 4, solver="exact")
        values = chosen.dataset["counts"].values
    assert_optimal(chosen.selected, reference(np.log1p(counts)).every_score(3), 4, 1e-12)
    assert chosen.labels == [f"gene {i} é" for i in chosen.selected]
    np.testing.assert_array_equal(values, np.log1p(counts)[:, chosen.selected])
    with xr.open_zarr(path, chunks=None) as opened:
        array = opened["counts"]
        matrix = open_matrix(array)
        assert not matrix.layout.in_memory
        np.testing.assert_array_equal(matrix.rows.read(20, 60), counts[20:60])
        assert not array.variable._in_memory


def test_opening_computes_nothing() -> None:
    lazy = da.zeros((120, 12)).map_blocks(lambda block: 1 // 0, dtype="f8", meta=np.ones((0, 0)))
    matrix = open_matrix(xr.DataArray(lazy, dims=("s", "f")))
    assert matrix.shape == (120, 12)
    with pytest.raises(ZeroDivisionError):
        matrix.rows.read(0, 1)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ([[1.0, 2.0]], "unknown_source"),
        (X[:, 0], "not_2d"),
        (X.reshape(12, 10, 12), "which_dimensions"),
        (X + 1j, "bad_dtype"),
        (X.astype("U"), "bad_dtype"),
        (X.astype(object), "bad_dtype"),
        (da.zeros((3, 3, 3)), "which_dimensions"),
        (xr.Dataset({"a": ("s", X[:, 0])}), "no_table"),
    ],
)
def test_refused(data: Any, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        open_matrix(data)
    assert caught.value.code == code


def test_a_data_frame_has_labels() -> None:
    rows = [f"row {i}" for i in range(120)]
    frame = pd.DataFrame(X, columns=list("abcdefghijkl"), index=rows)
    matrix = open_matrix(frame)
    assert matrix.labels is not None
    assert list(matrix.labels) == list("abcdefghijkl")
    assert list(matrix.metadata.coords["sample"].values) == rows
    with pytest.raises(RequestError, match="not numbers: 'text'"):
        open_matrix(frame.assign(text="x"))

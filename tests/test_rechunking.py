"""Stores in other chunks: the same values, labels and coordinates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from helpers import labelled, no_warnings, planted, write_bare, write_xarray

from kmufs_stream import BrokenError, RequestError, open_matrix, rechunk, rechunking
from kmufs_stream.streaming.plan import BASELINE, MB

X = planted(300, 24, dtype=np.float32)
CELL = 4


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles even of small tables, and several chunks in each."""
    monkeypatch.setattr(rechunking, "TILE_BYTES", 70 * 24 * CELL)
    monkeypatch.setattr(rechunking, "CHUNK_BYTES", 11 * 24 * CELL)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("chunks", [(300, 1), (300, 5), (300, 24), (10, 3), (64, 24)])
def test_values_labels_and_coordinates(
    tmp_path: Path, zarr_format: int, chunks: tuple[int, int]
) -> None:
    path = write_xarray(
        tmp_path / "x.zarr", labelled(X), chunks=chunks, zarr_format=zarr_format,
        attrs={"title": "all"},
    )  # fmt: skip
    with no_warnings():
        done = rechunk(str(path), tmp_path / "out.zarr")
        found = xr.open_zarr(tmp_path / "out.zarr")
        expected = xr.open_zarr(path)
        assert found["counts"].dtype == np.float32
        xr.testing.assert_identical(found.load(), expected.load())
    array = zarr.open_array(tmp_path / "out.zarr", path="counts")
    assert array.metadata.zarr_format == zarr_format
    assert array.chunks == done.chunks
    assert done.chunks[0] < 300
    assert array.nchunks_initialized == array.nchunks


def test_each_source_chunk_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_bare(tmp_path / "x.zarr", X, chunks=(300, 5))
    matrix = open_matrix(str(path))
    read: list[tuple[int, int, int]] = []
    take = type(matrix.rows).take

    def noted(rows: Any, start: int, stop: int, columns: Any) -> Any:
        read.append((start, stop, len(columns)))
        return take(rows, start, stop, columns)

    monkeypatch.setattr(type(matrix.rows), "take", noted)
    rechunk(matrix, tmp_path / "out.zarr")
    assert read == [(0, 300, 5)] * 4 + [(0, 300, 4)]
    np.testing.assert_array_equal(xr.open_zarr(tmp_path / "out.zarr")["data"], X)


def test_features_stored_first(tmp_path: Path) -> None:
    path = write_bare(tmp_path / "x.zarr", X.T, chunks=(24, 300))
    array = open_matrix(zarr.open_array(path, mode="r"), sample_dims="feature")
    rechunk(array, tmp_path / "out.zarr")
    found = xr.open_zarr(tmp_path / "out.zarr")["data"]
    np.testing.assert_array_equal(found, X)


def test_the_budget_bounds_the_tile(tmp_path: Path) -> None:
    path = write_bare(tmp_path / "x.zarr", np.zeros((10**6, 8), np.int8), chunks=(10**6, 2))
    with pytest.raises(RequestError, match="One chunk") as raised:
        rechunk(str(path), tmp_path / "out.zarr", memory=BASELINE + 9 * MB)
    needed = raised.value.remedy.split()[2]
    done = rechunk(str(path), tmp_path / "out.zarr", memory=needed)
    assert done.predicted_peak <= int(needed.removesuffix("MB")) * MB
    assert done.chunks[1] == 2


def test_damage_is_found_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_bare(tmp_path / "x.zarr", X, chunks=(300, 5))
    kept = zarr.Array.__getitem__

    def spoilt(array: Any, region: Any) -> Any:
        values = np.array(kept(array, region))
        values += 1
        return values

    with monkeypatch.context() as patch:
        patch.setattr(zarr.Array, "__getitem__", spoilt)
        with pytest.raises(BrokenError, match="read back"):
            rechunk(str(path), tmp_path / "out.zarr")
    assert not (tmp_path / "out.zarr").exists()
    (path / "c" / "0" / "2").write_bytes(b"spoilt")
    with pytest.raises(BrokenError, match="c/0/2"):
        rechunk(str(path), tmp_path / "out.zarr")
    assert [place.name for place in tmp_path.iterdir()] == ["x.zarr"]


def test_sparse_data_are_refused(tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata")
    from scipy import sparse

    anndata.AnnData(sparse.csr_matrix(X)).write_h5ad(tmp_path / "x.h5ad")
    with pytest.raises(RequestError, match="sparse"):
        rechunk(str(tmp_path / "x.h5ad"), tmp_path / "out.zarr")

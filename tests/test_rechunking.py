"""Stores in other chunks: the same values, labels and coordinates."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from anndata import AnnData
from helpers import chunk_files, contents, labelled, no_warnings, planted, write_bare, write_xarray
from scipy.sparse import csr_matrix
from sources.anndata_stores import write_zarr3

from kmufs_stream import BrokenError, RequestError, open_matrix, rechunk, rechunking
from kmufs_stream.events import Advanced, Event
from kmufs_stream.sources.zarr_rows import StoredRows
from kmufs_stream.streaming.planning.sizing import BASELINE, MB

X = planted(300, 24, dtype=np.float32)
CELL = 4


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles even of small tables, and several chunks in each."""
    monkeypatch.setattr(rechunking, "TILE_BYTES", 70 * 24 * CELL)
    monkeypatch.setattr(rechunking, "CHUNK_BYTES", 11 * 24 * CELL)


@pytest.mark.parametrize(
    ("chunks", "zarr_format"),
    [((300, 1), 3), ((300, 5), 2), ((300, 24), 3), ((40, 5), 3), ((64, 24), 3)],
)
def test_values_labels_and_coordinates(
    tmp_path: Path, chunks: tuple[int, int], zarr_format: int
) -> None:
    form: Any = {"chunks": chunks, "zarr_format": zarr_format, "attrs": {"title": "all"}}
    path = write_xarray(tmp_path / "x.zarr", labelled(X), **form)
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


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """From what row to what row is read, and how many columns, each time."""
    noted: list[tuple[int, int, int]] = []
    take = StoredRows.take

    def noting(rows: StoredRows, start: int, stop: int, columns: Any) -> Any:
        noted.append((start, stop, len(columns)))
        return take(rows, start, stop, columns)

    monkeypatch.setattr(StoredRows, "take", noting)
    return noted


def test_each_source_chunk_is_read_once(tmp_path: Path, taken: list[tuple[int, int, int]]) -> None:
    path = write_bare(tmp_path / "x.zarr", X, chunks=(300, 5))
    rechunk(str(path), tmp_path / "out.zarr")
    assert taken == [(0, 300, 5)] * 4 + [(0, 300, 4)]
    np.testing.assert_array_equal(xr.open_zarr(tmp_path / "out.zarr")["data"], X)
    # Features stored first, and a store that Python has opened.
    turned = zarr.open_array(write_bare(tmp_path / "turned.zarr", X.T), mode="r")
    rechunk(open_matrix(turned, sample_dims="feature"), tmp_path / "out.zarr", overwrite=True)
    np.testing.assert_array_equal(xr.open_zarr(tmp_path / "out.zarr")["data"], X)


def test_the_budget_bounds_the_tile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rechunking, "CHUNK_BYTES", MB)
    path = write_bare(tmp_path / "x.zarr", np.zeros((10**6, 8), np.int8), chunks=(10**6, 2))
    with pytest.raises(RequestError, match="One chunk") as raised:
        rechunk(str(path), tmp_path / "out.zarr", memory=BASELINE + 9 * MB)
    needed = raised.value.remedy.split("'")[1]
    done = rechunk(str(path), tmp_path / "out.zarr", memory=needed)
    assert done.predicted_peak <= int(needed.removesuffix("MB")) * MB
    assert done.chunks[1] == 2


def test_damage_is_found_and_leaves_no_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_bare(tmp_path / "x.zarr", X, chunks=(300, 5))
    kept = zarr.Array.__getitem__
    with monkeypatch.context() as patch:
        patch.setattr(zarr.Array, "__getitem__", lambda *given: np.add(kept(*given), 1))
        with pytest.raises(BrokenError, match="read back"):
            rechunk(str(path), tmp_path / "out.zarr")
    assert not (tmp_path / "out.zarr").exists()
    rechunk(str(path), tmp_path / "out.zarr", resume=True)
    np.testing.assert_array_equal(xr.open_zarr(tmp_path / "out.zarr")["data"], X)
    (path / "c" / "0" / "2").write_bytes(b"spoilt")
    with pytest.raises(BrokenError, match="c/0/2"):
        rechunk(str(path), tmp_path / "new.zarr")
    names = sorted(place.name for place in tmp_path.iterdir())
    assert names == ["new.zarr.checkpoint", "out.zarr", "x.zarr"]


def broken_off(path: Path, out: Path, after: int) -> KeyboardInterrupt:
    """Rechunk until so many tiles are written; what ended it."""
    tiles = iter(range(1, after))

    def progress(event: Event) -> None:
        if isinstance(event, Advanced) and next(tiles, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        rechunk(path, out, progress=progress)
    return stopped.value


@pytest.mark.parametrize(("chunks", "tile"), [((300, 5), (300, 5)), ((10, 24), (70, 24))])
def test_what_was_interrupted_goes_on(
    tmp_path: Path,
    chunks: tuple[int, int],
    tile: tuple[int, int],
    taken: list[tuple[int, int, int]],
) -> None:
    path = write_xarray(tmp_path / "x.zarr", labelled(X), chunks=chunks)
    step = rechunk(path, tmp_path / "whole.zarr").chunks
    out, kept = tmp_path / "first.zarr", tmp_path / "first.zarr.checkpoint"
    assert "`resume=True` goes on from it" in broken_off(path, out, 3).__notes__[0]
    assert not out.exists()
    with pytest.raises(RequestError, match="Say `resume=True`"):
        rechunk(path, out)
    written = chunk_files(kept / "store" / "counts")
    assert len(written) > 15
    # What was written and is damaged since is found, whether it can be decoded or not.
    for number, chunk in enumerate(written):
        row, column = (int(i) * size for i, size in zip(chunk.parts[-2:], step, strict=True))
        tiles = {(r // tile[0], column) for r in (row, min(row + step[0], 300) - 1)}
        if number % 3 and len(tiles) == 1:
            continue
        out = tmp_path / f"{number}.zarr"
        damaged = shutil.copytree(kept, f"{out}.checkpoint") / chunk.relative_to(kept)
        damaged.write_bytes(damaged.read_bytes()[:-5])
        taken.clear()
        rechunk(path, out, resume=True)
        again = [(r, c) for r, c in tiles if r < 3]  # of those that were done
        read = sum((stop - start) * columns for start, stop, columns in taken)
        assert read == X.size - (3 - len(again)) * tile[0] * tile[1]
        assert contents(out) == contents(tmp_path / "whole.zarr")
        assert not Path(f"{out}.checkpoint").exists()


def test_nothing_goes_on_with_other_data_or_in_other_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_bare(tmp_path / "x.zarr", X, chunks=(300, 5))
    broken_off(path, tmp_path / "out.zarr", 2)
    with monkeypatch.context() as patch:
        patch.setattr(rechunking, "CHUNK_BYTES", 7 * 24 * CELL)
        with pytest.raises(RequestError, match=r"another run \(chunks:"):
            rechunk(path, tmp_path / "out.zarr", resume=True)
    zarr.open_array(path)[0, 0] = 9
    with pytest.raises(RequestError, match=r"another run \(data chunks:"):
        rechunk(path, tmp_path / "out.zarr", resume=True)


def test_sparse_data_are_refused(tmp_path: Path) -> None:
    sparse = write_zarr3(AnnData(csr_matrix(X)), tmp_path / "x.zarr")
    with pytest.raises(RequestError, match="sparse"):
        rechunk(sparse, tmp_path / "out.zarr")

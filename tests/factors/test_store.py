"""Factors on disk: what comes back, and to which data they belong."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from helpers import counted, no_warnings, planted, same_bits, write_bare, write_xarray

from kmufs_stream import (
    BrokenError,
    RequestError,
    decompose,
    load_factor,
    open_matrix,
    save_factor,
    select,
)
from kmufs_stream.storage.provenance import FACTOR, FORMAT_VERSIONS
from kmufs_stream.streaming.kernels import sample
from kmufs_stream.streaming.kernels.scaling import probe_starts

X = planted(300, 12)
THIS_FORMAT = FORMAT_VERSIONS[FACTOR]


@pytest.mark.parametrize(("dtype", "method"), [("u1", "gram"), ("f4", "tsqr"), (">f8", "gram")])
def test_round_trip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, method: str
) -> None:
    monkeypatch.setattr(sample, "SAMPLE_ROWS", 64)
    whole = np.clip(X * 20 + 50, 0, 200).astype(dtype)
    whole[:, 5] = 9
    factor = decompose(whole, 3, method=method)
    path = os.fspath(tmp_path / "f.zarr")
    save_factor(factor, path)
    loaded = load_factor(path)
    assert loaded.sample.values.dtype.newbyteorder("=") == np.dtype(dtype).newbyteorder("=")
    np.testing.assert_array_equal(loaded.sample.values, whole[loaded.sample.index])
    assert same_bits(dataclasses.replace(loaded, sample=factor.sample), factor)
    assert loaded.sample.index.tolist() == sample.sample_index(300, 64).tolist()
    assert loaded.features.samples == 300
    assert {r: i.tolist() for r, i in loaded.features.excluded.items()} == {"constant": [5]}
    kept = ("score_error", "settled", "last_change", "method", "precision", "passes", "rank")
    for name in (*kept, "fingerprint"):
        assert getattr(loaded, name) == getattr(factor, name), name
    with no_warnings(), xr.open_zarr(path) as opened:
        assert opened["components"].shape == (11, 7)
        assert opened.attrs["format"] == "kmufs-factor"
        assert opened.attrs["format_version"] == THIS_FORMAT


def test_any_k_and_h_without_reading_more_than_the_probe(tmp_path: Path) -> None:
    path = write_bare(tmp_path / "x.zarr", X, chunks=(50, 12))
    save_factor(decompose(path, 3), tmp_path / "f.zarr")
    matrix, rows = counted(open_matrix(path))
    for k, h, solver in [(3, 5, "exact"), (2, 4, "admm"), (7, 12, "exact")]:
        rows.reads.clear()
        chosen = select(matrix, k, h, solver=solver, factor=tmp_path / "f.zarr")
        direct = select(path, k, h, solver=solver)
        assert chosen.passes == 0
        assert chosen.summary()["passes"] == 0
        assert direct.passes == 1
        if k == 3:
            assert chosen.selected.tolist() == direct.selected.tolist()
            assert chosen.objective == direct.objective
            assert chosen.solution.iterations == direct.solution.iterations
        np.testing.assert_allclose(chosen.scores.sum(), chosen.objective)
        assert [a for a, _ in rows.reads] == probe_starts(300, 50)
        assert sum(b - a for a, b in rows.reads) < 300


def test_factor_of_other_data_is_refused(tmp_path: Path) -> None:
    genes = {"gene": [f"gene {i}" for i in range(12)]}
    array, out = xr.DataArray(X, genes, ("cell", "gene"), "counts"), tmp_path / "out.zarr"
    path = write_xarray(tmp_path / "x.zarr", array, chunks=(50, 12))
    factor = decompose(path, 3)
    assert select(path, 3, 5, factor=factor).passes == 0
    for other in (
        array[:250],
        array.assign_coords(gene=[f"other {i}" for i in range(12)]),
        array[:, ::-1],
        array.astype(np.float32),
        array + 1e-9,
        array,  # as it was, but written anew
    ):
        shutil.rmtree(path)
        write_xarray(path, other, chunks=(50, 12))
        with pytest.raises(RequestError) as caught:
            select(path, 3, 5, factor=factor, out=out)
        assert (caught.value.code, caught.value.exit_code) == ("wrong_factor", 2)
        assert not out.exists()
    factor = decompose(path, 3)
    probed = {a // 50 for a in probe_starts(300, 50)}
    unseen = next(i for i in range(6) if i not in probed)
    stored = zarr.open_array(path, path="counts")
    stored[unseen * 50, 0] = 99.0
    with pytest.raises(RequestError, match="chunk files were written"):
        select(path, 3, 5, factor=factor)


def test_factor_of_data_in_memory_notices_other_data() -> None:
    whole = np.random.default_rng(0).normal(size=(20_000, 6))
    factor = decompose(whole, 2)
    assert select(whole.copy(), 2, 3, factor=factor).passes == 0
    beside_the_probe = whole.copy()
    beside_the_probe[1000:1100] *= 3
    for other in (whole + 1, whole[:, :5], whole[:0], beside_the_probe):
        with pytest.raises(RequestError) as caught:
            select(other, 2, 3, factor=factor)
        assert caught.value.code == "wrong_factor"


def test_k_beyond_the_factor_is_refused() -> None:
    factor = decompose(X, 2)
    with pytest.raises(RequestError, match="components in this factor is 5"):
        select(X, 6, 8, factor=factor)
    assert select(X, 5, 8, solver="exact", factor=factor).k == 5


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("missing", "not_found"),
        ("store", "not_a_factor"),
        ("folder", "not_a_factor"),
        ("version", "factor_format"),
        ("truncated", "not_a_factor"),
    ],
)
def test_what_is_no_factor_is_refused(tmp_path: Path, what: str, code: str) -> None:
    path = tmp_path / f"{what}.zarr"
    if what == "store":
        write_bare(path, X)
    elif what == "folder":
        path.mkdir()
    elif what == "version":
        save_factor(decompose(X, 2), path)
        zarr.open_group(path).attrs["format_version"] = THIS_FORMAT + 1
        zarr.consolidate_metadata(path)
    elif what == "truncated":
        save_factor(decompose(X, 2), path)
        text = (path / "zarr.json").read_text()
        (path / "zarr.json").write_text(text[: len(text) // 2])
    for use in (lambda: load_factor(path), lambda: select(X, 2, 3, factor=path)):
        with pytest.raises(RequestError, match=f"{what}.zarr") as caught:
            use()
        assert caught.value.code == code


def test_saving_never_removes_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(RequestError):
        save_factor(decompose(X, 2), tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_factor_that_lost_chunks_is_refused(tmp_path: Path) -> None:
    save_factor(decompose(X, 3), tmp_path / "f.zarr")
    for lost in ("usable", "mean", "sample", "components", "correlation"):
        damaged = shutil.copytree(tmp_path / "f.zarr", tmp_path / f"{lost}.zarr")
        shutil.rmtree(damaged / lost / "c")
        with pytest.raises(BrokenError, match="is damaged"):
            load_factor(damaged)

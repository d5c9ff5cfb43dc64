"""The written result: values, coordinates, attributes, names, and that xarray opens it."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from helpers import labelled, no_warnings, planted, write_bare, write_xarray
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import reference
from zarr.abc.store import Store
from zarr.storage import LocalStore, WrapperStore

from kmufs_stream import BrokenError, RequestError, open_matrix, select
from kmufs_stream.results import writing as subset
from kmufs_stream.streaming.planning import sizing

X = planted(120, 12)
K, H = 3, 5
# Coordinates along the samples are a test of their own (see below); these are the plain ones.
SAMPLES = ["cell", "depth", "batch", "when", "number"]
FORMS = [
    pytest.param(2, None, id="v2"),
    pytest.param(3, None, id="v3"),
    pytest.param(3, (60, 12), id="v3-sharded"),
]


def opened(path: Path, **options: Any) -> xr.Dataset:
    with no_warnings():
        dataset: xr.Dataset = xr.open_zarr(path, **options).load()
    return dataset


def tree(path: Path) -> xr.DataTree:
    with no_warnings():
        return xr.open_datatree(path, engine="zarr").load()


def check_values(source: xr.DataArray, out: Path, selected: Any) -> xr.Dataset:
    found = opened(out)
    expected = source.isel(gene=selected)
    assert found["counts"].dims == source.dims
    np.testing.assert_array_equal(found["counts"].values, expected.values)
    for name in source.coords:
        assert name in found.coords, name
        assert found[name].dims == expected[name].dims
        np.testing.assert_array_equal(found[name].values, expected[name].values, err_msg=str(name))
        assert found[name].attrs == expected[name].attrs
    np.testing.assert_array_equal(found["feature_index"].values, selected)
    assert found["feature_index"].dims == ("gene",)
    return found


@pytest.mark.parametrize(("zarr_format", "shards"), FORMS)
@pytest.mark.parametrize("transposed", [False, True])
def test_values_coordinates_and_attributes_along_the_features(
    tmp_path: Path, zarr_format: int, shards: tuple[int, int] | None, transposed: bool
) -> None:
    array = labelled(X, comment="of the data").drop_vars(SAMPLES)
    if transposed:
        array, shards = array.transpose(), shards and shards[::-1]
    path = write_xarray(
        tmp_path / "x.zarr",
        array,
        zarr_format=zarr_format,
        chunks=(12, 20) if transposed else (20, 12),
        shards=shards,
        attrs={"title": "of the whole"},
    )
    matrix = open_matrix(path, feature_dims="gene")
    chosen = select(matrix, K, H, out=tmp_path / "out.zarr")
    found = check_values(array, tmp_path / "out.zarr", chosen.selected)
    assert found["counts"].attrs == {"units": "1", "comment": "of the data"}
    assert found.attrs["title"] == "of the whole"
    assert zarr.open_group(tmp_path / "out.zarr").metadata.zarr_format == zarr_format


@pytest.mark.parametrize(("zarr_format", "shards"), FORMS)
def test_coordinates_along_the_samples(
    tmp_path: Path, zarr_format: int, shards: tuple[int, int] | None
) -> None:
    array = labelled(X)
    path = write_xarray(
        tmp_path / "x.zarr",
        array,
        zarr_format=zarr_format,
        chunks=(20, 12),
        shards=shards,
        attrs={"title": "of the whole"},
    )
    chosen = select(path, K, H, out=tmp_path / "out.zarr")
    found = check_values(array, tmp_path / "out.zarr", chosen.selected)
    assert found.attrs["title"] == "of the whole"
    assert found.attrs["k"] == K


@pytest.mark.parametrize("lazy", [False, True])
def test_coordinates_of_a_dataarray(tmp_path: Path, lazy: bool) -> None:
    array = labelled(X)
    given = array.chunk({"cell": 50}) if lazy else array
    chosen = select(given, K, H, out=tmp_path / "out.zarr")
    found = check_values(array, tmp_path / "out.zarr", chosen.selected)
    assert found.attrs["k"] == K


OBJECTS = {
    "text": ([f"é{i}" for i in range(120)], "StringDType()"),
    "gaps": (["", None, *["a"] * 118], "StringDType()"),
    "bytes": ([b"b%d" % i for i in range(120)], "|S4"),
    "truth": (np.arange(120) % 2 == 0, "bool"),  # int8, by an older xarray
    "whole": (np.arange(120), "int64"),
    "times": (np.arange("2000-01-01", "2000-04-30", dtype="M8[D]").astype("M8[ns]"), "int64"),
}


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("kind", OBJECTS)
def test_coordinates_keep_their_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, lazy: bool
) -> None:
    monkeypatch.setattr(subset, "COORDINATE_ROWS", 50)
    values, stored = OBJECTS[kind]
    array = np.array(values, dtype=object if isinstance(values, list) else None)
    told: Any = da.from_array(array, chunks=30) if lazy else array
    table = xr.DataArray(X, dims=("s", "f"), coords={"told": ("s", told)}, name="x")
    select(table, K, H, solver="exact", out=tmp_path / "out.zarr")
    kept = zarr.open_array(tmp_path / "out.zarr", path="told", mode="r")
    assert str(kept.dtype) in (stored, "int8" if kind == "truth" else stored)
    nothing = np.where(np.equal(array, None), "", array) if kind == "gaps" else array
    np.testing.assert_array_equal(opened(tmp_path / "out.zarr")["told"].values, nothing)


def test_an_index_of_text_names_the_samples(tmp_path: Path) -> None:
    names = [f"r{i}" for i in range(120)]
    table = pd.DataFrame(X, index=names, columns=[f"f{i}" for i in range(12)])
    select(table, K, H, solver="exact", out=tmp_path / "out.zarr")
    assert opened(tmp_path / "out.zarr")["sample"].values.tolist() == names


def test_objects_of_several_kinds_are_refused(tmp_path: Path) -> None:
    mixed = np.array([1, "a"] * 60, dtype=object)
    table = xr.DataArray(X, dims=("s", "f"), coords={"told": ("s", mixed)}, name="x")
    with pytest.raises(RequestError, match="objects") as caught:
        select(table, K, H, solver="exact", out=tmp_path / "out.zarr")
    assert caught.value.code == "bad_coordinate"
    assert list(tmp_path.iterdir()) == []


def test_attributes_survive_a_coordinate_along_the_samples(tmp_path: Path) -> None:
    array = xr.DataArray(X, dims=("s", "f"), name="x", coords={"s": np.arange(120)})
    path = write_xarray(tmp_path / "x.zarr", array, attrs={"title": "t"})
    select(path, K, H, out=tmp_path / "out.zarr")
    assert opened(tmp_path / "out.zarr").attrs["title"] == "t"
    assert opened(tmp_path / "out.zarr").attrs["k"] == K


def test_long_coordinates_are_copied_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subset, "COORDINATE_ROWS", 50)
    array = xr.DataArray(X, dims=("s", "f"), name="x", coords={"s": np.arange(120) * 3})
    path = write_xarray(tmp_path / "x.zarr", array.assign_coords(two=("s", np.arange(120) % 7)))
    select(path, K, H, out=tmp_path / "out.zarr")
    np.testing.assert_array_equal(opened(tmp_path / "out.zarr")["s"], np.arange(120) * 3)
    np.testing.assert_array_equal(opened(tmp_path / "out.zarr")["two"], np.arange(120) % 7)
    assert zarr.open_array(tmp_path / "out.zarr", path="two", mode="r").chunks == (50,)


class Counting(WrapperStore[Store]):
    """A store that notes which chunks of the samples' names are read."""

    read: ClassVar[Counter[str]] = Counter()
    _supports_sync_io = False

    async def get(self, key: str, *arguments: Any, **options: Any) -> Any:
        self.read.update([key] if "cell/" in key and key[-1].isdigit() else [])
        return await self._store.get(key, *arguments, **options)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", ["U8", object])
def test_names_of_samples_are_read_once_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zarr_format: int, dtype: Any
) -> None:
    monkeypatch.setattr(subset, "COORDINATE_ROWS", 50)
    names = np.array([f"cell {i}" for i in range(120)], dtype)
    array = xr.DataArray(X, dims=("cell", "f"), name="x", coords={"cell": names})
    form: Any = {"zarr_format": zarr_format, "encoding": {"cell": {"chunks": (50,)}}}
    array.to_dataset().to_zarr(tmp_path / "x.zarr", **form)
    Counting.read.clear()
    select(Counting(LocalStore(tmp_path / "x.zarr")), K, H, out=tmp_path / "out.zarr")
    first, *others = Counting.read.values()
    assert others == [1, 1]
    # Where cftime is installed, xarray looks whether the first name is one of its times.
    assert first == 1 or (find_spec("cftime") and first <= 4)
    assert opened(tmp_path / "out.zarr")["cell"].values.tolist() == names.tolist()


@settings(deadline=None, max_examples=15)
@given(
    n=st.integers(3, 90),
    chunks=st.tuples(st.integers(1, 90), st.integers(1, 12)),
    rows=st.integers(1, 100),
    zarr_format=st.sampled_from([2, 3]),
    transposed=st.booleans(),
)
def test_any_chunks_are_copied_exactly(
    tmp_path_factory: pytest.TempPathFactory,
    n: int,
    chunks: tuple[int, int],
    rows: int,
    zarr_format: int,
    transposed: bool,
) -> None:
    folder = tmp_path_factory.mktemp("any")
    whole = planted(n, 12, seed=n)
    stored = np.ascontiguousarray(whole.T) if transposed else whole
    grid = chunks[::-1] if transposed else chunks
    path = write_bare(folder / "x.zarr", stored, chunks=grid, zarr_format=zarr_format)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizing, "OUTPUT_CHUNK_BYTES", rows * H * 8)
        matrix = open_matrix(path, sample_dims="feature" if transposed else None)
        chosen = select(matrix, 1, H, solver="exact", out=folder / "out.zarr")
    found = opened(folder / "out.zarr")["data"].values
    np.testing.assert_array_equal(found.T if transposed else found, whole[:, chosen.selected])


def test_everything_that_the_design_lists(tmp_path: Path) -> None:
    array = labelled(X).drop_vars(SAMPLES)
    array[:, 4] = 2.5
    path = write_xarray(tmp_path / "x.zarr", array)
    out = tmp_path / "out.zarr"
    chosen = select(path, K, H, out=out)
    expected = reference(array.values)
    scores = expected.every_score(K)

    root = opened(out)
    assert set(root.data_vars) == {"counts"}
    np.testing.assert_allclose(root["score"], scores[chosen.selected], rtol=1e-11)
    np.testing.assert_array_equal(root["rank"], chosen.ranks)
    for name in ("feature_index", "score", "rank"):
        assert root[name].dims == ("gene",)

    groups = tree(out)
    assert set(groups.children) == {"all_features", "diagnostics"}
    every = groups["all_features"].to_dataset(inherit=False)
    assert every.sizes == {"source_feature": 12}
    np.testing.assert_allclose(every["score"], scores, rtol=1e-11)
    np.testing.assert_array_equal(np.flatnonzero(every["selected"]), chosen.selected)
    assert every["selected"].dtype == bool
    reasons = ["constant" if i == 4 else "" for i in range(12)]
    assert [str(x) for x in every["excluded"].values] == reasons
    np.testing.assert_allclose(every["mean"], expected.mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(every["std"], expected.std, rtol=1e-12)
    assert [str(x) for x in every["source_feature"].values] == [f"gene {i} é" for i in range(12)]

    diagnostics = groups["diagnostics"].to_dataset(inherit=False)
    np.testing.assert_allclose(
        diagnostics["singular_values"], expected.singular_values[: 2 * K + 1], rtol=1e-11
    )
    assert diagnostics["residuals"].shape == (2 * K + 1,)
    for name in ("objective", "residual_u", "residual_w", "rows_changed"):
        assert diagnostics[name].shape == (chosen.solution.iterations,)

    attrs = root.attrs
    json.dumps(attrs, allow_nan=False)
    for name, value in {
        "k": K,
        "h": H,
        "solver": "admm",
        "solver_rho": 1.05,
        "solver_max_iter": 3000,
        "solver_patience": 30,
        "objective": chosen.objective,
        "optimum": chosen.optimum,
        "solver_objective": chosen.solution.solver_objective,
        "iterations": chosen.solution.iterations,
        "converged": 1,
        "method": "gram",
        "passes": 1,
        "samples": 120,
        "excluded_constant": 1,
        "source": str(path),
    }.items():
        assert attrs[name] == value, name
        assert type(attrs[name]) is type(value), name
    for name in ("fingerprint", "format", "format_version", "version"):
        assert name in attrs


def test_dataset_without_output_is_what_would_be_written(tmp_path: Path) -> None:
    path = write_xarray(tmp_path / "x.zarr", labelled(X).drop_vars(SAMPLES), chunks=(20, 12))
    here = select(path, K, H).dataset
    assert here["counts"].chunks is not None
    there = select(path, K, H, out=tmp_path / "out.zarr").dataset
    xr.testing.assert_equal(here.load(), there.load())
    assert here.attrs == there.attrs


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_packed_data_stay_packed(tmp_path: Path, zarr_format: int) -> None:
    packing = {"dtype": "i2", "scale_factor": 0.25, "add_offset": 3.0, "_FillValue": -999}
    array = xr.DataArray(np.round(X * 4) / 4, dims=("s", "f"), name="x")
    path = write_xarray(tmp_path / "x.zarr", array, zarr_format=zarr_format, encoding=packing)
    chosen = select(path, K, H, out=tmp_path / "out.zarr")
    raw = opened(tmp_path / "out.zarr", mask_and_scale=False)["x"]
    source = opened(path, mask_and_scale=False)["x"]
    assert raw.dtype == np.int16
    np.testing.assert_array_equal(raw.values, source.values[:, chosen.selected])
    found, decoded = opened(tmp_path / "out.zarr")["x"], opened(path)["x"]
    np.testing.assert_array_equal(found.values, decoded.values[:, chosen.selected])
    for key in ("scale_factor", "add_offset", "_FillValue"):
        assert found.encoding[key] == packing[key]


def test_chunks_of_nothing_but_zeros_are_written(tmp_path: Path) -> None:
    whole = np.zeros((200, 4))
    whole[:60] = planted(60, 4)
    select(write_bare(tmp_path / "x.zarr", whole, chunks=(20, 4)), 2, 2, out=tmp_path / "out.zarr")
    assert open_matrix(tmp_path / "out.zarr").provenance.inventory()
    np.testing.assert_array_equal(opened(tmp_path / "out.zarr")["data"].values[60:], 0)


def test_coordinate_and_attributes_under_our_names(tmp_path: Path) -> None:
    array = xr.DataArray(
        X,
        dims=("s", "f"),
        name="x",
        coords={"score": ("f", np.arange(12) * 2)},
    )
    path = write_xarray(
        tmp_path / "x.zarr", array, attrs={"source": "a lab", "k": "theirs", "title": "t"}
    )
    chosen = select(path, K, H, out=tmp_path / "out.zarr")
    found = opened(tmp_path / "out.zarr")
    np.testing.assert_array_equal(found["source_score"].values, chosen.selected * 2)
    np.testing.assert_array_equal(found["score"].values, chosen.scores)
    assert found.attrs["input_source"] == "a lab"
    assert found.attrs["input_k"] == "theirs"
    assert found.attrs["k"] == K
    assert found.attrs["source"] == str(path)
    assert found.attrs["title"] == "t"


@pytest.mark.parametrize(
    "name",
    [
        "rank",
        "score",
        "feature_index",
        *(n for n in ("all_features", "diagnostics")),
    ],
)
def test_variable_under_one_of_our_names(tmp_path: Path, name: str) -> None:
    array = xr.DataArray(X, dims=("s", "f"), name=name)
    chosen = select(array, K, H, out=tmp_path / "out.zarr")
    found = opened(tmp_path / "out.zarr")
    np.testing.assert_array_equal(found[f"source_{name}"].values, X[:, chosen.selected])
    np.testing.assert_array_equal(found["score"].values, chosen.scores)
    assert set(tree(tmp_path / "out.zarr").children) == {"all_features", "diagnostics"}


@pytest.mark.parametrize(
    "dims",
    [
        ("rank", "gene"),
        ("cell", "score"),
        *(d for d in (("cell", "source_feature"), ("cell", "component"), ("iteration", "gene"))),
    ],
    ids=str,
)
def test_dimension_under_one_of_our_names(tmp_path: Path, dims: tuple[str, str]) -> None:
    array = xr.DataArray(X, dims=dims, name="x")
    chosen = select(array, K, H, out=tmp_path / "out.zarr")
    found = opened(tmp_path / "out.zarr")
    np.testing.assert_array_equal(found["x"].values, X[:, chosen.selected])
    assert set(tree(tmp_path / "out.zarr").children) == {"all_features", "diagnostics"}


def test_names_of_ours_and_the_names_that_they_would_take(tmp_path: Path) -> None:
    array = xr.DataArray(X, dims=("s", "f"), name="x").assign_coords(
        score=("f", np.arange(12)), source_score=("f", np.arange(12))
    )
    select(array, K, H, out=tmp_path / "out.zarr")
    assert "score" in opened(tmp_path / "out.zarr")


def test_result_is_an_input_again(tmp_path: Path) -> None:
    path = write_bare(tmp_path / "x.zarr", X, chunks=(20, 12))
    first = select(path, K, 8, out=tmp_path / "one.zarr")
    then = select(tmp_path / "one.zarr", K, 4, out=tmp_path / "two.zarr")
    found = opened(tmp_path / "two.zarr")
    index = first.selected[then.selected]
    np.testing.assert_array_equal(found["data"].values, X[:, index])
    np.testing.assert_array_equal(found["source_feature_index"].values, index)


def test_result_of_a_result_is_an_input_again(tmp_path: Path) -> None:
    stores = [tmp_path / f"{i}.zarr" for i in range(4)]
    write_bare(stores[0], X)
    for h, (a, b) in enumerate(itertools.pairwise(stores)):
        select(a, K, 8 - h, out=b)
    assert opened(stores[3]).sizes["feature"] == 6


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_selection_only_copies_no_data(tmp_path: Path, zarr_format: int) -> None:
    path = write_xarray(tmp_path / "x.zarr", labelled(X), zarr_format=zarr_format)
    chosen = select(path, K, H, out=tmp_path / "out.zarr", selection_only=True)
    found = opened(tmp_path / "out.zarr")
    assert list(found.data_vars) == []
    assert dict(found.sizes) == {"gene": H}
    np.testing.assert_array_equal(found["feature_index"].values, chosen.selected)
    assert [str(x) for x in found["gene"].values] == chosen.labels
    np.testing.assert_array_equal(found["weight"].values, chosen.selected / 8)
    assert found.attrs["objective"] == chosen.objective
    every = tree(tmp_path / "out.zarr")["all_features"].to_dataset(inherit=False)
    assert every.sizes == {"source_feature": 12}


def test_stacked_dimensions(tmp_path: Path) -> None:
    # What the error for three dimensions advises.
    cube = xr.DataArray(
        X.reshape(120, 3, 4),
        dims=("time", "lat", "lon"),
        name="air",
        coords={"lat": [1, 2, 3], "lon": [4, 5, 6, 7]},
    )
    chosen = select(cube.stack(feature=("lat", "lon")), K, H, out=tmp_path / "out.zarr")
    found = opened(tmp_path / "out.zarr")
    np.testing.assert_array_equal(found["air"].values, X[:, chosen.selected])
    np.testing.assert_array_equal(found["lat"].values, chosen.selected // 4 + 1)


def test_dask_of_lazily_made_values_is_written(tmp_path: Path) -> None:
    lazy = da.from_array(X, chunks=(33, 5)) * 2
    chosen = select(lazy, K, H, out=tmp_path / "out.zarr")
    np.testing.assert_array_equal(
        opened(tmp_path / "out.zarr")["data"].values, X[:, chosen.selected] * 2
    )


def test_numeric_and_missing_labels(tmp_path: Path) -> None:
    select(X, K, H, out=tmp_path / "bare.zarr")
    assert "source_feature" not in tree(tmp_path / "bare.zarr")["all_features"].coords
    array = xr.DataArray(X, dims=("s", "f"), name="x", coords={"f": np.arange(12) / 2})
    select(array, K, H, out=tmp_path / "numbers.zarr")
    np.testing.assert_array_equal(
        tree(tmp_path / "numbers.zarr")["all_features"]["source_feature"], np.arange(12) / 2
    )


class Rewritten:
    """Rows of a store of which a chunk is being written again as it is copied."""

    def __init__(self, rows: Any, chunk: Path) -> None:
        self.rows, self.chunk = rows, chunk

    def read(self, start: int, stop: int) -> Any:
        return self.rows.read(start, stop)

    def take(self, *where: Any) -> Any:
        self.chunk.write_bytes(b"half of it")
        return self.rows.take(*where)


def test_what_can_no_longer_be_read_was_changed_meanwhile(tmp_path: Path) -> None:
    matrix = open_matrix(write_bare(tmp_path / "x.zarr", X, chunks=(40, 12)))
    rows = Rewritten(matrix.rows, tmp_path / "x.zarr/c/1/0")
    with pytest.raises(BrokenError) as caught:
        select(dataclasses.replace(matrix, rows=rows), K, H, out=tmp_path / "out.zarr")
    assert caught.value.code == "source_changed"
    assert not (tmp_path / "out.zarr").exists()

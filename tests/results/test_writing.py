"""The written result: values, coordinates, attributes, names, and that xarray opens it."""

from __future__ import annotations

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
from reference import reference
from zarr.abc.store import Store
from zarr.storage import LocalStore, WrapperStore

from kmufs_stream import RequestError, open_matrix, select
from kmufs_stream.results import writing
from kmufs_stream.streaming.planning import sizing

X = planted(120, 12)
K, H = 3, 5


def opened(path: Path, **options: Any) -> xr.Dataset:
    with no_warnings():
        dataset: xr.Dataset = xr.open_zarr(path, **options).load()
    return dataset


def tree(path: Path) -> xr.DataTree:
    with no_warnings():
        return xr.open_datatree(path, engine="zarr").load()


FORMS = [
    pytest.param(2, None, True, id="v2-transposed"),
    pytest.param(3, None, False, id="v3"),
    pytest.param(3, (60, 12), False, id="v3-sharded"),
    pytest.param(3, (60, 12), True, id="v3-sharded-transposed"),
    pytest.param(3, None, None, id="lazy"),
]


@pytest.mark.parametrize(("zarr_format", "shards", "transposed"), FORMS)
def test_values_coordinates_and_attributes(
    tmp_path: Path, zarr_format: int, shards: tuple[int, int] | None, transposed: bool | None
) -> None:
    array, out = labelled(X, comment="of the data"), tmp_path / "out.zarr"
    data: Any = array.chunk({"cell": 50})
    if transposed is not None:
        chunks, attrs = (20, 12), {"title": "of the whole"}
        if transposed:
            array, chunks, shards = array.transpose(), (12, 20), shards and shards[::-1]
        form: Any = {"zarr_format": zarr_format, "chunks": chunks, "shards": shards}
        path = write_xarray(tmp_path / "x.zarr", array, attrs=attrs, **form)
        data = open_matrix(path, feature_dims="gene")
    chosen = select(data, K, H, out=out)
    found, expected = opened(out), array.isel(gene=chosen.selected)
    assert found["counts"].dims == array.dims
    np.testing.assert_array_equal(found["counts"].values, expected.values)
    for name in array.coords:
        assert name in found.coords, name
        assert found[name].dims == expected[name].dims
        np.testing.assert_array_equal(found[name].values, expected[name].values, err_msg=str(name))
        assert found[name].attrs == expected[name].attrs
    np.testing.assert_array_equal(found["feature_index"].values, chosen.selected)
    assert found["feature_index"].dims == ("gene",)
    assert found["counts"].attrs == {"units": "1", "comment": "of the data"}
    assert found.attrs["k"] == K
    assert transposed is None or found.attrs["title"] == "of the whole"
    assert zarr.open_group(out).metadata.zarr_format == zarr_format
    here = select(data, K, H).dataset  # which is what would be written
    assert here["counts"].chunks is not None
    xr.testing.assert_equal(here.load(), chosen.dataset.load())
    assert here.attrs == chosen.dataset.attrs


OBJECTS = {
    "text": ([f"é{i}" for i in range(120)], "StringDType()"),
    "gaps": (["", None, *["a"] * 118], "StringDType()"),
    "bytes": ([b"b%d" % i for i in range(120)], "|S4"),
    "truth": (np.arange(120) % 2 == 0, "bool"),
    "whole": (np.arange(120), "int64"),
    "times": (np.arange("2000-01-01", "2000-04-30", dtype="M8[D]").astype("M8[ns]"), "int64"),
}


@pytest.mark.parametrize("lazy", [False, True])
def test_coordinates_keep_their_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lazy: bool
) -> None:
    monkeypatch.setattr(writing, "COORDINATE_ROWS", 50)
    table = xr.DataArray(X, dims=("s", "f"), name="x")
    for kind, (values, _) in OBJECTS.items():
        array = np.array(values, dtype=object if isinstance(values, list) else None)
        table[kind] = ("s", da.from_array(array, chunks=30) if lazy else array)
    select(table, K, H, solver="exact", out=tmp_path / "out.zarr")
    found = opened(tmp_path / "out.zarr")
    for kind, (values, stored) in OBJECTS.items():
        kept = zarr.open_array(tmp_path / "out.zarr", path=kind, mode="r")
        # An older xarray stores truth as int8.
        assert str(kept.dtype) in (stored, "int8" if kind == "truth" else stored)
        assert kept.chunks == (50,)
        nothing = ["", "", *["a"] * 118] if kind == "gaps" else values
        np.testing.assert_array_equal(found[kind].values, nothing)


def test_objects_of_several_kinds_are_refused(tmp_path: Path) -> None:
    mixed = np.array([1, "a"] * 60, dtype=object)
    table = xr.DataArray(X, dims=("s", "f"), coords={"told": ("s", mixed)}, name="x")
    with pytest.raises(RequestError, match="objects") as caught:
        select(table, K, H, solver="exact", out=tmp_path / "out.zarr")
    assert caught.value.code == "bad_coordinate"
    assert list(tmp_path.iterdir()) == []


class Counting(WrapperStore[Store]):
    """A store that notes which chunks of coordinates along the samples are read."""

    read: ClassVar[Counter[str]] = Counter()
    _supports_sync_io = False

    async def get(self, key: str, *arguments: Any, **options: Any) -> Any:
        along = key.startswith(("cell/", "code/", "number/")) and key[-1].isdigit()
        self.read.update([key] if along else [])
        return await self._store.get(key, *arguments, **options)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_coordinates_along_the_samples_are_read_once_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zarr_format: int
) -> None:
    monkeypatch.setattr(writing, "COORDINATE_ROWS", 50)
    names = [f"cell {i}" for i in range(120)]
    along = {"cell": np.array(names, object), "code": np.array(names), "number": np.arange(120)}
    coords = {name: ("cell", values) for name, values in along.items()}
    array = xr.DataArray(X, dims=("cell", "f"), name="x", coords=coords)
    encoding = {name: {"chunks": (50,)} for name in along}
    form: Any = {"zarr_format": zarr_format, "encoding": encoding}
    array.to_dataset().to_zarr(tmp_path / "x.zarr", **form)
    Counting.read.clear()
    select(Counting(LocalStore(tmp_path / "x.zarr")), K, H, out=tmp_path / "out.zarr")
    for name, values in along.items():
        first, *others = [n for key, n in Counting.read.items() if key.startswith(f"{name}/")]
        assert others == [1, 1]
        # Where cftime is installed, xarray looks whether the first text is one of its times.
        assert first == 1 or (find_spec("cftime") and name != "number" and first <= 4)
        np.testing.assert_array_equal(opened(tmp_path / "out.zarr")[name].values, values)


@pytest.mark.parametrize(
    ("shape", "rows", "zarr_format", "transposed"),
    [
        ((3, 1, 1), 100, 2, False),
        ((37, 37, 5), 1, 3, True),
        ((60, 7, 12), 9, 2, True),
        ((61, 13, 4), 13, 3, False),
        ((90, 80, 11), 33, 3, True),
    ],
)
def test_any_chunks_are_copied_exactly(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shape: tuple[int, int, int],
    rows: int,
    zarr_format: int,
    transposed: bool,
) -> None:
    monkeypatch.setattr(sizing, "OUTPUT_CHUNK_BYTES", rows * H * 8)
    n, *chunks = shape
    whole = planted(n, 12, seed=n)
    stored = np.ascontiguousarray(whole.T) if transposed else whole
    grid: Any = chunks[::-1] if transposed else chunks
    path = write_bare(tmp_path / "x.zarr", stored, chunks=grid, zarr_format=zarr_format)
    matrix = open_matrix(path, sample_dims="feature" if transposed else None)
    chosen = select(matrix, 1, H, solver="exact", out=tmp_path / "out.zarr")
    found = opened(tmp_path / "out.zarr")["data"].values
    np.testing.assert_array_equal(found.T if transposed else found, whole[:, chosen.selected])


def test_everything_that_the_design_lists(tmp_path: Path) -> None:
    array = labelled(X)
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
    groups = tree(out)
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


def test_coordinates_and_attributes_under_our_names(tmp_path: Path) -> None:
    coords = {"score": ("f", np.arange(12) * 2), "rank": ("f", np.arange(12) * 3)}
    array = xr.DataArray(X, dims=("s", "f"), name="x", coords=coords)
    array["source_rank"] = ("f", np.arange(12) * 5)  # the name that rank would take
    attrs = {"source": "a lab", "k": "theirs", "title": "t"}
    path = write_xarray(tmp_path / "x.zarr", array, attrs=attrs)
    chosen = select(path, K, H, out=tmp_path / "out.zarr")
    found = opened(tmp_path / "out.zarr")
    for name, times in (("source_score", 2), ("source_rank", 5), ("source_source_rank", 3)):
        np.testing.assert_array_equal(found[name].values, chosen.selected * times)
    np.testing.assert_array_equal(found["score"].values, chosen.scores)
    np.testing.assert_array_equal(found["rank"].values, chosen.ranks)
    assert found.attrs["input_source"] == "a lab"
    assert found.attrs["input_k"] == "theirs"
    assert found.attrs["k"] == K
    assert found.attrs["source"] == str(path)
    assert found.attrs["title"] == "t"


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("rank", ("cell", "score")),
        ("score", ("rank", "gene")),
        ("feature_index", ("cell", "source_feature")),
        ("diagnostics", ("iteration", "gene")),
        ("all_features", ("cell", "component")),
    ],
)
def test_variable_and_dimensions_under_our_names(
    tmp_path: Path, name: str, dims: tuple[str, str]
) -> None:
    chosen = select(xr.DataArray(X, dims=dims, name=name), K, H, out=tmp_path / "out.zarr")
    found = opened(tmp_path / "out.zarr")
    np.testing.assert_array_equal(found[f"source_{name}"].values, X[:, chosen.selected])
    np.testing.assert_array_equal(found["score"].values, chosen.scores)
    assert set(tree(tmp_path / "out.zarr").children) == {"all_features", "diagnostics"}


def test_result_of_a_result_is_an_input_again(tmp_path: Path) -> None:
    stores = [tmp_path / f"{i}.zarr" for i in range(4)]
    write_bare(stores[0], X, chunks=(20, 12))
    index, names = np.arange(12), []
    for h, (a, b) in zip((8, 6, 4), itertools.pairwise(stores), strict=True):
        names.append(index)
        index = index[select(a, K, h, solver="exact", out=b).selected]
        np.testing.assert_array_equal(opened(b)["data"].values, X[:, index])
    found = opened(stores[2])
    np.testing.assert_array_equal(found["source_feature_index"].values, names[2])


def test_selection_only_copies_no_data(tmp_path: Path) -> None:
    path = write_xarray(tmp_path / "x.zarr", labelled(X), zarr_format=2)
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


def test_features_of_several_levels(tmp_path: Path) -> None:
    places = {"lat": [1, 2, 3], "lon": [4, 5, 6, 7]}
    cube = xr.DataArray(X.reshape(120, 3, 4), dims=("time", *places), name="air", coords=places)
    chosen = select(cube.stack(feature=("lat", "lon")), K, H, out=tmp_path / "out.zarr")
    found = opened(tmp_path / "out.zarr")
    np.testing.assert_array_equal(found["air"].values, X[:, chosen.selected])
    np.testing.assert_array_equal(found["lat"].values, chosen.selected // 4 + 1)


def test_labels_and_names_that_are_numbers_text_or_not_there(tmp_path: Path) -> None:
    array = xr.DataArray(X, dims=("s", "f"), name="x", coords={"f": np.arange(12) / 2})
    names, labels = [f"r{i}" for i in range(120)], [f"f{i}" for i in range(12)]
    table = pd.DataFrame(X, index=names, columns=labels)
    for name, data in (("bare", X), ("numbers", array), ("text", table)):
        select(data, K, H, solver="exact", out=tmp_path / f"{name}.zarr")
    every = {name: tree(tmp_path / f"{name}.zarr") for name in ("bare", "numbers", "text")}
    assert "source_feature" not in every["bare"]["all_features"].coords
    found = every["numbers"]["all_features"]["source_feature"]
    np.testing.assert_array_equal(found, np.arange(12) / 2)
    assert every["text"]["all_features"]["source_feature"].values.tolist() == labels
    assert every["text"]["sample"].values.tolist() == names

"""Dimensions as rows and columns, compared with NumPy's transpose and reshape; and outputs."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from helpers import planted
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import assert_optimal, reference

from kmufs_stream import RequestError, open_matrix, select
from kmufs_stream.sources.dimensions import Stacking, arrange
from kmufs_stream.sources.labels import class_codes
from kmufs_stream.sources.names import plain

X = planted(120, 20)
EXPECTED = reference(X).every_score(3)
TIMES = np.datetime64("2001-01-01", "ns") + np.arange(120) * np.timedelta64(6, "h")
LAT, LON = np.linspace(10, 40, 4), np.linspace(-2, 2, 5)


def climate() -> xr.DataArray:
    return xr.DataArray(
        X.reshape(120, 4, 5),
        dims=("time", "lat", "lon"),
        coords={
            "time": TIMES,
            "lat": ("lat", LAT, {"units": "degrees_north"}),
            "lon": LON,
            "height": (("lat", "lon"), np.arange(20.0).reshape(4, 5)),
            "season": ("time", np.array([f"s{i % 4}" for i in range(120)])),
            "tilt": (("time", "lat"), np.arange(480).reshape(120, 4)),
        },
        name="air",
        attrs={"units": "K"},
    )


def image() -> xr.DataArray:
    return xr.DataArray(
        X.reshape(10, 12, 20),
        dims=("y", "x", "band"),
        coords={
            "y": np.arange(10) * 2.5,
            "x": np.arange(12) + 100,
            "band": [f"B{i}" for i in range(20)],
            "cloud": (("y", "x"), np.arange(120).reshape(10, 12) % 7 == 0),
        },
        name="reflectance",
    )


@st.composite
def stackings(draw: Any) -> Stacking:
    ndim = draw(st.integers(2, 4))
    shape = tuple(draw(st.integers(1, 5)) for _ in range(ndim))
    order = draw(st.permutations(range(ndim)))
    cut = draw(st.integers(1, ndim - 1))
    dims = tuple("abcd"[:ndim])
    samples, features = (tuple(dims[i] for i in part) for part in (order[:cut], order[cut:]))
    return arrange(dims, shape, samples, features, "x")


def table_of(array: Any, stacking: Stacking) -> Any:
    return array.transpose([*stacking.samples, *stacking.features]).reshape(stacking.table)


@settings(deadline=None, max_examples=100)
@given(stacking=stackings(), data=st.data())
def test_rows_and_columns_of_any_array(stacking: Stacking, data: Any) -> None:
    array = np.arange(prod(stacking.shape)).reshape(stacking.shape)
    n, p = stacking.table
    table = table_of(array, stacking)
    start, stop = sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n))))
    chosen = np.array(sorted(data.draw(st.sets(st.integers(0, p - 1), min_size=1))))

    def fetch(index: tuple[Any, ...]) -> Any:
        ranges = [np.arange(e)[part] for part, e in zip(index, stacking.shape, strict=True)]
        return array[np.ix_(*ranges)]

    np.testing.assert_array_equal(stacking.gather(fetch, start, stop), table[start:stop])
    np.testing.assert_array_equal(
        stacking.gather(fetch, start, stop, chosen), table[start:stop][:, chosen]
    )


@settings(deadline=None, max_examples=100)
@given(stacking=stackings(), data=st.data())
def test_blocks_of_whole_units_meet_no_chunk_twice(stacking: Stacking, data: Any) -> None:
    chunks = [data.draw(st.integers(1, extent)) for extent in stacking.shape]
    rows = stacking.unit_rows(chunks) * data.draw(st.integers(1, 3))
    along = [np.arange(e) // chunk for e, chunk in zip(stacking.shape, chunks, strict=True)]
    numbers = np.ravel_multi_index(np.meshgrid(*along, indexing="ij"), stacking.shape)
    table = table_of(numbers, stacking)
    met = [set(np.unique(table[a : a + rows])) for a in range(0, len(table), rows)]
    if all(stacking.shape[axis] % chunks[axis] == 0 for axis in stacking.samples[1:]):
        assert sum(map(len, met)) == len(set().union(*met))


def test_output_keeps_the_coordinates_of_each_feature(tmp_path: Path) -> None:
    array = climate()
    array.to_dataset().to_zarr(tmp_path / "a.zarr")
    matrix = open_matrix(tmp_path / "a.zarr", sample_dims="time")
    result = select(matrix, 3, 6, solver="exact", out=tmp_path / "out.zarr")
    assert_optimal(result.selected, EXPECTED, 6, 1e-12)
    stacked = array.to_dataset().stack(feature=("lat", "lon"), create_index=False)
    expected = stacked.isel(feature=result.selected)
    with xr.open_zarr(tmp_path / "out.zarr") as written:
        assert written["air"].dims == ("time", "feature")
        assert written["air"].attrs["units"] == "K"
        assert written["lat"].attrs["units"] == "degrees_north"
        for name in ("air", "time", "lat", "lon", "height", "season", "tilt"):
            np.testing.assert_array_equal(written[name].values, expected[name].values)
    assert result.labels == [f"lat={LAT[i // 5]:g} lon={LON[i % 5]:g}" for i in result.selected]
    again = open_matrix(tmp_path / "out.zarr")
    assert again.labels is not None
    assert again.labels.tolist() == result.labels


def test_output_of_an_image_unstacks_to_one(tmp_path: Path) -> None:
    encoding = {"reflectance": {"chunks": (3, 5, 20)}}
    image().to_dataset().to_zarr(tmp_path / "a.zarr", zarr_format=2, encoding=encoding)
    matrix = open_matrix(tmp_path / "a.zarr", sample_dims=("y", "x"))
    result = select(matrix, 3, 6, solver="exact", out=tmp_path / "out.zarr")
    with xr.open_zarr(tmp_path / "out.zarr") as written:
        whole = written.load().set_index(sample=("y", "x")).unstack("sample")
    chosen = image().isel(band=result.selected)
    np.testing.assert_array_equal(whole["reflectance"].transpose("y", "x", "band"), chosen)
    np.testing.assert_array_equal(whole["cloud"], chosen["cloud"])
    assert result.labels == chosen["band"].values.tolist()


@pytest.mark.parametrize("lazy", [False, True])
def test_arrays_open_in_python(lazy: bool) -> None:
    array = climate().chunk(time=25, lat=3, lon=2) if lazy else climate()
    result = select(open_matrix(array, sample_dims="time"), 3, 5, solver="exact")
    assert_optimal(result.selected, EXPECTED, 5, 1e-12)
    bare: Any = climate().values.transpose(1, 2, 0)
    if lazy:
        bare = da.from_array(bare, chunks=(2, 2, 50))
    same = select(open_matrix(bare, sample_dims="dim_2"), 3, 5, solver="exact")
    assert same.selected.tolist() == result.selected.tolist()
    np.testing.assert_array_equal(same.dataset["data"], X[:, same.selected])


def test_names_of_places_have_no_more_digits_than_tell_them_apart() -> None:
    array = climate().isel(time=slice(40), lat=[0, 1], lon=[0, 1])
    places = {"lat": np.float32([75.1, 75.0]), "lon": np.float64([1e-7, 202.5])}
    matrix = open_matrix(array.assign_coords(places), sample_dims="time")
    expected = [f"lat={lat} lon={lon}" for lat in ("75.1", "75") for lon in ("1e-07", "202.5")]
    assert matrix.labels is not None
    assert matrix.labels.tolist() == expected
    points = array.stack(place=("lat", "lon"))  # an index of several levels
    assert open_matrix(points).labels.tolist()[0] == "lat=10 lon=-2"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (np.float32(75.1), 75.1),
        (TIMES[1], "2001-01-01T06:00:00"),
        (TIMES[0] + np.timedelta64(1500, "us"), "2001-01-01T00:00:00.0015"),
        (pd.Timestamp("2001-02-03 04:05"), "2001-02-03T04:05:00"),
        (np.timedelta64(21_600_000_000_000, "ns"), "6 hours"),
        (pd.Timedelta(days=3), "3 days"),
        (np.timedelta64(-3, "ns"), "-3 nanoseconds"),
        (np.timedelta64(0, "ns"), "0 days"),
        (np.timedelta64("NaT", "ns"), "NaT"),
    ],
)
def test_numbers_times_and_spans_are_told_in_the_fewest_signs(value: Any, told: Any) -> None:
    assert plain(value) == told


def test_times_of_other_calendars(tmp_path: Path) -> None:
    days = climate().drop_vars(["season", "tilt"]).to_dataset()
    calendar = {"units": "days since 2001-02-28", "calendar": "360_day"}
    days["time"] = ("time", np.arange(120), calendar)
    days.to_zarr(tmp_path / "a.zarr")
    matrix = open_matrix(tmp_path / "a.zarr", feature_dims="time", features="time=2001-02-30")
    assert matrix.asked is not None
    assert matrix.asked.tolist() == [2]
    assert matrix.feature_name(2) == "'2001-02-30T00:00:00' (feature 2)"
    some = open_matrix(tmp_path / "a.zarr", sample_dims="time", where="time >= '2001-03-01'")
    assert some.shape[0] == 117


def test_name_of_a_stacked_dimension_is_free() -> None:
    array = xr.DataArray(X.reshape(120, 4, 5), dims=("time", "feature", "sample"), name="a")
    matrix = open_matrix(array, sample_dims="time")
    assert matrix.metadata.feature_dim == "feature_"
    assert select(matrix, 3, 4, solver="exact").dataset["a"].dims == ("time", "feature_")


@pytest.mark.parametrize("dims", [(), ("lat",), ("lat", "lon"), ("time",)], ids=str)
def test_coordinate_called_as_the_stacked_dimension_keeps_its_values(dims: tuple[str, ...]) -> None:
    array = climate()
    shape = [array.sizes[d] for d in dims]
    values = np.arange(prod(shape)).reshape(shape)
    matrix = open_matrix(array.assign_coords(feature=(dims, values)), sample_dims="time")
    result = select(matrix, 3, 4, solver="exact")
    assert result.dataset["feature"].values.tolist() == result.labels
    expected = array.assign_coords(kept=(dims, values)).stack(feature=("lat", "lon"))["kept"]
    if "feature" in expected.dims:
        expected = expected[result.selected]
    np.testing.assert_array_equal(result.dataset["source_feature"], expected)


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "in memory"])
def test_variables_beside_the_table(tmp_path: Path, stored: bool) -> None:
    scene = image().to_dataset()
    kinds = np.random.default_rng(1).integers(4, size=(10, 12))
    scene["kind"] = (("y", "x"), np.where(kinds == 3, np.nan, kinds))
    scene["turned"] = scene["kind"].T
    scene["zone"] = ("x", np.arange(12) % 3)
    scene["band_bounds"] = (("band", "edge"), np.arange(40.0).reshape(20, 2))
    data, options = scene, {}
    if stored:
        data, options = tmp_path / "a.zarr", {"group": "june"}
        encoding = {"reflectance": {"chunks": (4, 5, 7)}}
        scene.to_zarr(data, group="june", encoding=encoding)
    for order in (["y", "x"], ["x", "y"]):
        opened = open_matrix(data, sample_dims=order, **options)
        assert opened.metadata.name == "reflectance"
        for matrix in (opened, open_matrix(opened, where="y > 5")):
            at = {d: xr.DataArray(matrix.metadata.coords[d].values, dims="sample") for d in order}
            values: Any = matrix.rows.read(0, matrix.shape[0])
            np.testing.assert_array_equal(values, scene["reflectance"].sel(at))
            for name in ("kind", "turned", "zone"):
                expected = scene[name].sel({d: at[d] for d in scene[name].dims}).values
                codes, count = class_codes(name, [matrix])
                known = ~np.isnan(expected)
                assert count == len(np.unique(expected[known]))
                assert (codes[~known] == -1).all()
                assert len(set(zip(codes[known], expected[known], strict=True))) == count


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "in memory"])
def test_dimensions_named_tell_the_table_from_maps_beside(tmp_path: Path, stored: bool) -> None:
    scene = image().to_dataset()
    scene["kind"] = (("y", "x"), np.arange(120).reshape(10, 12))
    data: Any = scene
    if stored:
        data = tmp_path / "a.zarr"
        scene.to_zarr(data)
    assert open_matrix(data, sample_dims="y", feature_dims=["x", "band"]).shape == (10, 240)
    assert open_matrix(data, sample_dims="y", feature_dims="x").metadata.name == "kind"
    for dims in (None, "x"):
        with pytest.raises(RequestError) as caught:
            open_matrix(data, sample_dims=dims)
        assert caught.value.code == "ambiguous_variable"


def test_wider_than_tall_is_said_unless_told() -> None:
    wide = xr.DataArray(X.T, dims=("gene", "cell"), name="x")
    assert "sample_dims='cell'" in str(open_matrix(wide).hint)
    assert open_matrix(wide, sample_dims="gene").hint is None
    assert open_matrix(wide.T).hint is None

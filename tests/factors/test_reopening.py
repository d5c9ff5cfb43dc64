"""Where in the data a table is: said once, and known from then on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from helpers import planted

from kmufs_stream import (
    Factor,
    RequestError,
    apply,
    decompose,
    evaluate,
    info,
    load_factor,
    open_matrix,
    save_factor,
    select,
    update,
)
from kmufs_stream.factors.reopening import open_like

SAID = {"variable": "air", "sample_dims": ["time"]}


def grids(n: int, seed: int = 0) -> xr.Dataset:
    """Two variables of n times on a grid of 3 x 4."""
    values = planted(n, 12, seed=seed).reshape(n, 3, 4)
    dims = ("time", "lat", "lon")
    places = {"lat": np.arange(3.0), "lon": np.arange(4.0)}
    return xr.Dataset({"air": (dims, values), "sea": (dims, -values)}, places)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two stores of such grids."""
    folder = tmp_path_factory.mktemp("grids")
    paths = str(folder / "old.zarr"), str(folder / "new.zarr")
    for path, n in zip(paths, (60, 40), strict=True):
        grids(n, seed=n).to_zarr(path)
    return paths


@pytest.fixture(scope="module")
def of_air(stores: tuple[str, str]) -> Factor:
    return decompose(open_matrix(stores[0], variable="air", sample_dims="time"), 3)


def test_results_and_factors_know_where_the_table_is(
    stores: tuple[str, str], of_air: Factor, tmp_path: Path
) -> None:
    old, new = stores
    factor, result = tmp_path / "factor.zarr", tmp_path / "chosen.zarr"
    save_factor(of_air, factor)
    assert load_factor(factor).located == SAID
    select(old, 3, 4, factor=factor, solver="exact", out=result)
    judged = evaluate(result, data=old, starts=1)
    assert judged.full_cost is not None
    assert judged.names == [f"lat={i // 4} lon={i % 4}" for i in judged.selected]
    assert apply(result, new, out=tmp_path / "applied.zarr").samples == 40
    assert update(factor, new).features.samples == 100
    for made in (factor, result, tmp_path / "applied.zarr"):
        assert info(made)["options"]["sample_dims"] == ["time"]
    assert open_like(result, new).metadata.name == "air"
    assert open_like(load_factor(factor), grids(40)["sea"]).shape == (40, 12)


def test_what_is_given_counts(stores: tuple[str, str], of_air: Factor, tmp_path: Path) -> None:
    new, factor = stores[1], of_air
    assert open_like(factor, new, variable="sea").metadata.name == "sea"
    deep = str(tmp_path / "deep.zarr")
    grids(50).to_zarr(deep, group="a/b")
    inside = decompose(open_matrix(deep, group="a/b", variable="air", sample_dims="time"), 3)
    assert open_like(inside, deep, variable="sea").shape == (50, 12)
    assert open_like(inside, new).shape == (40, 12)
    assert open_like(factor, new, feature_dims="time").shape == (12, 40)
    with pytest.raises(RequestError, match="no dimension 'tim'"):
        open_like(factor, new, sample_dims="tim")
    with pytest.raises(RequestError, match="`where`"):
        open_like(factor, new, where="nothing > 3")


def test_data_unlike_those_are_opened_as_they_are(of_air: Factor, tmp_path: Path) -> None:
    flat, sea, days, deep, both = (tmp_path / f"{name}.zarr" for name in "abcde")
    xr.Dataset({"x": (("a", "b"), planted(20, 5))}).to_zarr(flat)
    grids(9)[["sea"]].to_zarr(sea)
    grids(9)[["air"]].rename(time="day").to_zarr(days)
    grids(9)[["sea"]].to_zarr(deep, group="june")
    grids(9).to_zarr(both)
    assert open_like(of_air, flat, variable="x").shape == (20, 5)
    assert open_like(of_air, planted(20, 5)).shape == (20, 5)
    june, may = (replace(of_air, located={"group": name, **SAID}) for name in ("june", "may"))
    unnamed = replace(of_air, located={"sample_dims": ["time"]})
    for factor, data, says in (
        (of_air, flat, "no variable 'air'"),
        (of_air, sea, "no variable 'air'"),
        (of_air, days, "no dimension 'time'"),
        (june, sea, "no group 'june'"),
        (june, deep, r"\(group 'june'\) has no variable 'air'"),
        (may, deep, "no group 'may'"),
        (unnamed, both, r"holds 2 tables: air .*, sea"),
        (tmp_path / "nothing.zarr", flat, "nothing.zarr does not exist"),
    ):
        with pytest.raises(RequestError, match=says):
            open_like(factor, data)


def test_a_factor_knows_what_of_its_data_takes_part(tmp_path: Path) -> None:
    def store(name: str, n: int, **coords: object) -> str:
        genes = {"gene": [f"g{i}" for i in range(8)], **coords}
        data = xr.Dataset({"x": (("cell", "gene"), planted(n, 8, seed=n))}, genes)
        data.to_zarr(tmp_path / name)
        return str(tmp_path / name)

    old = store("old.zarr", 90, batch=("cell", np.arange(90) % 3))
    new = store("new.zarr", 60, batch=("cell", np.arange(60) % 3))
    part = {"where": "batch < 2", "exclude_features": "g7"}
    decompose(open_matrix(old, **part), 2, out=tmp_path / "f.zarr")
    factor = load_factor(tmp_path / "f.zarr")
    assert (factor.where, factor.origin) == ("batch < 2", {"source": old})
    select(open_matrix(old, **part), 2, 3, out=tmp_path / "direct.zarr")
    select(old, 2, 3, factor=tmp_path / "f.zarr", out=tmp_path / "known.zarr")
    for group in (None, "all_features"):
        direct, known = (
            xr.open_zarr(tmp_path / f"{name}.zarr", group=group) for name in ("direct", "known")
        )
        xr.testing.assert_identical(direct, known)

    with pytest.raises(RequestError, match=r"60 x 8, that of the data 30 x 8") as caught:
        select(open_matrix(old, where="batch < 1"), 2, 3, factor=factor)
    assert "opened with no other" in caught.value.remedy
    added = update(factor, open_matrix(new, where="batch < 2"))
    assert (added.where, added.origin) == ("batch < 2", {"source": f"{old}, then {new}"})
    assert update(factor, new).where == ""
    with pytest.raises(RequestError, match="the samples have no coordinate batch") as caught:
        select(store("unlike.zarr", 90), 2, 3, factor=factor)
    assert caught.value.code == "bad_condition"


def test_nothing_but_where_the_table_is_is_taken_from_what_was_made(
    stores: tuple[str, str], of_air: Factor
) -> None:
    more = {"features": "@secret", "storage_options": {"endpoint_url": "elsewhere"}, "retries": -1}
    told = replace(of_air, located=of_air.located | more)
    assert open_like(told, stores[1]).provenance.located == of_air.located

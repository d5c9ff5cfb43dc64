"""NetCDF as stores, with all variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from formats.tables import converted
from helpers import planted

from kmufs_stream import RequestError, convert

X = planted(150, 8)


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
def test_netcdf(tmp_path: Path, engine: Any) -> None:
    pytest.importorskip("h5netcdf")
    air = xr.Dataset(
        {
            "air": (("time", "lat", "lon"), planted(60, 12).reshape(60, 3, 4)),
            "mask": (("lat", "lon"), np.arange(12.0).reshape(3, 4)),
        },
        coords={"time": np.datetime64("2001-01-01", "ns") + np.arange(60) * 10**14,
                "lat": [1.0, 2.0, 3.0]},
        attrs={"title": "air"},
    )  # fmt: skip
    packing = {"dtype": "i2", "scale_factor": 0.01, "_FillValue": -9999}
    air.to_netcdf(tmp_path / "x.nc", engine=engine, encoding={"air": packing})
    expected = xr.open_dataset(tmp_path / "x.nc", engine=engine).load()
    found = converted(tmp_path / "x.nc")
    xr.testing.assert_identical(found, expected)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("group", ["", "in/side"])
def test_netcdf_is_known_by_what_it_holds(tmp_path: Path, named: bool, group: str) -> None:
    pytest.importorskip("h5netcdf")
    h5py = pytest.importorskip("h5py")
    air = xr.Dataset(
        {"air": (("time", "lat"), X[:, :3])},
        coords={"time": np.datetime64("2001-01-01", "ns") + np.arange(150) * 10**14,
                "lat": [1.0, 2.0, 3.0]},
    )  # fmt: skip
    path = tmp_path / "x.h5"
    air.to_netcdf(path, engine="h5netcdf", group=group or None)
    if not named:
        with h5py.File(path, "r+") as file:
            del file.attrs["_NCProperties"]
    found = converted(f"{path}::/{group}" if group else path)
    xr.testing.assert_identical(found, air)
    np.testing.assert_array_equal(  # a dataset asked for is just that
        converted(f"{path}::/{group}/air".replace("//", "/"), overwrite=True)["data"], X[:, :3]
    )


def test_netcdf_whose_variables_are_in_a_group(tmp_path: Path) -> None:
    pytest.importorskip("h5netcdf")
    inner = xr.Dataset({"air": (("time", "place"), X)})
    inner.to_netcdf(tmp_path / "x.nc", group="in/side", engine="h5netcdf")
    with pytest.raises(RequestError, match="no variables") as raised:
        convert(tmp_path / "x.nc", tmp_path / "out.zarr")
    assert f"{tmp_path}/x.nc::in/side" in raised.value.remedy
    found = converted(f"{tmp_path}/x.nc::in/side")
    np.testing.assert_array_equal(found["air"], X)

"""NetCDF as stores, with all variables."""

from __future__ import annotations

import gc
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
from formats.tables import X, converted, refused

AIR = xr.Dataset(
    {
        "air": (("time", "lat", "lon"), X.reshape(150, 3, 2)),
        "mask": (("lat", "lon"), np.arange(6.0).reshape(3, 2)),
    },
    coords={
        "time": np.datetime64("2001-01-01", "ns") + np.arange(150) * 10**14,
        "lat": [1.0, 2.0, 3.0],
        "lon": [0.0, 5.0],
    },
    attrs={"title": "air"},
)


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
def test_netcdf(tmp_path: Path, engine: Any) -> None:
    packing = {"dtype": "i2", "scale_factor": 0.01, "_FillValue": -9999}
    air = AIR.drop_vars("lon")
    air.to_netcdf(tmp_path / "x.nc", engine=engine, encoding={"air": packing})
    expected = xr.open_dataset(tmp_path / "x.nc", engine=engine).load()
    xr.testing.assert_identical(converted(tmp_path / "x.nc"), expected)


def test_whole_numbers_may_be_said_to_be_filled_with_nan(tmp_path: Path) -> None:
    whole = xr.Dataset(
        {"air": (("time", "lat"), np.arange(60, dtype="i2").reshape(20, 3), {"add_offset": 0.5})},
        coords={"time": ("time", np.arange(20))},
    )
    whole.to_netcdf(tmp_path / "x.nc", engine="h5netcdf")
    with h5py.File(tmp_path / "x.nc", "r+") as file:
        file["air"].attrs["_FillValue"] = file["time"].attrs["_FillValue"] = np.nan
    found = converted(tmp_path / "x.nc")
    np.testing.assert_array_equal(found["air"], np.arange(60).reshape(20, 3) + 0.5)
    np.testing.assert_array_equal(found["time"], np.arange(20))


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("group", ["", "in/side"])
def test_netcdf_is_known_by_what_it_holds(tmp_path: Path, named: bool, group: str) -> None:
    path = tmp_path / "x.h5"
    AIR.to_netcdf(path, engine="h5netcdf", group=group or None)
    if not named:
        with h5py.File(path, "r+") as file:
            del file.attrs["_NCProperties"]
    if group and named:
        refused(path, f"no variables.*{path}::in/side")
    found = converted(f"{path}::{group}" if group else path)
    xr.testing.assert_identical(found, AIR)
    bare = converted(f"{path}::/{group}/air".replace("//", "/"))  # a dataset asked for is just that
    np.testing.assert_array_equal(bare["data"], AIR["air"])


@pytest.mark.filterwarnings("ignore")  # xarray's, of what it leaves open
def test_damage_is_told_of_the_file_that_is_read(tmp_path: Path) -> None:
    path, checked = tmp_path / "x.nc", {"air": {"fletcher32": True}}
    xr.Dataset({"air": (("time", "lat"), X)}).to_netcdf(path, engine="h5netcdf", encoding=checked)
    whole = path.read_bytes()
    places = [found.start() for found in re.finditer(b"OHDR", whole)]
    for at in (0, *places, whole.index(X[:1].tobytes())):
        path.write_bytes(whole[:at] + bytes(8) + whole[at + 8 :])
        assert refused(path, r"x\.nc cannot be read").code == "unreadable"
    gc.collect()  # h5netcdf's files that were never open complain when they are

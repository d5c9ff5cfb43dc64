"""Kinds of stores as their users write them: the table and the labels that are read of each.

tests/cli/test_every_kind.py takes others through the command line.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
import zarr.codecs.numcodecs as registered
from helpers import planted, write_bare
from sources.checks import values

from kmufs_stream import open_matrix

X = planted(120, 20)
COUNTS = np.abs(np.rint(X * 10)).clip(0, 120)
GAPS = np.where(np.random.default_rng(0).random(X.shape) < 0.05, np.nan, X)
TIMES = np.datetime64("2001-01-01", "ns") + np.arange(120) * np.timedelta64(6, "h")
LAT, LON = np.linspace(10, 40, 4), np.linspace(-2, 2, 5)
PLACES = [f"lat={a:g} lon={b:g}" for a in LAT for b in LON]
NUMBERS = [f"lat={i} lon={j}" for i in range(4) for j in range(5)]
GENES = [f"g{i}" for i in range(20)]
SENSORS = [f"s{i:02}" for i in range(20)]
BY_TIME: dict[str, Any] = {"sample_dims": "time"}
SIDE: dict[str, Any] = {"features_from_variables": True}
BESIDE = {"note": ("few", np.zeros(3)), "map": (("a", "b"), np.zeros((2, 2)))}
LONGER = {f"z{i}": ("t", np.arange(9)) for i in range(30)}


def grid() -> xr.Dataset:
    """A field on a grid, with the bounds of its latitudes."""
    coords = {"time": TIMES, "lat": ("lat", LAT, {"bounds": "lat_bnds"}), "lon": LON}
    air = (("time", "lat", "lon"), X.reshape(120, 4, 5))
    return xr.Dataset({"air": air, "lat_bnds": (("lat", "nv"), np.zeros((4, 2)))}, coords)


def sensors(columns: Any = X, **beside: Any) -> xr.Dataset:
    """Sensors as variables along time."""
    named = zip(SENSORS, columns.T, strict=True)
    series = {name: ("time", column) for name, column in named}
    return xr.Dataset({**series, **beside}, {"time": TIMES})


def in_shards(path: Path) -> None:
    grid().to_zarr(path, encoding={"air": {"chunks": (10, 2, 5), "shards": (40, 4, 5)}})


def many_dtypes(path: Path) -> None:
    dtypes = dict(zip(SENSORS, ["i2", "f4", "f8", "i4", "u1"] * 4, strict=True))
    sensors(COUNTS).astype("f8").map(lambda s: s.astype(dtypes[str(s.name)])).to_zarr(path)


def packed_apart(path: Path) -> None:
    """Each sensor in its own way."""
    packing = {"dtype": "i4", "scale_factor": 0.005, "_FillValue": -(2**31)}
    encoding = {name: {**packing, "add_offset": i} for i, name in enumerate(SENSORS)}
    encoding["s03"]["scale_factor"] = 0.01
    sensors(np.round(X, 2)).to_zarr(path, encoding=encoding)


def bands(path: Path) -> None:
    names = [f"B{i:02}" for i in range(20)]
    scene = xr.DataArray(X.reshape(10, 12, 20), {"band": names}, ("y", "x", "band"))
    scene.to_dataset("band").to_zarr(path)


def missing_value(path: Path) -> None:
    encoding = {"x": {"dtype": "f8", "_FillValue": -99.0, "missing_value": -99.0}}
    xr.Dataset({"x": (("cell", "gene"), GAPS)}).to_zarr(path, encoding=encoding)


def zipped_by_a_program(path: Path) -> None:
    folder = write_bare(path.with_name("folder"), X, chunks=(30, 20), zarr_format=2)
    shutil.move(shutil.make_archive(str(folder), "zip", folder), path)


def tree(path: Path) -> None:
    """A DataTree whose child inherits the coordinates of its parent."""
    root = xr.Dataset(coords={"gene": GENES})
    child = xr.Dataset({"counts": (("cell", "gene"), X)})
    xr.DataTree.from_dict({"/": root, "/rna/raw": child}).to_zarr(path)


def nczarr(path: Path) -> None:
    """The metadata that netCDF-C leaves: dimension references, no _ARRAY_DIMENSIONS."""
    grid().drop_vars("lat_bnds").to_zarr(path, zarr_format=2, consolidated=False)
    shapes = {}
    for name in ("air", "time", "lat", "lon"):
        attrs = json.loads((path / name / ".zattrs").read_text())
        dims = attrs.pop("_ARRAY_DIMENSIONS")
        (path / name / ".zattrs").write_text(json.dumps(attrs))
        meta = json.loads((path / name / ".zarray").read_text())
        shapes[name] = meta["shape"][0]
        meta["_NCZARR_ARRAY"] = {"dimrefs": [f"/{d}" for d in dims], "storage": "chunked"}
        (path / name / ".zarray").write_text(json.dumps(meta))
    group = {"zarr_format": 2, "_NCZARR_GROUP": {"dims": shapes, "vars": list(shapes)}}
    (path / ".zgroup").write_text(json.dumps(group))


@pytest.mark.filterwarnings("ignore:Object at")
@pytest.mark.parametrize(
    ("write", "options", "table", "labels"),
    [
        (in_shards, BY_TIME, X, PLACES),
        (lambda path: grid().drop_vars(["lat", "lon", "time"]).to_zarr(path), BY_TIME, X, NUMBERS),
        (nczarr, BY_TIME, X, PLACES),
        (lambda path: sensors(**BESIDE).to_zarr(path, zarr_format=2), SIDE, X, SENSORS),
        (lambda path: sensors(**LONGER).to_zarr(path), {**SIDE, **BY_TIME}, X, SENSORS),
        (many_dtypes, SIDE, COUNTS, SENSORS),
        (packed_apart, SIDE, np.round(X, 2), SENSORS),
        (bands, {**SIDE, "sample_dims": ["y", "x"]}, X, None),
        (missing_value, {}, GAPS, None),
        (zipped_by_a_program, {}, X, None),
        (tree, {"group": "rna/raw"}, X, GENES),
    ],
)
def test_the_table_that_is_meant_is_read(
    write: Callable[[Path], object],
    options: dict[str, Any],
    table: Any,
    labels: list[str] | None,
    tmp_path: Path,
) -> None:
    path = tmp_path / ("data.zarr.zip" if write is zipped_by_a_program else "data.zarr")
    write(path)
    matrix = open_matrix(path, **options)
    np.testing.assert_allclose(values(matrix), table, rtol=0, atol=1e-9)
    if labels is not None:
        assert matrix.labels is not None
        assert matrix.labels.tolist() == labels


CODECS: dict[tuple[int, str], list[Any]] = {
    (2, "compressors"): [numcodecs.BZ2(3), numcodecs.LZ4(), numcodecs.Blosc("lz4")],
    (2, "filters"): [numcodecs.Delta("f8"), numcodecs.Shuffle(8), numcodecs.Fletcher32()],
    (3, "compressors"): [zarr.codecs.Crc32cCodec(), registered.LZ4(), registered.BZ2()],
    (3, "filters"): [registered.Delta(dtype="<f8"), zarr.codecs.TransposeCodec(order=(1, 0))],
}


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
@pytest.mark.parametrize(("zarr_format", "role"), CODECS)
def test_any_codec_is_decoded(zarr_format: int, role: str, tmp_path: Path) -> None:
    for number, codec in enumerate(CODECS[zarr_format, role]):
        options = {"zarr_format": zarr_format, "chunks": (50, 7), role: [codec]}
        path = write_bare(tmp_path / str(number), X, **options)
        np.testing.assert_allclose(values(open_matrix(path)), X, atol=1e-6, err_msg=str(codec))

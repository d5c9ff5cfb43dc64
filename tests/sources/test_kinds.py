"""One row per kind of store, as its users write it: the table and the labels that are read of it.

tests/cli/test_every_kind.py takes ten of them through the command line.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
import zarr.codecs.numcodecs as registered
from helpers import planted, write_bare

from kmufs_stream import RequestError, open_matrix
from kmufs_stream.sources.names import plain

X = planted(120, 20)
COUNTS = np.abs(np.rint(X * 10)).clip(0, 120)
CUBE = X.reshape(120, 4, 5)
SCENE = X.reshape(10, 12, 20)
TIMES = np.datetime64("2001-01-01", "ns") + np.arange(120) * np.timedelta64(6, "h")
LAT, LON = np.linspace(10, 40, 4), np.linspace(-2, 2, 5)
JOINED = [f"lat={a:g} lon={b:g}" for a in LAT for b in LON]
GENES = [f"g{i}" for i in range(20)]
BY_TIME: dict[str, Any] = {"sample_dims": "time"}
SIDE: dict[str, Any] = {"features_from_variables": True}

Write = Callable[[Path], object]


@dataclass(frozen=True)
class Kind:
    """A store, how it is opened, and the table that this means."""

    name: str
    write: Write
    options: dict[str, Any] = field(default_factory=dict)
    table: Any = None  # X
    labels: Sequence[object] | None = None
    tolerance: float = 0.0


def stored(data: Any, zarr_format: int = 3, **options: Any) -> Write:
    """A store written by xarray."""
    whole = data if isinstance(data, xr.Dataset) else data.to_dataset(name=data.name or "air")
    return lambda path: whole.to_zarr(path, zarr_format=zarr_format, **options)


def encoded(data: xr.DataArray, zarr_format: int = 3, **encoding: Any) -> Write:
    """A store written by xarray with this encoding of its variable."""
    return stored(data, zarr_format, encoding={data.name: encoding})


def bare(values: Any, **options: Any) -> Write:
    """A store that is one array."""
    return lambda path: write_bare(path, values, **options)


def grid(values: Any = CUBE, dims: Sequence[str] = ("time", "lat", "lon")) -> xr.DataArray:
    """A field on a grid, as climate people have it."""
    coords = {"time": TIMES, "lat": LAT, "lon": LON}
    return xr.DataArray(values, dims=dims, coords=coords, name="air")


def cells(**coords: Any) -> xr.DataArray:
    """A table with names, as single-cell people have it."""
    return xr.DataArray(X, {"gene": GENES, **coords}, ("cell", "gene"), name="counts")


def scene(values: Any = SCENE, dims: Sequence[str] = ("y", "x", "band")) -> xr.DataArray:
    """An image without coordinates."""
    return xr.DataArray(values, dims=dims, name="b")


def series(columns: Any = X, **more: Any) -> xr.Dataset:
    """Sensors as variables along time."""
    one = {f"s{i:02}": ("time", column) for i, column in enumerate(columns.T)}
    return xr.Dataset({**one, **more}, coords={"time": TIMES})


def mixed() -> xr.Dataset:
    """Sensors of several dtypes."""
    dtypes = ["i2", "f4", "f8", "i4", "u1"]
    columns = COUNTS.T
    return xr.Dataset(
        {f"s{i:02}": ("time", c.astype(dtypes[i % 5])) for i, c in enumerate(columns)}
    )


def packed_apart(path: Path) -> None:
    """Sensors that are packed each in its own way."""
    encoding = {
        f"s{i:02}": {
            "dtype": "i4",
            "scale_factor": [0.01, 0.005][i % 2],
            "add_offset": i,
            "_FillValue": -(2**31),
        }
        for i in range(20)
    }
    stored(series(np.round(X, 2)), encoding=encoding)(path)


def zipped(zarr_format: int) -> Write:
    """A store in a zip file, written through zarr."""

    def write(path: Path) -> None:
        form: Any = {"zarr_format": zarr_format, "consolidated": False}
        with zarr.storage.ZipStore(path, mode="w") as store:
            cells().to_dataset().to_zarr(store, **form)

    return write


def packed_folder(path: Path) -> None:
    """A folder packed by a zip program."""
    folder = write_bare(path.with_name("folder.zarr"), X, chunks=(30, 20))
    shutil.move(shutil.make_archive(str(folder), "zip", folder), path)


def nczarr(path: Path) -> None:
    """The metadata that netCDF-C leaves: dimension references, no _ARRAY_DIMENSIONS."""
    grid().to_dataset().to_zarr(path, zarr_format=2, consolidated=False)
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


def tree(path: Path) -> None:
    """A DataTree whose child inherits the coordinates of its parent."""
    root = xr.Dataset(coords={"gene": GENES})
    child = xr.Dataset({"counts": (("cell", "gene"), X)})
    xr.DataTree.from_dict({"/": root, "/rna/raw": child}).to_zarr(path)


MASKED = np.where(np.arange(20) % 6 == 1, np.nan, np.round(X, 2))
GAPS = np.where(np.random.default_rng(0).random(X.shape) < 0.05, np.nan, X)
INTEGERS = np.clip(np.rint(X * 8 + 60), 0, 120).astype("i2")
I = np.arange(120)  # noqa: E741
DEPTH = np.linspace(0, 1, 120)
PACKED = {"dtype": "i2", "scale_factor": 0.01, "_FillValue": -9999}
EDGES = {"lat_bnds": (("lat", "nv"), np.zeros((4, 2)))}
WITH_EDGES = grid().assign_coords(lat=("lat", LAT, {"bounds": "lat_bnds"})).to_dataset()
CURVED = {"lat": (("y", "x"), np.arange(20.0).reshape(4, 5))}
PLACES = scene().assign_coords(y=np.arange(10), x=np.arange(12))
BANDS = PLACES.to_dataset("band").rename({i: f"B{i:02}" for i in range(20)})
OTHERS = {"note": ("few", np.zeros(3)), "map": (("a", "b"), np.zeros((2, 2)))}
LONGER = {f"z{i}": ("t", I[:9]) for i in range(30)}
TWO_LINES = {"a": ("s", I), "b": ("s", I), "c": ("t", I[:9]), "d": ("t", I[:9])}

KINDS = [
    Kind("in shards", encoded(grid(), chunks=(10, 2, 5), shards=(40, 4, 5)), BY_TIME, X, JOINED),
    Kind(
        "features in another order",
        stored(grid()),
        {"feature_dims": ["lon", "lat"]},
        CUBE.transpose(0, 2, 1).reshape(120, 20),
        [f"lon={b:g} lat={a:g}" for b in LON for a in LAT],
    ),
    Kind(
        "bands before places",
        stored(scene(X.T.reshape(20, 10, 12), ("band", "y", "x"))),
        {"feature_dims": "band"},
    ),
    Kind(
        "x before y",
        encoded(scene(), chunks=(4, 5, 7)),
        {"sample_dims": ["x", "y"]},
        SCENE.transpose(1, 0, 2).reshape(120, 20),
    ),
    Kind(
        "without coordinates",
        stored(grid().drop_vars(["lat", "lon", "time"])),
        BY_TIME,
        X,
        [f"lat={i} lon={j}" for i in range(4) for j in range(5)],
    ),
    Kind("F order", bare(CUBE, zarr_format=2, order="F"), {"sample_dims": "dim_0"}),
    Kind(
        "a packed sea mask",
        encoded(grid(MASKED.reshape(CUBE.shape)), 2, **PACKED),
        BY_TIME,
        MASKED,
        JOINED,
        1e-6,
    ),
    Kind(
        "curvilinear",
        stored(xr.DataArray(CUBE, CURVED, ("time", "y", "x"), name="air")),
        BY_TIME,
    ),
    Kind("beside its bounds", stored(WITH_EDGES.assign(EDGES)), BY_TIME, X, JOINED),
    Kind("a table beside a cube", stored(grid().to_dataset().assign(table=(("s", "f"), X * 2))),
         {}, X * 2),
    Kind("variables, format 2", stored(series(), 2), SIDE, X, [f"s{i:02}" for i in range(20)]),
    Kind("variables of many dtypes", stored(mixed()), SIDE, COUNTS),
    Kind(
        "variables by pattern",
        stored(series(flag=("time", np.ones(120)))),
        {**SIDE, "features": ["s0*", "s15"], "exclude_features": ["s03"]},
        X[:, [0, 1, 2, 4, 5, 6, 7, 8, 9, 15]],
    ),
    Kind(
        "bands as variables",
        stored(BANDS),
        {**SIDE, "sample_dims": ["x", "y"]},
        SCENE.transpose(1, 0, 2).reshape(120, 20),
    ),
    Kind("variables packed apart", packed_apart, SIDE, np.round(X, 2), None, 1e-9),
    Kind("variables beside others", stored(series(**OTHERS)), SIDE),
    Kind("variables of a dimension", stored(series(**LONGER)), {**SIDE, **BY_TIME}),
    Kind(
        "missing_value",
        encoded(cells().copy(data=GAPS), dtype="f8", _FillValue=-99.0, missing_value=-99.0),
        {},
        GAPS,
    ),
    Kind("a fill value that is a value", bare(INTEGERS, fill_value=60), {}, INTEGERS),
    Kind(
        "some samples of format 2",
        encoded(cells(batch=("cell", [f"b{i % 3}" for i in I]), depth=("cell", DEPTH)), 2,
                chunks=(7, 6)),
        {"where": "batch in ['b0', 'b2'] and depth > 0.25"},
        X[(I % 3 != 1) & (DEPTH > 0.25)],
    ),
    Kind(
        "some places of an image",
        stored(PLACES),
        {"sample_dims": ["y", "x"], "where": "y > 2 and x != 5"},
        X[(I // 12 > 2) & (I % 12 != 5)],
    ),
    Kind("labels that are objects", stored(cells(gene=np.array(GENES, object))), {}, X, GENES),
    Kind("zipped, format 2", zipped(2), {}, X, GENES),
    Kind("zipped, format 3", zipped(3), {}, X, GENES),
    Kind("zipped by a program", packed_folder),
    Kind("a tree", tree, {"group": "rna/raw"}, X, GENES),
    Kind("nczarr", nczarr, BY_TIME, X, JOINED),
]  # fmt: skip

CODECS: dict[int, list[dict[str, Any]]] = {
    2: [
        *({"compressors": codec} for codec in [
            None, numcodecs.Zlib(3), numcodecs.BZ2(3), numcodecs.LZ4(), numcodecs.Blosc("lz4"),
        ]),
        *({"filters": [codec]} for codec in [
            numcodecs.Delta("f8"), numcodecs.Shuffle(8), numcodecs.FixedScaleOffset(0, 1e6, "f8"),
            numcodecs.Fletcher32(),
        ]),
    ],
    3: [
        *({"compressors": codec} for codec in [
            None, zarr.codecs.GzipCodec(), zarr.codecs.BloscCodec(), zarr.codecs.Crc32cCodec(),
            registered.LZ4(), registered.BZ2(),
        ]),
        *({"filters": [codec]} for codec in [
            registered.Delta(dtype="<f8"), registered.BitRound(keepbits=45),
            zarr.codecs.TransposeCodec(order=(1, 0)),
        ]),
    ],
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Object at", "ignore:Duplicate name")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name.replace(" ", "-"))
def test_the_table_that_is_meant_is_read(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / ("data.zarr.zip" if "zipped" in kind.name else "data.zarr")
    kind.write(path)
    matrix = open_matrix(path, **kind.options)
    read = matrix.rows.read(0, matrix.shape[0])
    if matrix.asked is not None:
        read = read[:, matrix.asked]
    expected = X if kind.table is None else kind.table
    np.testing.assert_allclose(read, expected, rtol=0, atol=kind.tolerance)
    if kind.labels is not None:
        assert matrix.labels is not None
        assert [plain(label) for label in matrix.labels] == kind.labels


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
@pytest.mark.parametrize("zarr_format", CODECS)
def test_any_codec_is_decoded(zarr_format: int, tmp_path: Path) -> None:
    for number, codec in enumerate(CODECS[zarr_format]):
        path = write_bare(
            tmp_path / str(number), X, zarr_format=zarr_format, chunks=(50, 7), **codec
        )
        read = open_matrix(path).rows.read(0, 120)
        np.testing.assert_allclose(read, X, rtol=0, atol=1e-6, err_msg=str(codec))


@pytest.mark.parametrize(
    ("write", "options", "code"),
    [
        (stored(grid()), {"sample_dims": "time", "feature_dims": "lat"}, "which_dimensions"),
        (stored(grid().to_dataset().assign(b=grid())), BY_TIME, "ambiguous_variable"),
        (stored(xr.Dataset(TWO_LINES)), SIDE, "which_dimensions"),
        (stored(xr.Dataset({"a": ("s", I)})), SIDE, "no_table"),
        (bare(X), SIDE, "unknown_variable"),
        (stored(series()), {}, "no_table"),
        (tree, {}, "no_table"),
    ],
)
def test_no_table_is_guessed(
    write: Write, options: dict[str, Any], code: str, tmp_path: Path
) -> None:
    write(tmp_path / "data.zarr")
    with pytest.raises(RequestError) as caught:
        open_matrix(tmp_path / "data.zarr", **options)
    assert caught.value.code == code
    assert caught.value.remedy

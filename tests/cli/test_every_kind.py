"""One row per kind of input, as its users write it: the right selection, or what to type instead.

Every row goes through the command line; its answer is compared with whole-array NumPy on the
values that xarray or NumPy hold.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
import zarr.codecs.numcodecs
from commands import Run
from helpers import planted, write_bare
from reference import assert_optimal, reference

Cli = Callable[..., Run]
Array = Any
K, H = 3, 4
X = planted(120, 20)
CUBE = X.reshape(120, 4, 5)
TIMES = np.datetime64("2001-01-01", "ns") + np.arange(120) * np.timedelta64(6, "h")
LAT, LON = np.linspace(10, 40, 4), np.linspace(-2, 2, 5)
MASKED = np.where(np.arange(20) % 6 == 1, np.nan, X)
GAPS = X.copy()
GAPS[[3, 40, 77], [2, 2, 9]] = np.nan


@dataclass(frozen=True)
class Kind:
    """A store, the options it takes, and the table that these mean."""

    name: str
    write: Callable[[Path], object]
    options: tuple[object, ...] = ()
    table: Array = None
    labels: Sequence[str] | None = None
    features: Sequence[int] | None = None
    code: str | None = None
    remedy: str = ""
    tolerance: float = 1e-9


def xarray_store(data: Any, fmt: int = 3, **options: Any) -> Callable[[Path], object]:
    """A store written by xarray."""

    def write(path: Path) -> object:
        whole = data if isinstance(data, xr.Dataset) else data.to_dataset(name=data.name or "air")
        return whole.to_zarr(path, **{"zarr_format": fmt, "consolidated": True, **options})

    return write


def bare(values: Array, **options: Any) -> Callable[[Path], object]:
    """A store that is one array, written by zarr."""
    return lambda path: write_bare(path, np.asarray(values), **options)


def registered(name: str, where: str = "compressors", **options: Any) -> Callable[[Path], object]:
    """One array encoded by a codec that Zarr 3 knows by its registration only."""

    def write(path: Path) -> object:
        codec = getattr(zarr.codecs.numcodecs, name)(**options)
        return write_bare(path, X, **{where: codec})

    return write


def grid(values: Array = CUBE, dims: Sequence[str] = ("time", "lat", "lon")) -> xr.DataArray:
    """A field on a grid, as climate people have it."""
    coords = {d: c for d, c in {"time": TIMES, "lat": LAT, "lon": LON}.items() if d in dims}
    return xr.DataArray(values, dims=dims, coords=coords, name="air", attrs={"units": "K"})


def cells(values: Array = X, **coords: Any) -> xr.DataArray:
    """A table with names, as single-cell people have it."""
    names = {"gene": [f"g{i}" for i in range(values.shape[1])], **coords}
    return xr.DataArray(values, dims=("cell", "gene"), coords=names, name="counts")


def encoded(data: xr.DataArray, fmt: int = 3, **encoding: Any) -> Callable[[Path], object]:
    """A store written by xarray with this encoding of its variable."""
    return xarray_store(data, fmt, encoding={data.name: encoding})


def zipped(write: Callable[[Path], object], fmt: int) -> Callable[[Path], object]:
    """A store in a zip file, written through zarr."""

    def make(path: Path) -> None:
        with zarr.storage.ZipStore(path, mode="w") as store:
            cells().to_dataset().to_zarr(store, zarr_format=fmt, consolidated=False)  # type: ignore[call-overload]

    return make


def packed_zip(path: Path) -> None:
    """A folder packed by a zip program."""
    folder = path.with_name("folder.zarr")
    write_bare(folder, X, chunks=(30, 20))
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
    root = xr.Dataset(coords={"gene": [f"g{i}" for i in range(20)]})
    child = xr.Dataset({"counts": (("cell", "gene"), X)})
    xr.DataTree.from_dict({"/": root, "/rna/raw": child}).to_zarr(path)


def beside(**more: Any) -> xr.Dataset:
    """The grid beside other variables."""
    return grid().to_dataset().assign(more)


def series(columns: Array = X, **more: Any) -> xr.Dataset:
    """Sensors as variables along time."""
    one = {f"s{i:02}": ("time", column) for i, column in enumerate(columns.T)}
    return xr.Dataset({**one, **more}, coords={"time": TIMES})


def bands(dims: Sequence[str] = ("y", "x")) -> xr.Dataset:
    """Bands of an image as variables."""
    shape = (10, 12)
    one = {f"B{i:02}": (dims, column.reshape(shape)) for i, column in enumerate(X.T)}
    return xr.Dataset(one, coords={"y": np.arange(10.0), "x": np.arange(12.0)})


def mixed() -> xr.Dataset:
    """Sensors of several dtypes."""
    whole = series(np.rint(X * 10))
    kinds = ["i2", "f4", "f8", "i4", "u1"]
    return whole.assign(
        {
            n: (abs(v) if i % 5 == 4 else v).astype(kinds[i % 5])
            for i, (n, v) in enumerate(whole.data_vars.items())
        }
    )


def table_of(dataset: xr.Dataset) -> Array:
    """A dataset's variables as columns."""
    return np.stack([v.values.ravel() for v in dataset.data_vars.values()], axis=1)


def labels_file(path: Path) -> None:
    """A table, and a list of genes beside it."""
    xarray_store(cells())(path)
    path.with_name("genes.txt").write_text("g3\n g7 \n\ng9\ng11\ng12\n")


def with_batches() -> xr.DataArray:
    """Cells with all kinds of coordinates."""
    return cells(
        batch=("cell", np.array([f"b{i % 3}" for i in range(120)])),
        good=("cell", np.arange(120) % 4 > 0),
        depth=("cell", np.linspace(0, 1, 120)),
        when=("cell", TIMES),
    )


I = np.arange(120)  # noqa: E741
UNEVEN = X * np.where(np.arange(20) < 5, 1e-6, 1.0)
SPARSE = np.where((np.arange(20) % 4 == 0) & (I[:, None] % 10 > 0), 0.0, np.abs(X))
JOINED = [f"lat={a:g} lon={b:g}" for a in LAT for b in LON]
BY_TIME = ("--sample-dims", "time")
SIDE = ("--features-from-variables",)
INTEGERS = np.clip(np.rint(X * 8 + 60), 0, 120)
WITHOUT = [i for i in range(20) if i % 6 != 1]

STACKED = [
    Kind("time x lat x lon, format 2", xarray_store(grid(), 2), BY_TIME, X, JOINED),
    Kind("time x lat x lon, format 3", xarray_store(grid()), BY_TIME, X, JOINED),
    Kind("in chunks of all kinds", encoded(grid(), chunks=(7, 3, 2)), BY_TIME, X, JOINED),
    Kind(
        "in shards",
        encoded(grid(), chunks=(10, 2, 5), shards=(40, 4, 5)),
        BY_TIME,
        X,
        JOINED,
    ),
    Kind(
        "lat x lon x time",
        xarray_store(grid().transpose("lat", "lon", "time")),
        BY_TIME,
        X,
        JOINED,
    ),
    Kind("by its features", xarray_store(grid()), ("--feature-dims", "lat,lon"), X, JOINED),
    Kind(
        "features in another order",
        xarray_store(grid()),
        ("--feature-dims", "lon, lat"),
        CUBE.transpose(0, 2, 1).reshape(120, 20),
        [f"lon={b:g} lat={a:g}" for b in LON for a in LAT],
    ),
    Kind(
        "band x y x x",
        xarray_store(xr.DataArray(X.T.reshape(20, 10, 12), dims=("band", "y", "x"), name="b")),
        ("--feature-dims", "band"),
        X,
    ),
    Kind(
        "y x x x band in tiles",
        encoded(
            xr.DataArray(X.reshape(10, 12, 20), dims=("y", "x", "band"), name="b"),
            chunks=(4, 5, 20),
        ),
        ("--sample-dims", "y,x"),
        X,
    ),
    Kind(
        "x before y",
        encoded(
            xr.DataArray(X.reshape(10, 12, 20), dims=("y", "x", "band"), name="b"),
            chunks=(4, 5, 7),
        ),
        ("--sample-dims", "x,y"),
        X.reshape(10, 12, 20).transpose(1, 0, 2).reshape(120, 20),
    ),
    Kind(
        "time x y x x x band",
        encoded(
            xr.DataArray(X.reshape(6, 4, 5, 20), dims=("time", "y", "x", "band"), name="b"),
            chunks=(1, 3, 5, 20),
        ),
        ("--feature-dims", "band"),
        X,
    ),
    Kind(
        "time x level x lat x lon",
        xarray_store(
            xr.DataArray(X.reshape(120, 2, 2, 5), dims=("time", "level", "lat", "lon"), name="b")
        ),
        BY_TIME,
        X,
    ),
    Kind(
        "without coordinates",
        xarray_store(grid().drop_vars(["lat", "lon", "time"])),
        BY_TIME,
        X,
        [f"lat={i} lon={j}" for i in range(4) for j in range(5)],
    ),
    Kind("bare and 3-d", bare(CUBE), ("--sample-dims", "dim_0"), X),
    Kind("F order", bare(CUBE, zarr_format=2, order="F"), ("--sample-dims", "dim_0"), X),
    Kind(
        "a sea mask",
        xarray_store(grid(MASKED.reshape(CUBE.shape))),
        BY_TIME,
        X[:, WITHOUT],
        features=WITHOUT,
    ),
    Kind(
        "a packed sea mask",
        encoded(
            grid(np.round(MASKED, 2).reshape(CUBE.shape)),
            2,
            dtype="i2",
            scale_factor=0.01,
            _FillValue=-9999,
        ),
        BY_TIME,
        np.round(X, 2)[:, WITHOUT],
        features=WITHOUT,
        tolerance=1e-6,
    ),
    Kind(
        "curvilinear",
        xarray_store(
            xr.DataArray(
                CUBE,
                dims=("time", "y", "x"),
                coords={"lat": (("y", "x"), np.arange(20.0).reshape(4, 5))},
                name="air",
            )
        ),
        BY_TIME,
        X,
    ),
    Kind(
        "beside its bounds",
        xarray_store(
            beside(lat_bnds=(("lat", "nv"), np.zeros((4, 2)))).assign_coords(
                lat=("lat", LAT, {"bounds": "lat_bnds"})
            )
        ),
        BY_TIME,
        X,
        JOINED,
    ),
    Kind(
        "a table beside a cube",
        xarray_store(beside(table=(("cell", "gene"), np.ascontiguousarray(X * 2)))),
        (),
        X,
    ),
    Kind(
        "3-d and nothing said",
        xarray_store(grid()),
        code="which_dimensions",
        remedy="--sample-dims time",
    ),
    Kind(
        "an unknown dimension",
        xarray_store(grid()),
        ("--sample-dims", "tim"),
        code="unknown_dimension",
        remedy="'time', 'lat', 'lon'",
    ),
    Kind(
        "a dimension left over",
        xarray_store(grid()),
        ("--sample-dims", "time", "--feature-dims", "lat"),
        code="which_dimensions",
        remedy="naming those of one is enough",
    ),
    Kind(
        "two cubes",
        xarray_store(beside(other=(("time", "lat", "lon"), CUBE))),
        BY_TIME,
        code="ambiguous_variable",
        remedy="--variable air",
    ),
]

VARIABLES = [
    Kind("variables", xarray_store(series()), SIDE, X, [f"s{i:02}" for i in range(20)]),
    Kind("variables, format 2", xarray_store(series(), 2), SIDE, X),
    Kind("variables of many dtypes", xarray_store(mixed()), SIDE, table_of(mixed())),
    Kind(
        "variables with patterns",
        xarray_store(series(flag=("time", np.ones(120)))),
        (*SIDE, "--features", "s0*", "--features", "s15", "--exclude-features", "s03"),
        X[:, [0, 1, 2, 4, 5, 6, 7, 8, 9, 15]],
        features=[i + 1 for i in (0, 1, 2, 4, 5, 6, 7, 8, 9, 15)],
    ),
    Kind("bands as variables", xarray_store(bands()), SIDE, X),
    Kind(
        "bands as variables, by columns",
        xarray_store(bands()),
        (*SIDE, "--sample-dims", "x,y"),
        X.reshape(10, 12, 20).transpose(1, 0, 2).reshape(120, 20),
    ),
    Kind(
        "variables packed each its own way",
        xarray_store(
            series(np.round(X, 2)),
            encoding={
                f"s{i:02}": {
                    "dtype": "i4",
                    "scale_factor": [0.01, 0.005][i % 2],
                    "add_offset": i,
                    "_FillValue": -(2**31),
                }
                for i in range(20)
            },
        ),
        SIDE,
        np.round(X, 2),
    ),
    Kind(
        "variables beside others",
        xarray_store(series(note=("few", np.zeros(3)), map=(("a", "b"), np.zeros((2, 2))))),
        SIDE,
        X,
    ),
    Kind(
        "variables along two dimensions",
        xarray_store(
            xr.Dataset({"a": ("s", I), "b": ("s", I), "c": ("t", I[:9]), "d": ("t", I[:9])})
        ),
        SIDE,
        code="which_dimensions",
        remedy="--sample-dims",
    ),
    Kind(
        "variables along the dimension named",
        xarray_store(xr.merge([series(), xr.Dataset({f"z{i}": ("t", I[:9]) for i in range(30)})])),
        (*SIDE, *BY_TIME),
        X,
    ),
    Kind(
        "no variables",
        xarray_store(xr.Dataset({"a": ("s", I)})),
        SIDE,
        code="no_table",
        remedy="--features-from-variables",
    ),
    Kind("variables of an array", bare(X), SIDE, code="unknown_variable", remedy="Leave it out"),
    Kind(
        "only series",
        xarray_store(series()),
        code="no_table",
        remedy="--features-from-variables",
    ),
]

MISSING = [
    Kind("missing", bare(GAPS), code="not_finite", remedy="--missing mean"),
    Kind(
        "missing, drop features",
        bare(GAPS),
        ("--missing", "drop-features"),
        np.delete(X, [2, 9], 1),
        features=[i for i in range(20) if i not in (2, 9)],
    ),
    Kind(
        "missing, drop samples",
        bare(GAPS, chunks=(25, 20)),
        ("--missing", "drop-samples"),
        np.delete(X, [3, 40, 77], 0),
    ),
    Kind(
        "missing, mean",
        bare(GAPS, chunks=(25, 20)),
        ("--missing", "mean"),
        np.where(np.isnan(GAPS), np.nanmean(GAPS, axis=0), GAPS),
    ),
    Kind(
        "missing, mean, float32",
        bare(GAPS.astype("f4")),
        ("--missing", "mean"),
        np.where(np.isnan(GAPS), np.nanmean(GAPS, axis=0), GAPS),
        tolerance=1e-5,
    ),
    Kind("all missing, raise", bare(MASKED), (), X[:, WITHOUT], features=WITHOUT),
    Kind(
        "all missing, drop samples",
        bare(np.where(np.isnan(GAPS), np.nan, MASKED)),
        ("--missing", "drop-samples"),
        np.delete(X, [3, 40, 77], 0)[:, WITHOUT],
        features=WITHOUT,
    ),
    Kind(
        "integers with a fill value of xarray",
        encoded(
            grid(np.where(np.isnan(GAPS), np.nan, INTEGERS).reshape(CUBE.shape)),
            2,
            dtype="i2",
            _FillValue=-1,
        ),
        (*BY_TIME, "--missing", "drop-samples"),
        np.delete(INTEGERS, [3, 40, 77], 0),
        tolerance=1e-5,
    ),
    Kind(
        "missing_value",
        encoded(cells(GAPS), dtype="f8", _FillValue=-99.0, missing_value=-99.0),
        ("--missing", "drop-features"),
        np.delete(X, [2, 9], 1),
        features=[i for i in range(20) if i not in (2, 9)],
    ),
    Kind(
        "an integer fill value is a value",
        bare(np.where(INTEGERS > 70, 7, INTEGERS).astype("i2"), fill_value=7),
        (),
        np.where(INTEGERS > 70, 7, INTEGERS),
        tolerance=1e-5,
    ),
    Kind(
        "infinity",
        bare(np.where(np.isnan(GAPS), np.inf, X)),
        ("--missing", "mean"),
        code="not_finite",
        remedy="--exclude-features",
    ),
    Kind(
        "infinity in a feature left out",
        bare(np.where(np.isnan(GAPS), np.inf, X)),
        ("--exclude-features", 2, "--exclude-features", 9),
        np.delete(X, [2, 9], 1),
        features=[i for i in range(20) if i not in (2, 9)],
    ),
    Kind(
        "a gap in every sample",
        bare(np.where(np.arange(20) == I[:, None] % 20, np.nan, X)),
        ("--missing", "drop-samples"),
        code="too_few_samples",
        remedy="--missing",
    ),
    Kind(
        "a gap in every feature",
        bare(np.where(np.arange(20) == I[:, None] % 20, np.nan, X)),
        ("--missing", "drop-features"),
        code="no_features",
        remedy="--missing",
    ),
    Kind("an unknown policy", bare(X), ("--missing", "zero"), code="bad_option", remedy="mean"),
]

PART = [
    Kind(
        "features by pattern",
        xarray_store(cells()),
        ("--features", "g1?", "--exclude-features", "g13"),
        X[:, [10, 11, 12, 14, 15, 16, 17, 18, 19]],
        features=[10, 11, 12, 14, 15, 16, 17, 18, 19],
    ),
    Kind(
        "features from a file",
        labels_file,
        ("--features", "@genes.txt"),
        X[:, [3, 7, 9, 11, 12]],
        features=[3, 7, 9, 11, 12],
    ),
    Kind(
        "features by number",
        bare(X),
        ("--features", "1?", "--features", "2"),
        X[:, [2, *range(10, 20)]],
        features=[2, *range(10, 20)],
    ),
    Kind(
        "an unknown feature",
        xarray_store(cells()),
        ("--features", "gg3"),
        code="unknown_features",
        remedy="Did you mean 'g3'?",
    ),
    Kind(
        "a file without its sign",
        labels_file,
        ("--features", "genes.txt"),
        code="unknown_features",
        remedy="@FILE",
    ),
    Kind(
        "no such file",
        xarray_store(cells()),
        ("--features", "@none.txt"),
        code="not_found",
        remedy="one label on each line",
    ),
    Kind(
        "all features left out",
        xarray_store(cells()),
        ("--exclude-features", "g*"),
        code="no_features",
        remedy="ask for more",
    ),
    Kind(
        "where a label", xarray_store(with_batches()), ("--where", "batch == 'b1'"), X[I % 3 == 1]
    ),
    Kind(
        "where a label, format 2 in chunks",
        encoded(with_batches(), 2, chunks=(7, 6)),
        ("--where", "batch in ['b0', 'b2'] and depth > 0.25"),
        X[(I % 3 != 1) & (np.linspace(0, 1, 120) > 0.25)],
    ),
    Kind("where it is true", xarray_store(with_batches()), ("--where", "good"), X[I % 4 > 0]),
    Kind("where it is not", xarray_store(with_batches()), ("--where", "not good"), X[I % 4 == 0]),
    Kind(
        "where it is later",
        xarray_store(with_batches()),
        ("--where", "when >= '2001-01-11'"),
        X[I >= 40],
    ),
    Kind(
        "where on stacked samples",
        xarray_store(
            xr.DataArray(
                X.reshape(10, 12, 20),
                dims=("y", "x", "band"),
                coords={"y": np.arange(10), "x": np.arange(12)},
                name="b",
            )
        ),
        ("--sample-dims", "y,x", "--where", "y > 2 and x != 5"),
        X[(I // 12 > 2) & (I % 12 != 5)],
    ),
    Kind(
        "where nothing is",
        xarray_store(with_batches()),
        ("--where", "batch == 'b9'"),
        code="no_samples",
        remedy="batch",
    ),
    Kind(
        "where of an unknown coordinate",
        xarray_store(with_batches()),
        ("--where", "bach == 'b1'"),
        code="bad_condition",
        remedy="batch",
    ),
    Kind(
        "where of nonsense",
        xarray_store(with_batches()),
        ("--where", "batch =="),
        code="bad_condition",
        remedy="Compare coordinates",
    ),
    Kind(
        "where of numbers",
        xarray_store(with_batches()),
        ("--where", "depth"),
        code="bad_condition",
        remedy="Compare coordinates",
    ),
    Kind(
        "least deviation",
        bare(UNEVEN),
        ("--min-std", 1e-3),
        X[:, 5:],
        features=list(range(5, 20)),
    ),
    Kind(
        "least not 0",
        bare(SPARSE),
        ("--min-nonzero", 0.5),
        np.abs(X)[:, np.arange(20) % 4 > 0],
        features=[i for i in range(20) if i % 4],
    ),
    Kind("too much deviation", bare(X), ("--min-std", 1e9), code="no_features", remedy="--min-std"),
    Kind("a fraction above 1", bare(X), ("--min-nonzero", 2), code="bad_option", remedy="0 and 1"),
    Kind(
        "an unknown feature kept",
        xarray_store(cells()),
        ("--keep", "h3"),
        code="unknown_features",
        remedy="'g0'",
    ),
    Kind(
        "a constant feature kept",
        bare(np.hstack([X, np.ones((120, 1))])),
        ("--keep", 20),
        code="bad_keep",
        remedy="--keep",
    ),
    Kind("more kept than chosen", bare(X), ("--keep", "1*"), code="bad_keep", remedy="--h 11"),
]

DTYPES = [
    Kind(
        f"dtype {dtype}, format {fmt}",
        bare((X > 0.5) if dtype == "bool" else INTEGERS.astype(dtype), zarr_format=fmt),
        (),
        (X > 0.5) if dtype == "bool" else INTEGERS.astype(dtype),
        tolerance=1e-5,
    )
    for fmt in (2, 3)
    for dtype in ("bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", ">i4")
] + [
    Kind("dtype >f8", bare(X.astype(">f8"), zarr_format=2), (), X),
    Kind("dtype >f2", bare(INTEGERS.astype(">f2"), zarr_format=2), (), INTEGERS, tolerance=1e-5),
    Kind("complex", bare(X + 1j), code="bad_dtype", remedy="Real numbers"),
    Kind("text", bare(X.astype("U4")), code="bad_dtype", remedy="Real numbers"),
    Kind("times", bare(X.astype("M8[s]"), zarr_format=2), code="bad_dtype", remedy="Real numbers"),
]

NAMES = [f"gene {i} é" for i in range(20)]
LABELS = [
    Kind(f"labels: {what}, format {fmt}", xarray_store(cells(gene=names), fmt), (), X, said)
    for fmt in (2, 3)
    for what, names, said in [
        ("fixed text", np.array(NAMES), NAMES),
        ("objects", np.array(NAMES, dtype=object), NAMES),
        ("integers", np.arange(20) * 3, list(range(0, 60, 3))),
        ("numbers", np.arange(20) / 4, [i / 4 for i in range(20)]),
        ("times", TIMES[:20], [str(t.astype("M8[s]")) for t in TIMES[:20]]),
        ("duplicates", ["a", "b"] * 10, ["a", "b"] * 10),
    ]
] + [Kind("labels: none", xarray_store(cells().drop_vars("gene")), (), X)]

COMPRESSORS = [
    numcodecs.Zlib(3),
    numcodecs.GZip(3),
    numcodecs.BZ2(3),
    numcodecs.LZMA(),
    numcodecs.Zstd(3),
    numcodecs.LZ4(),
    numcodecs.Blosc("lz4", shuffle=2),
    numcodecs.Blosc("zlib", shuffle=0),
]
FILTERS = [
    numcodecs.Delta("f8"),
    numcodecs.Shuffle(8),
    numcodecs.FixedScaleOffset(0, 1e6, "f8", "i8"),
    numcodecs.Quantize(9, "f8"),
    numcodecs.BitRound(45),
    numcodecs.CRC32(),
    numcodecs.Adler32(),
    numcodecs.Fletcher32(),
]
STORES = [
    Kind("zipped, format 2", zipped(xarray_store(cells()), 2), (), X, [f"g{i}" for i in range(20)]),
    Kind("zipped, format 3", zipped(xarray_store(cells()), 3), (), X, [f"g{i}" for i in range(20)]),
    Kind("zipped by a zip program", packed_zip, (), X),
    Kind(
        "unconsolidated, format 2",
        xarray_store(cells(), 2, consolidated=False),
        (),
        X,
        [f"g{i}" for i in range(20)],
    ),
    Kind("unconsolidated, format 3", xarray_store(cells(), consolidated=False), (), X),
    Kind("in a group", xarray_store(cells(), group="a/b"), ("--group", "a/b"), X),
    Kind(
        "in a group, unsaid",
        xarray_store(cells(), group="a/b"),
        code="no_table",
        remedy="--group a/b",
    ),
    Kind(
        "in a tree",
        tree,
        ("--group", "rna/raw"),
        X,
        [f"g{i}" for i in range(20)],
    ),
    Kind("in a tree, unsaid", tree, code="no_table", remedy="--group rna/raw"),
    Kind("nczarr", nczarr, BY_TIME, X, JOINED),
    Kind("F order, format 2", bare(X, zarr_format=2, order="F", chunks=(30, 7)), (), X),
    Kind(
        "transposed by a codec",
        bare(X, chunks=(30, 7), filters=zarr.codecs.TransposeCodec(order=(1, 0))),
        (),
        X,
    ),
    Kind("sharded", bare(X, chunks=(10, 10), shards=(60, 20)), (), X),
    Kind("uncompressed", bare(X, compressors=None), (), X),
    Kind("uncompressed, format 2", bare(X, zarr_format=2, compressors=None), (), X),
    *(
        Kind(
            f"codec {type(c).__name__}, format 2 ({i})",
            bare(X, zarr_format=2, compressors=c),
            (),
            X,
        )
        for i, c in enumerate(COMPRESSORS)
    ),
    *(
        Kind(
            f"filter {type(f).__name__}, format 2",
            bare(X, zarr_format=2, filters=[f]),
            (),
            X,
            tolerance=1e-5,
        )
        for f in FILTERS
    ),
    *(
        Kind(f"codec {name}, format 3", bare(X, compressors=codec), (), X)
        for name, codec in {
            "gzip": zarr.codecs.GzipCodec(),
            "zstd": zarr.codecs.ZstdCodec(),
            "blosc": zarr.codecs.BloscCodec(cname="lz4"),
            "crc32c": zarr.codecs.Crc32cCodec(),
        }.items()
    ),
    *(
        Kind(f"codec numcodecs.{name}, format 3", registered(name, **options), (), X)
        for name, options in [("Zlib", {"level": 2}), ("LZMA", {}), ("LZ4", {}), ("BZ2", {})]
    ),
    *(
        Kind(
            f"filter numcodecs.{name}, format 3",
            registered(name, "filters", **options),
            (),
            X,
            tolerance=1e-5,
        )
        for name, options in [
            ("Delta", {"dtype": "<f8"}),
            ("BitRound", {"keepbits": 45}),
            ("FixedScaleOffset", {"offset": 0, "scale": 1e6, "dtype": "<f8", "astype": "<i8"}),
        ]
    ),
    Kind("chunked along features", bare(X, chunks=(120, 1)), (), X),
    Kind("chunked along both", bare(X, chunks=(31, 3)), (), X),
    Kind(
        "chunked along features, too large",
        bare(np.tile(X, (400, 2)), chunks=(48000, 1)),
        ("--memory", "380MB"),
        code="does_not_fit",
        remedy="kmufs-stream rechunk does",
    ),
    Kind("a file", lambda path: path.write_text("a,b"), code="not_zarr", remedy="convert"),
]

EVERY = [*STACKED, *VARIABLES, *MISSING, *PART, *DTYPES, *LABELS, *STORES]


def test_rows_are_many_and_named_apart() -> None:
    assert len({kind.name for kind in EVERY}) == len(EVERY) >= 120


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
@pytest.mark.filterwarnings("ignore:Object at")
@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.name.replace(" ", "-"))
def test_every_kind(cli: Cli, folder: Path, kind: Kind) -> None:
    path = folder / ("data.zarr.zip" if "zipped" in kind.name else "data.zarr")
    kind.write(path)
    chosen = ("--k", K, "--h", H, "--solver", "exact", "--selection-only", "--json")
    run = cli("select", path, *chosen, *kind.options)
    if kind.code is not None:
        error = run.json()["error"]
        assert (run.code, error["code"]) == (2, kind.code), error
        assert kind.remedy in error["remedy"]
        assert not (folder / "data.selected.zarr").exists()
        return
    assert run.code == 0, run.out
    found = run.json()
    table = np.asarray(kind.table, np.float64)
    p = found["features"]
    features = list(range(p)) if kind.features is None else list(kind.features)
    scores = np.full(p, np.nan)
    scores[features] = reference(table).every_score(K)
    assert found["samples"] == len(table)
    assert_optimal(found["selected"], scores, H, kind.tolerance)
    np.testing.assert_allclose(found["scores"], scores[found["selected"]], atol=kind.tolerance)
    if kind.labels is not None:
        assert found["labels"] == [kind.labels[i] for i in found["selected"]]

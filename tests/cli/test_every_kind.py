"""Kinds of tables through the command line: the right selection, or what to type instead.

tests/sources/test_kinds.py opens tables of every kind; here an answer is compared with
whole-array NumPy on the values that xarray or NumPy hold.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from commands import Cli
from helpers import planted, write_bare
from reference import assert_optimal, reference

Write = Callable[[Path], object]
K, H = 3, 4
X = planted(120, 20)
CUBE = X.reshape(120, 4, 5)
I = np.arange(120)  # noqa: E741
LAT, LON = np.linspace(10, 40, 4), np.linspace(-2, 2, 5)
GENES = [f"g{i}" for i in range(20)]
GAPS = X.copy()
GAPS[[3, 40, 77], [2, 2, 9]] = np.nan
EVERYWHERE = np.where(np.arange(20) == I[:, None] % 20, np.nan, X)
INFINITE = np.where(np.isnan(GAPS), np.inf, X)
MASKED = np.where(np.arange(20) % 6 == 1, np.nan, np.round(X, 2))
SPARSE = np.where((np.arange(20) % 4 == 0) & (I[:, None] % 10 > 0), 0.0, np.abs(X))
SPARSE[:, 5:8] *= 1e-6


def bare(values: Any, **options: Any) -> Write:
    """A store that is one array."""
    return lambda path: write_bare(path, values, **options)


def stored(data: xr.DataArray, zarr_format: int = 3, **encoding: Any) -> Write:
    """A store written by xarray."""
    form: Any = {"zarr_format": zarr_format, "encoding": {data.name: encoding}}
    return lambda path: data.to_dataset().to_zarr(path, **form)


def grid(values: Any = CUBE) -> xr.DataArray:
    """A field on a grid."""
    return xr.DataArray(values, {"lat": LAT, "lon": LON}, ("time", "lat", "lon"), name="air")


def cells() -> xr.DataArray:
    """A table with names and all kinds of coordinates."""
    coords = {
        "gene": GENES,
        "batch": ("cell", [f"b{i % 3}" for i in range(120)]),
        "good": ("cell", I % 4 > 0),
        "depth": ("cell", np.linspace(0, 1, 120)),
    }
    return xr.DataArray(X, coords, ("cell", "gene"), name="counts")


def with_list(path: Path) -> None:
    """Cells, and a list of genes beside them."""
    stored(cells())(path)
    path.with_name("genes.txt").write_text("g3\n g7 \n\ng9\ng11\ng12\n")


def in_group(path: Path) -> None:
    """Cells in a group of a store."""
    cells().to_dataset().to_zarr(path, group="a/b", zarr_format=2)


def zipped(path: Path) -> None:
    """Cells in a zip file."""
    with zarr.storage.ZipStore(path, mode="w") as store:
        cells().to_dataset().to_zarr(store, consolidated=False)  # type: ignore[call-overload]


def variables(path: Path) -> None:
    """Sensors as variables along time, and a flag."""
    one = {f"s{i:02}": ("time", column) for i, column in enumerate(X.T)}
    xr.Dataset({**one, "flag": ("time", np.ones(120))}).to_zarr(path)


@dataclass(frozen=True)
class Kind:
    """A store, the options it takes, and the table that these mean: all of X, or some features."""

    name: str
    write: Write
    options: str
    table: Any = None
    features: Sequence[int] = range(20)
    labels: Sequence[str] | None = None
    tolerance: float = 1e-9


PACKED = stored(
    grid(MASKED.reshape(CUBE.shape)), 2, dtype="i2", scale_factor=0.01, _FillValue=-9999
)
WITHOUT = [i for i in range(20) if i % 6 != 1]
KINDS = [
    Kind(
        "in chunks, by its features in another order",
        stored(grid(), chunks=(7, 3, 2)),
        "--feature-dims 'lon, lat'",
        CUBE.transpose(0, 2, 1).reshape(120, 20),
        labels=[f"lon={b:g} lat={a:g}" for b in LON for a in LAT],
    ),
    Kind("a packed sea mask", PACKED, "--sample-dims time", np.round(X, 2), WITHOUT, None, 1e-6),
    Kind(
        "variables by pattern",
        variables,
        "--features-from-variables --features 's0*' --features s15 --exclude-features s03",
        np.insert(X, 0, 1.0, axis=1),
        [i + 1 for i in (0, 1, 2, 4, 5, 6, 7, 8, 9, 15)],
    ),
    Kind(
        "without features with gaps",
        bare(GAPS),
        "--missing drop-features",
        features=[i for i in range(20) if i not in (2, 9)],
    ),
    Kind(
        "infinite where nothing is asked, by number",
        bare(INFINITE),
        "--features '?' --features '1?' --exclude-features 2 --exclude-features 9",
        features=[i for i in range(20) if i not in (2, 9)],
    ),
    Kind(
        "without samples with gaps",
        bare(np.where(np.isnan(MASKED), np.nan, GAPS), chunks=(25, 20)),
        "--missing drop-samples",
        np.delete(X, [3, 40, 77], 0),
        WITHOUT,
    ),
    Kind(
        "means for gaps",
        bare(GAPS, chunks=(25, 20)),
        "--missing mean",
        np.where(np.isnan(GAPS), np.nanmean(GAPS, axis=0), GAPS),
    ),
    Kind(
        "neither rare nor nearly constant",
        bare(SPARSE),
        "--min-nonzero 0.5 --min-std 1e-3",
        SPARSE,
        [i for i in range(20) if i % 4 and i not in (5, 6, 7)],
    ),
    Kind(
        "features from a file",
        with_list,
        "--features @genes.txt",
        features=[3, 7, 9, 11, 12],
        labels=GENES,
    ),
    Kind(
        "some samples of a group",
        in_group,
        "--group a/b --where \"batch in ['b0', 'b2'] and not good\"",
        X[(I % 3 != 1) & (I % 4 == 0)],
    ),
    Kind("zipped", zipped, "--exclude-features g13", features=np.delete(range(20), 13)),
]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name.replace(" ", "-"))
def test_every_kind(cli: Cli, folder: Path, kind: Kind) -> None:
    path = folder / ("data.zarr.zip" if kind.name == "zipped" else "data.zarr")
    kind.write(path)
    chosen = ("--k", K, "--h", H, "--solver", "exact", "--selection-only", "--json")
    run = cli("select", path, *chosen, *shlex.split(kind.options))
    assert run.code == 0, run.out
    found = run.json()
    table, features = X if kind.table is None else kind.table, list(kind.features)
    scores = np.full(found["features"], np.nan)
    scores[features] = reference(table[:, features]).every_score(K)
    assert found["samples"] == len(table)
    assert_optimal(found["selected"], scores, H, kind.tolerance)
    np.testing.assert_allclose(found["scores"], scores[found["selected"]], atol=kind.tolerance)
    if kind.labels is not None:
        assert found["labels"] == [kind.labels[i] for i in found["selected"]]


REFUSED = [
    (bare(INFINITE), "--missing mean", "not_finite", "--exclude-features"),
    (bare(EVERYWHERE), "--missing drop-samples", "too_few_samples", "--missing"),
    (bare(EVERYWHERE), "--missing drop-features", "no_features", "--missing"),
    (bare(X), "--min-std 1e9", "no_features", "--min-std"),
    (bare(X), "--min-nonzero 2", "bad_option", "0 and 1"),
    (bare(X), "--features @none.txt", "not_found", "one label on each line"),
    (bare(X), "--keep '1*'", "bad_keep", "--h 11"),
    (bare(np.hstack([X, np.ones((120, 1))])), "--keep 20", "bad_keep", "--keep"),
    (stored(cells()), "--keep h3", "unknown_features", "'g0'"),
    (with_list, "--features genes.txt", "unknown_features", "@FILE"),
    (stored(cells()), "--exclude-features 'g*'", "no_features", "ask for more"),
    (stored(cells()), "--where \"batch == 'b9'\"", "no_samples", "batch"),
    (stored(cells()), "--where 'batch =='", "bad_condition", "Compare coordinates"),
    (stored(cells()), "--where depth", "bad_condition", "Compare coordinates"),
    (stored(grid()), "--sample-dims time --feature-dims lat", "which_dimensions", "one is enough"),
    (variables, "", "no_table", "--features-from-variables"),
    (in_group, "", "no_table", "--group a/b"),
    (
        bare(np.tile(X, (400, 2)), chunks=(48000, 1)),
        "--memory 380MB",
        "does_not_fit",
        "kmufs-stream rechunk does",
    ),
]


@pytest.mark.parametrize(("write", "options", "code", "hint"), REFUSED)
def test_what_to_type_instead(
    cli: Cli, folder: Path, write: Write, options: str, code: str, hint: str
) -> None:
    write(folder / "data.zarr")
    run = cli("select", "data.zarr", "--k", K, "--h", H, "--json", *shlex.split(options))
    error = run.json()["error"]
    assert (run.code, error["code"]) == (2, code), error
    assert hint in error["remedy"]
    assert not (folder / "data.selected.zarr").exists()

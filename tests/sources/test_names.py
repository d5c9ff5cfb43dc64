"""Names of features that are spelt in another way."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from kmufs_stream import RequestError, open_matrix

GRID = [f"lat={lat} lon={lon}" for lat in ("75", "72.5", "-1e-07") for lon in ("0", "200", "202.5")]
DAYS = ["2001-01-01T00:00:00", "2001-01-01T06:00:00", "2001-02-30T00:00:00"]
LEVELS = ["1000.0", "850.0", "500.0"]
GENES = ["1e3", "1000", "x"]


@pytest.mark.parametrize(
    ("names", "dim", "typed", "places"),
    [
        (GRID, "feature", "lon=200 lat=75", [1]),
        (GRID, "feature", "lat=75.0 lon=2e2", [1]),
        (GRID, "feature", " lat=-0.0000001  lon=-0", [6]),
        (GRID, "feature", "lon=0.0	lat=-1E-7 ", [6]),
        (GRID, "feature", "lon=* lat=7.5e1", [0, 1, 2]),
        (GRID, "feature", "lon=20* lat=7*", [1, 2, 4, 5]),
        (DAYS, "time", "time=2001-01-01T06:00:00", [1]),
        (DAYS, "time", "time=2001-01-01", [0]),
        (DAYS, "time", "2001-02-30", [2]),
        (LEVELS, "level", "850", [1]),
        (LEVELS, "level", "level=850.00", [1]),
        (LEVELS, "level", "level=*0.0", [0, 1, 2]),
        (GENES, "gene", "1000.0", [0, 1]),
        (GENES, "gene", "1000", [1]),  # a name as it is goes first
        (["1.0", "1.0"], "gene", "1", [0, 1]),
    ],
)
def test_other_spellings(names: list[str], dim: str, typed: str, places: list[int]) -> None:
    table = xr.DataArray(np.ones((3, len(names))), dims=("sample", dim), coords={dim: names})
    chosen = open_matrix(table, features=typed).asked
    assert chosen is not None
    assert chosen.tolist() == places


@pytest.mark.parametrize(
    ("names", "dim", "typed"),
    [
        (GRID, "feature", "lat=75 lon=201"),
        (GRID, "feature", "lat=75"),
        (GRID, "feature", "lat=75 lat=75 lon=200"),
        (DAYS, "time", "2001-01"),
        (DAYS, "time", "date=2001-01-01"),
        (["large cell", "small cell"], "gene", "cell large"),
    ],
)
def test_other_names_are_unknown(names: list[str], dim: str, typed: str) -> None:
    table = xr.DataArray(np.ones((3, len(names))), dims=("sample", dim), coords={dim: names})
    with pytest.raises(RequestError, match="no feature is called"):
        open_matrix(table, features=typed)

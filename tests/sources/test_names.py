"""Names of features that are spelt in another way."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from kmufs_stream import RequestError, open_matrix

GRID = [f"lat={lat} lon={lon}" for lat in ("75", "72.5", "-1e-07") for lon in ("0", "200", "202.5")]
DAYS = ["2001-01-01T00:00:00", "2001-01-01T06:00:00", "2001-02-30T00:00:00"]


def asked(names: list[str], dim: str, *features: str) -> list[int]:
    """Which features these names and patterns choose."""
    table = xr.DataArray(np.ones((3, len(names))), dims=("sample", dim), coords={dim: names})
    chosen = open_matrix(table, features=features).asked
    assert chosen is not None
    return chosen.tolist()


@pytest.mark.parametrize(
    ("typed", "places"),
    [
        ("lon=200 lat=75", [1]),
        ("lat=75.0 lon=2e2", [1]),
        (" lat=-0.0000001  lon=-0", [6]),
        ("lon=0.0	lat=-1E-7 ", [6]),
        ("lon=* lat=7.5e1", [0, 1, 2]),
        ("lon=20* lat=7*", [1, 2, 4, 5]),
    ],
)
def test_places(typed: str, places: list[int]) -> None:
    assert asked(GRID, "feature", typed) == places


@pytest.mark.parametrize(
    ("typed", "places"),
    [
        ("time=2001-01-01T06:00:00", [1]),
        ("time=2001-01-01", [0]),
        ("2001-02-30", [2]),
    ],
)
def test_times(typed: str, places: list[int]) -> None:
    assert asked(DAYS, "time", typed) == places


def test_numbers_along_one_dimension() -> None:
    levels = ["1000.0", "850.0", "500.0"]
    assert asked(levels, "level", "850") == asked(levels, "level", "level=850.00") == [1]
    assert asked(levels, "level", "level=*0.0") == [0, 1, 2]


def test_a_name_as_it_is_goes_first() -> None:
    assert asked(["1e3", "1000", "x"], "gene", "1000.0") == [0, 1]
    assert asked(["1e3", "1000", "x"], "gene", "1000") == [1]
    assert asked(["1.0", "1.0"], "gene", "1") == [0, 1]


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
    with pytest.raises(RequestError, match="no feature is called"):
        asked(names, dim, typed)

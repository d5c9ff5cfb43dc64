"""Different spellings of names of features."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kmufs_stream.sources.spelling import Spellings

GRID = [f"lat={lat} lon={lon}" for lat in ("75", "72.5", "-1e-07") for lon in ("0", "200", "202.5")]
TIMES = ["2001-01-01T00:00:00", "2001-01-01T06:00:00", "2001-01-02T00:00:00.5"]


@pytest.mark.parametrize(
    ("typed", "places"),
    [
        ("lon=200 lat=75", [1]),
        ("lat=75.0 lon=2e2", [1]),
        (" lat=-0.0000001  lon=-0", [6]),
        ("lon=0.0	lat=-1E-7 ", [6]),
        ("lat=75 lon=201", []),
        ("lat=75", []),
        ("lat=75 lat=75 lon=200", []),
    ],
)
def test_places(typed: str, places: list[int]) -> None:
    assert Spellings(GRID, "feature").of(typed) == places


def test_some_parts_of_a_name() -> None:
    grid = Spellings(GRID, "feature")
    assert grid.completed("lon=2e2") == "lat=* lon=2e2"
    assert grid.completed("lat=75") == "lat=75 lon=*"
    for other in ("lat=76", "lat=75 lon=0", "level=3", "75", ""):
        assert grid.completed(other) is None
    assert Spellings(TIMES, "time").completed("lat=75") is None


def test_patterns() -> None:
    assert Spellings(GRID, "feature").meeting("lon=* lat=7.5e1") == [0, 1, 2]
    assert Spellings(GRID, "feature").meeting("lon=20* lat=7*") == [1, 2, 4, 5]


@pytest.mark.parametrize(
    ("typed", "places"),
    [
        ("time=2001-01-01T06:00:00", [1]),
        ("time=2001-01-01", [0]),
        ("2001-01-01 06:00", [1]),
        ("2001-01-02T00:00:00.500", [2]),
        ("2001-01", []),
        ("2001-02-30", []),
        ("date=2001-01-01", []),
    ],
)
def test_times(typed: str, places: list[int]) -> None:
    assert Spellings(TIMES, "time").of(typed) == places


def test_times_of_calendars_that_have_other_days() -> None:
    spellings = Spellings(["2001-02-29T00:00:00", "2001-02-30T00:00:00"], "time")
    assert spellings.of("time=2001-02-30") == [1]
    assert spellings.meeting("2001-02-*") == [0, 1]


def test_spans_of_time_in_other_units() -> None:
    leads = Spellings(["0 days", "90 minutes", "1 days"], "lead")
    assert leads.of("lead=24 hours") == leads.of("1 day") == [2]
    assert leads.of("5400000000000 nanoseconds") == [1]
    assert leads.of("0s") == leads.of("90 metres") == []


def test_numbers_along_one_dimension() -> None:
    levels = Spellings(["1000.0", "850.0", "500.0"], "level")
    assert levels.of("850") == levels.of("level=850.00") == [1]
    assert levels.meeting("level=*0.0") == [0, 1, 2]


def test_what_may_be_either_is_neither() -> None:
    assert Spellings(["1e3", "1000", "x"], "gene").of("1000.0") == []
    assert Spellings(["1.0", "1.0"], "gene").of("1") == [0, 1]


@given(st.lists(st.text(), unique=True))
def test_every_name_is_its_own_spelling_unless_another_means_the_same(names: list[str]) -> None:
    spellings = Spellings(names, "gene")
    for i, name in enumerate(names):
        assert spellings.of(name) in ([i], [])

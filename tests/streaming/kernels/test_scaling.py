"""Shift, scale and probe."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from helpers import planted
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from kmufs_stream import decompose, open_matrix
from kmufs_stream.streaming.kernels.scaling import (
    PROBE_PLACES,
    PROBE_ROWS,
    Precision,
    Scaling,
    probe_starts,
    read_probe,
)


@settings(deadline=None, max_examples=60)
@given(
    probe=arrays(
        np.float32,
        array_shapes(min_dims=2, max_dims=2, max_side=6),
        elements=st.floats(width=32, allow_nan=True, allow_infinity=True),
    ),
    precision=st.sampled_from(["float32", "float64"]),
)
def test_scale_is_a_power_of_two_and_never_zero(probe: Any, precision: Precision) -> None:
    scaling = Scaling.from_probe(probe, precision)
    assert (np.frexp(scaling.scale)[0] == 0.5).all()
    assert np.isfinite(scaling.shift).all()
    assert (scaling.shift.astype(probe.dtype) == scaling.shift).all()
    with np.errstate(over="ignore"):
        assert np.isfinite((1 / scaling.scale).astype(precision)).all()


@pytest.mark.parametrize("dtype", ["bool", "u1", "i8", "f2", "f4", ">f8", ">i2"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_block_is_shifted_and_scaled(dtype: str, precision: Precision) -> None:
    whole = planted(300, 7) * 9 + 40
    x = (whole > 40) if dtype == "bool" else np.clip(whole, 0, 120).astype(dtype)
    scaling = Scaling.from_probe(x[:64], precision)
    expected = (x[64:].astype(np.float64) - scaling.shift) / scaling.scale
    tolerance = 1e-6 if precision == "float32" else 1e-15
    block = scaling.apply(x[64:], precision)
    np.testing.assert_allclose(block, expected, rtol=0, atol=8 * tolerance)
    assert np.abs(expected).max() < 20


@settings(deadline=None, max_examples=60)
@given(value=st.floats(allow_nan=False, allow_infinity=False), rows=st.integers(1, 1024))
def test_equal_values_are_never_taken_to_vary(value: float, rows: int) -> None:
    assert Scaling.from_probe(np.full((rows, 1), value), "float64").unsure.tolist() == [0]


@settings(deadline=None, max_examples=200)
@given(n=st.integers(1, 10**9), chunk_rows=st.integers(1, 10**8))
def test_probe_places_are_spread_over_all_rows(n: int, chunk_rows: int) -> None:
    starts = probe_starts(n, chunk_rows)
    unit = max(chunk_rows, PROBE_ROWS)
    assert 1 <= len(starts) <= PROBE_PLACES
    assert starts == sorted(set(starts))
    assert starts[0] >= 0
    assert starts[-1] < n
    assert all(start % unit == 0 for start in starts)
    # No more than two gaps' length lies beyond the first and last, or between neighbours.
    gap = max(-(-n // unit) // len(starts), 1) * unit
    assert starts[0] <= gap
    assert n - starts[-1] <= 2 * gap + unit
    assert all(b - a <= 2 * gap for a, b in itertools.pairwise(starts))


@pytest.mark.parametrize(
    ("offset", "dtype"), [(0, "i8"), (2**54, "i8"), (2**60, "i8"), (2**63, "u8")]
)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_large_integers_are_shifted_before_they_are_rounded(
    offset: int, dtype: str, precision: Precision
) -> None:
    small = np.random.default_rng(0).integers(0, 100, (500, 6))
    whole = small.astype(dtype) + np.array(offset, dtype)
    expected = decompose(small.astype(np.float64), 2)
    found = decompose(whole, 2, precision=precision)
    assert found.features.excluded == {}
    np.testing.assert_allclose(found.features.std, expected.features.std, rtol=1e-5)
    np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, rtol=1e-5)


def test_large_integers_are_shifted_by_integers_and_never_wrapped() -> None:
    x = np.array([[-9 * 10**18], [9 * 10**18]] * 50)
    scaling = Scaling.from_probe(x[:1], "float64")
    np.testing.assert_allclose(np.ptp(scaling.apply(x, "float64")), 18e18 / scaling.scale[0])
    x = np.array([[3, 2**40], [4, 2**40 + 1], [4, 2**40 + 1]])
    shift = Scaling.from_probe(x, "float64").shift
    np.testing.assert_array_equal(shift, np.rint(shift))
    assert shift[1] in (2**40, 2**40 + 1)


def test_sorted_rows_do_not_mislead() -> None:
    x = np.linspace(0, 1000, 100_000)[:, None]
    scaling = Scaling.from_probe(read_probe(open_matrix(x)), "float64")
    assert abs(scaling.shift[0] - 500) < 50
    assert 100 < scaling.scale[0] < 600

"""The uniform row sample."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kmufs_stream import decompose
from kmufs_stream.streaming.kernels import sample
from kmufs_stream.streaming.kernels.sample import TakeRows, sample_index, sample_size
from kmufs_stream.streaming.passes import run_pass


@pytest.mark.parametrize(
    ("n", "row_bytes", "expected"),
    [
        (10, 8, 10),
        (10**9, 8, 20_000),
        (10**9, 12_800, 20_000),
        (10**9, 25_600, 10_000),
        (10**9, 10**9, 1),
    ],
)
def test_size(n: int, row_bytes: int, expected: int) -> None:
    assert sample_size(n, row_bytes) == expected


@settings(deadline=None, max_examples=60)
@given(n=st.integers(1, 500), data=st.data())
def test_index_is_m_distinct_ascending_rows(n: int, data: Any) -> None:
    m = data.draw(st.integers(1, n))
    index = sample_index(n, m)
    assert len(index) == m
    assert (np.diff(index) > 0).all()
    assert index[0] >= 0
    assert index[-1] < n


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_index_does_not_depend_on_how_it_is_found(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    whole = sample_index(1000, 50)
    monkeypatch.setattr(sample, "HASHED_AT_ONCE", at_once)
    assert sample_index(1000, 50).tolist() == whole.tolist()


def test_a_smaller_sample_is_part_of_a_larger_one() -> None:
    # Being the m smallest hashes, samples of parts can be merged.
    assert set(sample_index(5000, 40)) < set(sample_index(5000, 400))


def test_sample_is_uniform_over_places() -> None:
    # 40 cells of 2500 rows; chi-square with 39 degrees of freedom exceeds 73.4 once in a thousand.
    m = 20_000
    for seed in range(3):
        index = sample_index(100_000, m, seed)
        counts = np.bincount(index // 2500, minlength=40)
        # Drawn without replacement: the variance shrinks by 1 - m / n.
        chi2 = ((counts - m / 40) ** 2 / (m / 40)).sum() / (1 - m / 100_000)
        assert 10 < chi2 < 73.4


@pytest.mark.parametrize("period", [2, 3, 8, 64, 100])
def test_sample_is_uniform_over_periods(period: int) -> None:
    # Within five standard deviations for every residue.
    m = 20_000
    counts = np.bincount(sample_index(200_000, m) % period, minlength=period)
    spread = np.sqrt(m / period * (1 - 1 / period))
    assert (np.abs(counts - m / period) < 5 * spread + 1).all()
    assert counts.std() > 0


def test_seeds_differ() -> None:
    assert set(sample_index(10_000, 100, 0)) != set(sample_index(10_000, 100, 1))


@settings(deadline=None, max_examples=30)
@given(block=st.integers(1, 70), per=st.integers(1, 9), threads=st.sampled_from([1, 3]))
def test_rows_taken_do_not_depend_on_blocks(block: int, per: int, threads: int) -> None:
    n = 300
    x = np.arange(n * 2).reshape(n, 2)
    index = sample_index(n, 60)

    class Rows:
        def read(self, start: int, stop: int) -> Any:
            return x[start:stop]

        def take(self, start: int, stop: int, columns: Any) -> Any:
            raise NotImplementedError

    step = block * per
    partitions = [range(a, min(a + step, n), block) for a in range(0, n, step)]
    pieces = run_pass(TakeRows(index), Rows(), partitions, threads=threads)
    np.testing.assert_array_equal(np.concatenate(pieces), x[index])


@pytest.mark.parametrize("chunks", [(100, 2), (33, 2), (1000, 1)])
def test_factor_keeps_the_rows_in_the_dtype_of_the_source(
    monkeypatch: pytest.MonkeyPatch, chunks: tuple[int, int]
) -> None:
    monkeypatch.setattr(sample, "SAMPLE_ROWS", 64)
    x = np.random.default_rng(0).integers(0, 100, (1000, 2)).astype(np.uint8)
    factor = decompose(da.from_array(x, chunks=chunks), 1)
    assert factor.sample.values.dtype == np.uint8
    assert factor.sample.index.tolist() == sample_index(1000, 64).tolist()
    np.testing.assert_array_equal(factor.sample.values, x[factor.sample.index])

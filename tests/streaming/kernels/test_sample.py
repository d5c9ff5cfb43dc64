"""The uniform row sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cluster_rows import Whole, cut
from hypothesis import given, settings
from hypothesis import strategies as st

from kmufs_stream.streaming.kernels import sample
from kmufs_stream.streaming.kernels.sample import TakeRows, sample_index, sample_size
from kmufs_stream.streaming.passes import run_pass


def test_size() -> None:
    assert sample_size(10, 8) == 10
    sizes = {8: 20_000, 12_800: 20_000, 25_600: 10_000, 10**9: 1}
    assert {row_bytes: sample_size(10**9, row_bytes) for row_bytes in sizes} == sizes


@settings(deadline=None, max_examples=60)
@given(n=st.integers(1, 500), data=st.data())
def test_index_is_m_distinct_ascending_rows(n: int, data: Any) -> None:
    m = data.draw(st.integers(1, n))
    index = sample_index(n, m)
    assert len(index) == m
    assert (np.diff(index) > 0).all()
    assert index[0] >= 0
    assert index[-1] < n


def test_index_does_not_depend_on_how_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sample_index(1000, 50)
    for at_once in (1, 7):
        monkeypatch.setattr(sample, "HASHED_AT_ONCE", at_once)
        assert sample_index(1000, 50).tolist() == whole.tolist()


def test_samples_of_other_sizes_and_seeds() -> None:
    # Being the m smallest hashes, samples of parts can be merged.
    assert set(sample_index(5000, 40)) < set(sample_index(5000, 400))
    assert set(sample_index(5000, 40, 0)) != set(sample_index(5000, 40, 1))


def test_sample_is_uniform_over_places_and_periods() -> None:
    # 40 cells of 2500 rows; chi-square with 39 degrees of freedom exceeds 73.4 once in a thousand.
    m = 20_000
    for seed in range(3):
        index = sample_index(100_000, m, seed)
        counts = np.bincount(index // 2500, minlength=40)
        # Drawn without replacement: the variance shrinks by 1 - m / n.
        chi2 = ((counts - m / 40) ** 2 / (m / 40)).sum() / (1 - m / 100_000)
        assert 10 < chi2 < 73.4
    for period in (2, 3, 8, 64, 100):  # within five standard deviations for every residue
        counts = np.bincount(sample_index(200_000, m) % period, minlength=period)
        spread = np.sqrt(m / period * (1 - 1 / period))
        assert (np.abs(counts - m / period) < 5 * spread + 1).all()


@settings(deadline=None, max_examples=30)
@given(block=st.integers(1, 70), per=st.integers(1, 9), threads=st.sampled_from([1, 3]))
def test_rows_taken_do_not_depend_on_blocks(block: int, per: int, threads: int) -> None:
    n = 300
    x = np.arange(n * 2).reshape(n, 2)
    index = sample_index(n, 60)

    pieces = run_pass(TakeRows(index), Whole(x), cut(n, block, per), threads=threads)
    np.testing.assert_array_equal(np.concatenate(pieces), x[index])

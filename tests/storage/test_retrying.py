"""Reads that fail for the moment are asked for again; those that fail for good name the chunk."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers import planted, same_bits, write_bare
from zarr.storage import LocalStore, WrapperStore

from kmufs_stream import BrokenError, RequestError, decompose, open_matrix
from kmufs_stream.storage import retrying

X = planted(300, 12)


class Failing(WrapperStore[LocalStore]):
    """A store of which some reads of chunks fail."""

    def __init__(self, store: LocalStore, share: float = 0.05, error: type = OSError) -> None:
        super().__init__(store)
        self.rng, self.share, self.error = random.Random(0), share, error
        self.asked = self.failed = 0

    def with_read_only(self, read_only: bool = False) -> Failing:
        return self  # whose failures are counted

    async def get(self, key: str, *arguments: Any, **options: Any) -> Any:
        if "c/" in key:
            self.asked += 1
            if self.rng.random() < self.share:
                self.failed += 1
                raise self.error("the connection was reset")
        return await super().get(key, *arguments, **options)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_bare(tmp_path / "data.zarr", X, chunks=(5, 4))


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "FIRST_WAIT", 1e-4)


@pytest.mark.parametrize("error", [OSError, TimeoutError])
def test_one_read_in_twenty_may_fail(table: Path, error: type) -> None:
    store = Failing(LocalStore(table), error=error)
    found = decompose(open_matrix(zarr.open_array(store, mode="r")), 3)
    assert store.failed > 5
    assert same_bits(found, decompose(table, 3))


def test_the_chunk_that_never_comes_is_named(table: Path) -> None:
    store = Failing(LocalStore(table), share=1.0)
    matrix = open_matrix(zarr.open_array(store, mode="r"), retries=2)
    with pytest.raises(BrokenError, match=r"chunk c/2/0 .* cannot be read: OSError") as caught:
        matrix.rows.read(10, 12)
    assert caught.value.code == "corrupt_chunk"
    assert store.asked % 3 == 0  # once, and twice more


@pytest.mark.parametrize("error", [PermissionError, FileNotFoundError])
def test_what_will_not_change_is_not_asked_for_again(table: Path, error: type) -> None:
    store = Failing(LocalStore(table), share=1.0, error=error)
    matrix = open_matrix(zarr.open_array(store, mode="r"))
    with pytest.raises(BrokenError):
        matrix.rows.read(10, 12)
    assert store.asked <= 6  # three chunks side by side, and each once more to name it


def test_a_chunk_lost_on_the_way_is_not_read_as_zeros(table: Path) -> None:
    matrix, filled = open_matrix(table), open_matrix(table, fill_missing_chunks=True)
    (table / "c" / "3" / "1").unlink()
    with pytest.raises(BrokenError, match=r"chunk c/3/1 of .* is not there") as caught:
        matrix.rows.read(0, 300)
    assert caught.value.code == "missing_chunk"
    assert (filled.rows.read(15, 20)[:, 4:8] == 0).all()


def test_read_in_another_folder_and_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bare(tmp_path / "data.zarr", X, chunks=(5, 4), shards=(20, 12))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    rows = open_matrix("data.zarr").rows
    monkeypatch.chdir(tmp_path / "elsewhere")
    sent = pickle.loads(pickle.dumps(rows))
    np.testing.assert_array_equal(sent.read(3, 90), X[3:90])


def test_retries_below_zero_are_refused(table: Path) -> None:
    with pytest.raises(RequestError, match="`retries` is -1"):
        open_matrix(table, retries=-1)

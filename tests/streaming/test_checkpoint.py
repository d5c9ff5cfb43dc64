"""Checkpoints: a run that broke off anywhere goes on to the same bits, or says why it cannot."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import CountingRows, counted, planted, same_bits, write_bare

from kmufs_stream import (
    BrokenError,
    Factor,
    LanczosOptions,
    Matrix,
    RequestError,
    Screening,
    decompose,
    open_matrix,
)
from kmufs_stream import select as select_by
from kmufs_stream.events import Advanced, Event, Noticed
from kmufs_stream.factors import computing, reader
from kmufs_stream.streaming import checkpoint as checkpoints

N, P = 750, 30
select = functools.partial(select_by, solver="exact")


@pytest.fixture(autouse=True)
def _many_reads(small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition for every chunk, every pass reads, and states are saved at every chance."""
    monkeypatch.setattr(reader, "CachedRows", lambda rows, limit: rows)
    monkeypatch.setattr(checkpoints, "SAVING_SHARE", 0)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 50 chunks, which no test changes for others."""
    folder = tmp_path_factory.mktemp("checkpoint")
    return write_bare(folder / "data.zarr", planted(N, P, k=5), chunks=(15, P))


@functools.cache
def whole(table: Path, method: str = "gram") -> tuple[Factor, int]:
    """What an unbroken run gives, and its number of reads."""
    matrix, seen = counted(open_matrix(table))
    return decompose(matrix, 3, method=method), len(seen.reads)


class Breaking(CountingRows):
    """Rows that cannot be read any more after so many reads."""

    def __init__(self, rows: Any, after: int) -> None:
        super().__init__(rows)
        self.after = after

    def read(self, start: int, stop: int) -> Any:
        if len(self.reads) >= self.after:
            raise ConnectionError("the store is gone")
        return super().read(start, stop)


def breaking(path: Path, after: int) -> Matrix:
    matrix = open_matrix(path)
    return dataclasses.replace(matrix, rows=Breaking(matrix.rows, after))


def broken_off(path: Path, folder: Path, after: int = 50, **options: Any) -> None:
    with pytest.raises(ConnectionError) as caught:
        decompose(breaking(path, after), 3, checkpoint=folder, **options)
    assert str(folder) in caught.value.__notes__[0]


@pytest.mark.parametrize("method", ["gram", "tsqr", "lanczos"])
def test_resumed_from_anywhere_it_is_bit_equal(table: Path, tmp_path: Path, method: str) -> None:
    expected, reads = whole(table, method)
    rng = random.Random(method)
    for number, after in enumerate(sorted(rng.sample(range(20, reads), 4))):
        folder = tmp_path / f"kept-{number}"
        broken_off(table, folder, after, method=method, threads=2)
        rest, again = counted(open_matrix(table))
        found = decompose(rest, 3, method=method, threads=1, checkpoint=folder, resume=True)
        assert same_bits(found, expected)
        assert not folder.exists()
        if after > 50:
            assert len(again.reads) < reads - after / 2


def test_resumed_with_samples_left_out(tmp_path: Path) -> None:
    X = planted(N, P, k=5)
    X[np.random.default_rng(3).integers(0, N, 40), 7] = np.nan
    table = write_bare(tmp_path / "gaps.zarr", X, chunks=(15, P))
    screening = Screening(missing="drop-samples")
    expected = select(table, 3, 5, screening=screening)
    broken_off(table, tmp_path / "kept", screening=screening)
    found = select(table, 3, 5, screening=screening, checkpoint=tmp_path / "kept", resume=True)
    assert len(found.factor.features.dropped) == len(np.flatnonzero(np.isnan(X).any(axis=1)))
    assert same_bits(found.factor, expected.factor)
    assert found.selected.tolist() == expected.selected.tolist()


def test_several_breaks_in_one_run(table: Path, tmp_path: Path) -> None:
    options: Any = {"method": "lanczos", "checkpoint": tmp_path / "kept", "resume": True}
    found, runs = None, 0
    while found is None:
        runs += 1
        assert runs < 100
        with contextlib.suppress(ConnectionError):
            found = decompose(breaking(table, 30), 3, **options)
    assert runs > 3
    assert same_bits(found, whole(table, "lanczos")[0])


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_file_is_set_aside(table: Path, tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "kept"
    broken_off(table, folder)
    largest = max(folder.rglob("*.state"), key=lambda path: path.name)
    content = bytearray(largest.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
    largest.write_bytes(content[: {"cut": -7, "empty": 0}.get(damage, len(content))])
    told: list[Event] = []
    found = decompose(table, 3, checkpoint=folder, resume=True, progress=told.append)
    assert same_bits(found, whole(table)[0])
    notices = [event.text for event in told if isinstance(event, Noticed)]
    assert any(str(largest) in notice and "damaged" in notice for notice in notices)
    restored = [e.count for e in told if isinstance(e, Advanced) and e.restored]
    read = [e.count for e in told if isinstance(e, Advanced) and not e.restored]
    assert restored
    assert sum(restored) + sum(read) == N


def test_a_checkpoint_that_does_not_belong_is_refused(table: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    broken_off(table, folder, method="lanczos", threads=1)
    assert 1 <= len(list(folder.rglob("*.state"))) <= 7  # of the bits of the partitions done
    other = write_bare(tmp_path / "other.zarr", planted(N, P, seed=1), chunks=(15, P))
    refused: list[tuple[Any, int, dict[str, Any], str]] = [
        (other, 3, {"method": "lanczos"}, "data values"),
        (table, 4, {"method": "lanczos"}, "k: 3, now 4"),
        (table, 3, {"method": "gram"}, "method: lanczos, now gram"),
        (table, 3, {"method": "lanczos", "precision": "float32"}, "precision: float64"),
        (table, 3, {"method": "lanczos", "lanczos": LanczosOptions(seed=1)}, "seed: 0, now 1"),
    ]
    kept = sorted(p.name for p in folder.rglob("*"))
    for data, k, options, why in refused:
        with pytest.raises(RequestError) as caught:
            decompose(data, k, checkpoint=folder, resume=True, **options)
        assert caught.value.code == "wrong_checkpoint"
        assert why in caught.value.message
        assert not hasattr(caught.value, "__notes__")
    with pytest.raises(RequestError) as caught:
        decompose(table, 3, checkpoint=folder)
    assert caught.value.code == "checkpoint_exists"
    assert "`resume=True`" in caught.value.remedy
    assert sorted(p.name for p in folder.rglob("*")) == kept
    (folder / "checkpoint.json").write_text("{")
    with pytest.raises(BrokenError) as damaged:
        decompose(table, 3, checkpoint=folder, resume=True)
    assert damaged.value.code == "damaged_checkpoint"


def test_places_that_are_no_checkpoint_are_refused(table: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear")
    for place, resume, code in (
        (tmp_path / "mine", False, "not_a_checkpoint"),
        (tmp_path / "mine", True, "not_a_checkpoint"),
        (tmp_path / "no" / "where", False, "no_folder"),
    ):
        with pytest.raises(RequestError) as caught:
            decompose(table, 3, checkpoint=place, resume=resume)
        assert caught.value.code == code
    assert (tmp_path / "mine" / "letter").read_text() == "dear"
    with pytest.raises(RequestError, match="nothing to resume"):
        decompose(table, 3, resume=True)


def test_states_of_other_constants_are_not_merged(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kept"
    with monkeypatch.context() as other_machine:
        other_machine.setattr("dask.base.tokenize", lambda kernel, **how: "other constants")
        broken_off(table, folder, 100, method="lanczos")
    told: list[Event] = []
    options: Any = {"method": "lanczos", "checkpoint": folder, "resume": True}
    found = decompose(table, 3, progress=told.append, **options)
    assert same_bits(found, whole(table, "lanczos")[0])
    assert not any(event.restored for event in told if isinstance(event, Advanced))


def test_a_checkpoint_that_cannot_be_written_is_said(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(state: Any, file: Any, protocol: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints.pickle, "dump", full)
    with pytest.raises(BrokenError, match="No space left") as caught:
        decompose(table, 3, checkpoint=tmp_path / "kept")
    assert caught.value.code == "checkpoint_failed"


def test_long_runs_keep_a_checkpoint_beside_their_output(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computing, "CHECKPOINTED_BYTES", N * P * 8)
    out = tmp_path / "out.zarr"
    with pytest.raises(ConnectionError, match="gone"):
        select(breaking(table, 50), 3, 5, out=out)
    kept = tmp_path / "out.zarr.checkpoint"
    assert list(kept.rglob("*.state"))
    result = select(table, 3, 5, out=out, resume=True)
    assert same_bits(result.factor, whole(table)[0])
    assert not kept.exists()
    monkeypatch.setattr(computing, "CHECKPOINTED_BYTES", N * P * 8 + 1)
    with pytest.raises(ConnectionError) as caught:
        select(breaking(table, 50), 3, 5, out=tmp_path / "next.zarr")
    assert not hasattr(caught.value, "__notes__")
    assert [p.name for p in tmp_path.iterdir()] == ["out.zarr"]


def test_what_was_read_survives_a_failed_write(table: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "kept", tmp_path / "out.zarr"

    class Unwritable(CountingRows):
        def take(self, start: int, stop: int, columns: Any) -> Any:
            raise OSError(28, "No space left on device")

    matrix = open_matrix(table)
    failing = dataclasses.replace(matrix, rows=Unwritable(matrix.rows))
    with pytest.raises(BrokenError, match="No space left"):
        select(failing, 3, 5, out=out, checkpoint=folder)
    assert not out.exists()
    rest, again = counted(matrix)
    select(rest, 3, 5, out=out, checkpoint=folder, resume=True)
    assert len(again.reads) <= 16  # the probe, and nothing else
    assert len({start for start, _ in again.reads}) == len(again.reads)
    assert out.exists()
    assert not folder.exists()


def test_resume_without_a_checkpoint_begins_anew(table: Path, tmp_path: Path) -> None:
    told: list[Event] = []
    found = decompose(table, 3, checkpoint=tmp_path / "kept", resume=True, progress=told.append)
    assert same_bits(found, whole(table)[0])
    (said,) = (event.text for event in told if isinstance(event, Noticed))
    assert said.startswith("there is no checkpoint to go on from: the run begins anew")


@pytest.mark.parametrize("when", ["read", "take"])
def test_data_that_change_meanwhile_are_reported(tmp_path: Path, when: str) -> None:
    table = write_bare(tmp_path / "data.zarr", planted(N, P), chunks=(15, P))
    chunk = table / "c" / "3" / "0"

    class Changing(CountingRows):
        def read(self, start: int, stop: int) -> Any:
            if when == "read" and len(self.reads) == 40:
                chunk.write_bytes(chunk.read_bytes() + b" ")
            return super().read(start, stop)

        def take(self, start: int, stop: int, columns: Any) -> Any:
            if when == "take" and not self.takes:  # while columns are copied
                chunk.write_bytes(chunk.read_bytes())
            return super().take(start, stop, columns)

    matrix = open_matrix(table)
    changing = dataclasses.replace(matrix, rows=Changing(matrix.rows))
    with pytest.raises(BrokenError) as caught:
        select(changing, 3, 5, out=tmp_path / "out.zarr")
    assert caught.value.code == "source_changed"
    assert not (tmp_path / "out.zarr").exists()


def test_killed_while_the_folder_is_made_or_removed(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, kept = whole(table)[0], tmp_path / "kept"
    for resume in (False, True):
        kept.mkdir()
        (kept / ".checkpoint.json-0123abcd").write_text("{")
        assert same_bits(decompose(table, 3, checkpoint=kept, resume=resume), expected)
        assert not kept.exists()

    def die(place: Path) -> None:
        raise KeyboardInterrupt

    for survived in range(2):  # of what is removed one after the other
        removals = iter([checkpoints.remove] * survived + [die])
        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "remove", lambda place, rest=removals: next(rest)(place))
            with pytest.raises(KeyboardInterrupt):
                decompose(table, 3, checkpoint=kept)
        assert same_bits(decompose(table, 3, checkpoint=kept, resume=True), expected)
        assert not kept.exists()

"""Results appear whole or not at all, and nothing else is touched."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import xarray as xr
import zarr
from helpers import chunk_files, contents, planted, write_bare
from processes import Begun
from sources import anndata_stores as stores

from kmufs_stream import BrokenError, RequestError, decompose, open_matrix, select
from kmufs_stream.storage.output import check_output, new_output

X = planted(100, 8)


@contextlib.contextmanager
def new_store(out: Path, *, overwrite: bool) -> Iterator[Path]:
    with new_output(out, overwrite=overwrite) as folder:
        folder.mkdir()
        yield folder


def names(folder: Path) -> list[str]:
    return sorted(f.name for f in folder.iterdir())


def old(path: Path) -> Path:
    path.mkdir()
    (path / "zarr.json").write_text("old")
    return path


def is_old(path: Path) -> bool:
    return (path / "zarr.json").read_text() == "old"


@pytest.mark.parametrize(
    "error", [None, ValueError("x"), KeyboardInterrupt(), OSError(28, "full")], ids=repr
)
@pytest.mark.parametrize("existed", [False, True])
def test_store_appears_when_the_block_ends_or_leaves_nothing(
    tmp_path: Path, error: BaseException | None, existed: bool
) -> None:
    out = old(tmp_path / "out.zarr") if existed else tmp_path / "out.zarr"
    caught: BaseException | None = None
    try:
        with new_store(out, overwrite=True) as folder:
            assert folder.parent == tmp_path
            (folder / "zarr.json").write_text("new")
            assert is_old(out) if existed else not out.exists()
            if error is not None:
                raise error
    except BaseException as raised:
        caught = raised
    if isinstance(error, OSError):
        assert isinstance(caught, BrokenError)
        assert (caught.code, "full" in caught.message) == ("write_failed", True)
    else:
        assert caught is error
    assert names(tmp_path) == (["out.zarr"] if existed or error is None else [])
    if names(tmp_path):
        assert (out / "zarr.json").read_text() == ("new" if error is None else "old")


def test_old_store_survives_a_rename_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = old(tmp_path / "out.zarr")
    rename = Path.rename

    def fail(self: Path, target: Any) -> Path:
        if ".partial-" in self.name:
            raise OSError(5, "input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(BrokenError), new_store(out, overwrite=True):
        pass
    assert names(tmp_path) == ["out.zarr"]
    assert is_old(out)


def test_crash_between_the_renames_is_repaired(tmp_path: Path) -> None:
    script = f"""
import os
from pathlib import Path
from kmufs_stream.storage import output
rename = Path.rename
def die(self, target):
    if ".partial-" in self.name:
        os._exit(9)
    return rename(self, target)
Path.rename = die
with output.new_output(Path({str(tmp_path / "out.zarr")!r}), overwrite=True) as folder:
    folder.mkdir()
"""
    out = old(tmp_path / "out.zarr")
    assert Begun(exec, script, {}).end() == 9
    assert not out.exists()
    with pytest.raises(RequestError) as caught:
        check_output(out, [], overwrite=False)
    assert caught.value.code == "output_exists"
    assert names(tmp_path) == ["out.zarr"]
    assert is_old(out)
    old(tmp_path / ".out.zarr.previous")  # a crash after both
    check_output(out, [], overwrite=True)
    assert names(tmp_path) == ["out.zarr"]


def test_a_last_write_that_makes_the_folder_anew_leaves_nothing(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                folder.mkdir(exist_ok=True)
                (folder / "chunk").write_bytes(b"late")

    writers: list[threading.Thread] = []
    with contextlib.suppress(ZeroDivisionError), new_store(tmp_path / "out", overwrite=False) as to:
        writers.append(threading.Thread(target=write, args=(to,)))
        writers[0].start()
        raise ZeroDivisionError
    writers[0].join()
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["out.zarr", "out[1].zarr"])
def test_partial_stores_of_dead_processes_are_in_nobodys_way(tmp_path: Path, name: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    dead, alive = child.pid, os.getppid()
    left = [f".{name}.partial-{alive}", f".other.zarr.partial-{dead}"]
    ours = f".{name}.partial-{os.getpid()}"  # of an earlier process with our id
    for partial_store in (*left, ours, f".{name}.partial-{dead}"):
        (tmp_path / partial_store).mkdir()
    check_output(tmp_path / name, [], overwrite=False)
    assert names(tmp_path) == sorted(left)
    (tmp_path / ours).mkdir()
    select(X, 2, 3, out=tmp_path / name)
    assert names(tmp_path) == sorted([*left, name])


def test_output_and_input_in_one_another_are_refused(tmp_path: Path) -> None:
    data, factor = tmp_path / "data", tmp_path / "data" / "f.zarr"
    path = write_bare(data / "x.zarr", X)
    decompose(X, 2, out=factor)
    (data / "link").symlink_to(path)
    before = contents(tmp_path)
    array = zarr.open_array(path, mode="r")
    given: list[tuple[Any, str, Path | None]] = [
        *((path, out, None) for out in ("x.zarr", "x.zarr/out.zarr", ".", "link")),
        (open_matrix(path), "x.zarr", None),
        (array, "x.zarr", None),
        (X, "f.zarr", factor),
    ]
    for table, out, made in given:
        with pytest.raises(RequestError, match="overlaps the input") as caught:
            select(table, 2, 3, out=data / out, overwrite=True, factor=made)
        assert caught.value.code == "output_is_input"
        assert contents(tmp_path) == before


def test_two_outputs_in_one_another_are_refused(tmp_path: Path) -> None:
    cells = stores.write_zarr3(stores.annotated(stores.counts(40, 8)), tmp_path / "cells")
    out = tmp_path / "out.zarr"
    (tmp_path / "link.zarr").symlink_to(out)
    for exists in (False, True):
        if exists:
            select(cells, 2, 3, solver="exact", selection_only=True, out=out)
        before = names(tmp_path)
        for parameter in ("anndata_out", "checkpoint"):
            for other in ("out.zarr", "out.zarr/in.zarr", "link.zarr", "."):
                more: Any = {parameter: tmp_path / other}
                with pytest.raises(RequestError, match="overlaps the output") as caught:
                    select(cells, 2, 3, out=out, overwrite=True, **more)
                assert caught.value.code == "outputs_overlap"
                assert parameter in caught.value.remedy
        assert names(tmp_path) == before
    with pytest.raises(RequestError, match="overlaps the output"):
        decompose(X, 2, out=out, checkpoint=tmp_path, overwrite=True)


def test_output_that_exists_is_kept_unless_told(tmp_path: Path) -> None:
    out, broken = tmp_path / "out.zarr", write_bare(tmp_path / "x.zarr", X)
    chunk_files(broken)[0].write_bytes(b"broken")
    select(X, 2, 3, out=out)
    before = {f: f.stat().st_mtime_ns for f in out.rglob("*")}
    for data in (X, broken):  # which is not read before
        with pytest.raises(RequestError) as caught:
            select(data, 2, 4, out=out)
        assert caught.value.code == "output_exists"
        assert "`overwrite=True`" in caught.value.remedy
    assert {f: f.stat().st_mtime_ns for f in out.rglob("*")} == before
    select(X, 2, 4, out=out, overwrite=True)
    with xr.open_zarr(out) as opened:
        assert opened.sizes["feature"] == 4
    assert names(tmp_path) == ["out.zarr", "x.zarr"]


@pytest.mark.parametrize("what", ["precious", "precious/thesis.txt"])
def test_only_stores_are_overwritten(tmp_path: Path, what: str) -> None:
    (tmp_path / what).parent.mkdir(exist_ok=True)
    (tmp_path / what).write_text("years of work")
    with pytest.raises(RequestError, match="is not a Zarr store") as caught:
        select(X, 2, 3, out=tmp_path / "precious", overwrite=True)
    assert caught.value.code == "output_exists"
    assert (tmp_path / what).read_text() == "years of work"


def test_folder_that_is_not_there_or_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, *args: Any, **options: Any) -> None:
        raise PermissionError(13, "denied")

    monkeypatch.setattr(Path, "touch", refuse)
    for out, code in (("no/out.zarr", "no_folder"), ("out.zarr", "not_writable")):
        with pytest.raises(RequestError) as caught:
            select(X, 2, 3, out=tmp_path / out)
        assert caught.value.code == code
    assert names(tmp_path) == []


def test_chunk_that_breaks_while_the_subset_is_written(tmp_path: Path) -> None:
    path, out = write_bare(tmp_path / "x.zarr", X, chunks=(30, 4)), old(tmp_path / "out.zarr")
    factor, chunk = decompose(path, 2), path / "c/3/0"
    whole = chunk.stat()
    chunk.write_bytes(os.urandom(whole.st_size))
    os.utime(chunk, ns=(whole.st_atime_ns, whole.st_mtime_ns))  # the fingerprint holds
    with pytest.raises(BrokenError, match="chunk c/3/0"):
        select(path, 2, 8, factor=factor, out=out, overwrite=True)
    assert names(tmp_path) == ["out.zarr", "x.zarr"]
    assert is_old(out)


def test_output_that_came_into_being_meanwhile_is_left_alone(tmp_path: Path) -> None:
    out, block = tmp_path / "out.zarr", contextlib.ExitStack()
    (block.enter_context(new_store(out, overwrite=False)) / "mine").touch()
    (out / "theirs").mkdir(parents=True)
    with pytest.raises(RequestError, match="meanwhile"):
        block.close()
    assert (out / "theirs").exists()
    assert names(tmp_path) == ["out.zarr"]

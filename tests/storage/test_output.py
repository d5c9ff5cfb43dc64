"""Results appear whole or not at all, and nothing else is touched."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from helpers import planted, write_bare, write_xarray
from processes import Begun
from sources import anndata_stores as stores

from kmufs_stream import BrokenError, RequestError, decompose, open_matrix, save_factor, select
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


def dead_process() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_store_appears_when_the_block_ends(tmp_path: Path) -> None:
    out = tmp_path / "out.zarr"
    with new_store(out, overwrite=True) as folder:
        assert folder.is_dir()
        assert folder.parent == tmp_path
        (folder / "zarr.json").write_text("new")
        assert not out.exists()
    assert names(tmp_path) == ["out.zarr"]
    assert (out / "zarr.json").read_text() == "new"


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), OSError(28, "full")])
@pytest.mark.parametrize("existed", [False, True])
def test_nothing_is_left_of_a_store_that_fails(
    tmp_path: Path, error: BaseException, existed: bool
) -> None:
    out = old(tmp_path / "out.zarr") if existed else tmp_path / "out.zarr"
    expected: Any = BrokenError if isinstance(error, OSError) else type(error)

    def write() -> None:
        with new_store(out, overwrite=True) as folder:
            (folder / "zarr.json").write_text("half")
            raise error

    with pytest.raises(expected) as caught:
        write()
    if isinstance(caught.value, BrokenError):
        assert caught.value.code == "write_failed"
        assert "full" in caught.value.message
    assert names(tmp_path) == (["out.zarr"] if existed else [])
    assert not existed or is_old(out)


def test_new_store_replaces_the_old_one(tmp_path: Path) -> None:
    out = old(tmp_path / "out.zarr")
    with new_store(out, overwrite=True) as folder:
        (folder / "zarr.json").write_text("new")
        assert is_old(out)
    assert names(tmp_path) == ["out.zarr"]
    assert (out / "zarr.json").read_text() == "new"


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
    old(tmp_path / ".out.zarr.previous")
    out = tmp_path / "out.zarr"
    with pytest.raises(RequestError) as caught:
        check_output(out, [], overwrite=False)
    assert caught.value.code == "output_exists"
    assert names(tmp_path) == ["out.zarr"]
    assert is_old(out)


def test_crash_after_the_renames_is_cleaned_up(tmp_path: Path) -> None:
    old(tmp_path / ".out.zarr.previous")
    out = old(tmp_path / "out.zarr")
    check_output(out, [], overwrite=True)
    assert names(tmp_path) == ["out.zarr"]


def test_real_crash_is_repaired(tmp_path: Path) -> None:
    script = f"""
import os
from pathlib import Path
from kmufs_stream.storage import output
out = Path({str(tmp_path / "out.zarr")!r})
rename = Path.rename
def die(self, target):
    if ".partial-" in self.name:
        os._exit(9)
    return rename(self, target)
Path.rename = die
with output.new_output(out, overwrite=True) as folder:
    folder.mkdir()
    (folder / "zarr.json").write_text("new")
"""
    old(tmp_path / "out.zarr")
    assert Begun(exec, script, {}).end() == 9
    assert not (tmp_path / "out.zarr").exists()
    check_output(tmp_path / "out.zarr", [], overwrite=True)
    assert names(tmp_path) == ["out.zarr"]
    assert is_old(tmp_path / "out.zarr")


def test_a_last_write_that_makes_the_folder_anew_leaves_nothing(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                folder.mkdir(exist_ok=True)
                (folder / "chunk").write_bytes(b"late")

    def broken_off() -> None:
        with new_store(tmp_path / "out", overwrite=False) as folder:
            writers.append(threading.Thread(target=write, args=(folder,)))
            writers[0].start()
            raise KeyboardInterrupt

    writers: list[threading.Thread] = []
    with pytest.raises(KeyboardInterrupt):
        broken_off()
    writers[0].join()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["out.zarr", "out[1].zarr"])
def test_partial_stores_of_dead_processes_are_removed(tmp_path: Path, name: str) -> None:
    dead = tmp_path / f".{name}.partial-{dead_process()}"
    alive = tmp_path / f".{name}.partial-{os.getppid()}"
    other = tmp_path / f".other.zarr.partial-{dead_process()}"
    for folder in (dead, alive, other):
        folder.mkdir()
    check_output(tmp_path / name, [], overwrite=False)
    assert not dead.exists()
    assert alive.exists()
    assert other.exists()


def test_partial_store_of_an_earlier_process_with_our_id_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / f".out.zarr.partial-{os.getpid()}").mkdir()
    select(X, 2, 3, out=tmp_path / "out.zarr")
    assert names(tmp_path) == ["out.zarr"]


@pytest.mark.parametrize("out", ["x.zarr", "x.zarr/out.zarr", ".", "link"])
@pytest.mark.parametrize("kind", ["path", "matrix", "array"])
def test_output_and_input_in_one_another_are_refused(tmp_path: Path, out: str, kind: str) -> None:
    path = write_bare(tmp_path / "data" / "x.zarr", X)
    (tmp_path / "data" / "link").symlink_to(path)
    data: Any = path if kind == "path" else open_matrix(path)
    if kind == "array":
        data = zarr.open_array(path, mode="r")
    with pytest.raises(RequestError, match="overlaps the input") as caught:
        select(data, 2, 3, out=tmp_path / "data" / out, overwrite=True)
    assert caught.value.code == "output_is_input"
    np.testing.assert_array_equal(zarr.open_array(path, mode="r")[...], X)


def test_output_over_its_factor_is_refused(tmp_path: Path) -> None:
    save_factor(decompose(X, 2), tmp_path / "f.zarr")
    with pytest.raises(RequestError) as caught:
        select(X, 2, 3, factor=tmp_path / "f.zarr", out=tmp_path / "f.zarr", overwrite=True)
    assert caught.value.code == "output_is_input"


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("other", ["out.zarr", "out.zarr/in.zarr", "link.zarr"])
@pytest.mark.parametrize("parameter", ["anndata_out", "checkpoint"])
def test_two_outputs_in_one_another_are_refused(
    tmp_path: Path, parameter: str, other: str, exists: bool
) -> None:
    stores.write_zarr3(stores.annotated(stores.counts()), tmp_path / "cells")
    cells, out = tmp_path / "cells.zarr", tmp_path / "out.zarr"
    if exists:
        select(cells, 2, 3, out=out)
    (tmp_path / "link.zarr").symlink_to(out)
    before = names(tmp_path)
    more: Any = {parameter: tmp_path / other}
    with pytest.raises(RequestError, match="overlaps the output") as caught:
        select(cells, 2, 3, out=out, overwrite=True, **more)
    assert (caught.value.code, parameter in caught.value.remedy) == ("outputs_overlap", True)
    assert names(tmp_path) == before


def test_an_output_inside_its_own_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    for run in (partial(select, X, 2, 3), partial(decompose, X, 2)):
        with pytest.raises(RequestError, match="kept overlaps the output"):
            run(out=tmp_path / "kept" / "out.zarr", checkpoint=tmp_path / "kept")
    assert names(tmp_path / "kept") == []


def test_output_that_exists_is_kept_unless_told(tmp_path: Path) -> None:
    out = tmp_path / "out.zarr"
    select(X, 2, 3, out=out)
    before = {f: f.stat().st_mtime_ns for f in out.rglob("*")}
    with pytest.raises(RequestError) as caught:
        select(X, 2, 4, out=out)
    assert caught.value.code == "output_exists"
    assert "`overwrite=True`" in caught.value.remedy
    assert {f: f.stat().st_mtime_ns for f in out.rglob("*")} == before
    select(X, 2, 4, out=out, overwrite=True)
    with xr.open_zarr(out) as opened:
        assert opened.sizes["feature"] == 4
    assert names(tmp_path) == ["out.zarr"]


@pytest.mark.parametrize("what", ["file", "folder"])
def test_only_stores_are_overwritten(tmp_path: Path, what: str) -> None:
    out = tmp_path / "precious"
    if what == "file":
        out.write_text("years of work")
    else:
        out.mkdir()
        (out / "thesis.txt").write_text("years of work")
    with pytest.raises(RequestError, match="is not a Zarr store") as caught:
        select(X, 2, 3, out=out, overwrite=True)
    assert caught.value.code == "output_exists"
    assert (out if what == "file" else out / "thesis.txt").read_text() == "years of work"


def test_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(RequestError) as caught:
        select(X, 2, 3, out=tmp_path / "no" / "out.zarr")
    assert caught.value.code == "no_folder"
    assert names(tmp_path) == []


def test_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *args: Any, **options: Any) -> None:
        raise PermissionError(13, "denied")

    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(RequestError) as caught:
        select(X, 2, 3, out=tmp_path / "out.zarr")
    assert caught.value.code == "not_writable"
    assert names(tmp_path) == []


def test_checks_come_before_any_reading(tmp_path: Path) -> None:
    path = write_bare(tmp_path / "x.zarr", X)
    for chunk in (path / "c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(b"broken")
    old(tmp_path / "out.zarr")
    with pytest.raises(RequestError) as caught:
        select(path, 2, 3, out=tmp_path / "out.zarr")
    assert caught.value.code == "output_exists"


@pytest.mark.parametrize("existed", [False, True])
def test_chunk_that_breaks_while_the_subset_is_written(tmp_path: Path, existed: bool) -> None:
    array = xr.DataArray(X, dims=("s", "f"), name="x")
    path = write_xarray(tmp_path / "x.zarr", array, chunks=(30, 4))
    factor = decompose(path, 2)
    chunk = path / "x" / "c" / "3" / "0"
    whole = chunk.stat()
    chunk.write_bytes(os.urandom(whole.st_size))
    os.utime(chunk, ns=(whole.st_atime_ns, whole.st_mtime_ns))  # the fingerprint holds
    out = tmp_path / "out.zarr"
    if existed:
        old(out)
    with pytest.raises(BrokenError, match="chunk c/3/0"):
        select(path, 2, 8, factor=factor, out=out, overwrite=True)
    assert names(tmp_path) == (["out.zarr", "x.zarr"] if existed else ["x.zarr"])
    assert not existed or is_old(out)


def test_output_that_came_into_being_meanwhile_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "out.zarr"

    def write() -> None:
        with new_store(out, overwrite=False) as folder:
            (folder / "mine").touch()
            out.mkdir()
            (out / "theirs").touch()

    with pytest.raises(RequestError, match="meanwhile"):
        write()
    assert (out / "theirs").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["out.zarr"]

"""Stores in object stores and in Python: the bits of local ones, whole or not there."""

from __future__ import annotations

import contextlib
import json
import pickle
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import fsspec
import icechunk
import numpy as np
import pytest
import s3fs
import xarray as xr
import zarr
from botocore.exceptions import EndpointConnectionError
from fsspec.implementations.memory import MemoryFileSystem
from helpers import Bucket, environment, planted, same_bits, same_result, write_xarray
from moto.core import set_initial_no_auth_action_count
from processes import Begun
from upath import UPath
from zarr.storage import FsspecStore, LocalStore, MemoryStore, WrapperStore

from kmufs_stream import (
    BrokenError,
    KmufsError,
    RequestError,
    apply,
    decompose,
    evaluate,
    load_factor,
    open_matrix,
    select,
)
from kmufs_stream.sources.zarr_rows import StoredRows
from kmufs_stream.storage import address_store, object_output, retrying
from kmufs_stream.storage.output import check_output, new_zarr
from kmufs_stream.storage.places import place_of, store_error

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def genes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """genes.zarr: 120 x 12 with labels and classes, in six chunks."""
    table = xr.DataArray(
        planted(120, 12),
        dims=("cell", "gene"),
        name="counts",
        coords={"gene": [f"gene {i}" for i in range(12)], "batch": ("cell", np.arange(120) % 3)},
    )
    return write_xarray(
        tmp_path_factory.mktemp("genes") / "genes.zarr", table, chunks=(20, 12), consolidated=False
    )


@pytest.fixture(scope="module")
def here(genes: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What is selected of it, written to this machine."""
    return select(genes, 3, 4, out=tmp_path_factory.mktemp("here") / "chosen.zarr")


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> str:
    """An address in fsspec's memory, empty at first."""
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    monkeypatch.setattr(MemoryFileSystem, "pseudo_dirs", [""])
    return "memory://place"


def test_everything_in_s3_as_on_disk_and_secrets_nowhere(
    bucket: Bucket,
    genes: Path,
    here: Any,
    tmp_path: Path,
    s3_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed: list[str] = []
    find = s3fs.S3FileSystem._find

    async def noted(self: Any, path: str, *args: Any, **kwargs: Any) -> Any:
        listed.append(path)
        return await find(self, path, *args, **kwargs)

    there, out = bucket.put(genes), bucket.at("chosen.zarr")
    secrets = {"key": "the-key", "secret": "sesame-open"}
    alone: Any = {"storage_options": secrets | {"endpoint_url": s3_server}}
    refused = []
    with monkeypatch.context() as patch:
        patch.delenv("AWS_ACCESS_KEY_ID")
        patch.delenv("AWS_SECRET_ACCESS_KEY")
        for place, h in ((there, 400), (bucket.at("none.zarr"), 4)):
            with pytest.raises(KmufsError) as caught:
                select(place, 3, h, out=out, **alone)
            refused += [str(caught.value), repr(caught.value)]
        with pytest.raises(RequestError) as asked:
            open_matrix(f"s3://the-key:sesame-open@{bucket.name}/genes.zarr")
        assert asked.value.code == "secret_in_address"
        refused.append(str(asked.value))
        patch.setattr(s3fs.S3FileSystem, "_find", noted)
        found = select(there, 3, 4, out=out, checkpoint=bucket.at("kept"), **alone)
    # The chunks are listed once before and once after.
    assert [p for p in listed if "genes.zarr" in p] == [f"{bucket.name}/genes.zarr/counts"] * 2
    assert same_bits(found.factor, here.factor)
    assert found.summary()["output"] == out
    assert {key.partition("/")[0] for key in bucket.objects()} == {"genes.zarr", "chosen.zarr"}
    same_result(out, here.output)
    metadata = [key for key in bucket.objects("chosen.zarr") if key.endswith("zarr.json")]
    objects = [bucket.fs.cat_file(f"{bucket.name}/{key}") for key in metadata]
    shown = [repr(found), json.dumps(found.summary()), repr(found.matrix.provenance.place)]
    for text in [*refused, *shown, *(content.decode("latin1") for content in objects)]:
        assert "sesame-open" not in text
        assert "the-key" not in text

    xr.testing.assert_identical(found.dataset.load(), xr.open_zarr(out).load())
    factor = bucket.at("factor.zarr")
    assert same_bits(decompose(there, 3, out=factor), here.factor)
    assert same_bits(load_factor(factor), here.factor)
    assert select(there, 3, 4, factor=factor).selected.tolist() == here.selected.tolist()
    judged = [evaluate(place, labels="batch").agreement for place in (out, here.output)]
    assert judged[0] == judged[1]
    assert apply(out, there, out=tmp_path / "again.zarr").matched == "label"
    again = xr.open_zarr(tmp_path / "again.zarr")
    np.testing.assert_array_equal(again["counts"], found.dataset["counts"])


@pytest.mark.parametrize(("where", "zarr_format"), [("memory", 2), ("bucket", 3)])
def test_until_it_is_whole_there_is_no_store(
    request: pytest.FixtureRequest, where: str, zarr_format: Any
) -> None:
    given = request.getfixturevalue(where)
    out = place_of(f"{given}/out.zarr" if where == "memory" else given.at("out.zarr"))
    assert isinstance(out, UPath)

    def is_there(expected: xr.Dataset | None) -> bool:
        if expected is None:
            with pytest.raises(FileNotFoundError):
                zarr.open(str(out), mode="r")
            return True
        return expected.identical(xr.open_zarr(str(out)).load())

    made, newer = xr.Dataset({"x": ("i", np.arange(3))}), xr.Dataset({"y": ("j", np.ones(2))})
    for fails, before in ((True, None), (False, None), (True, made), (False, made)):
        with contextlib.suppress(ZeroDivisionError), new_zarr(out, overwrite=True) as root:
            writing = newer if before else made
            writing.to_zarr(root, mode="w", zarr_format=zarr_format, consolidated=False)
            assert is_there(before)
            if fails:
                raise ZeroDivisionError
        after = before if fails else writing
        assert is_there(after)
        left = out.fs.find(out.parent.path)
        assert bool(left) == bool(after)
        assert not [path for path in left if "/.out" in path or (after is newer and "/x/" in path)]


@pytest.mark.parametrize("content", [b"half of it", None])
def test_data_that_change_meanwhile_are_noticed(
    memory: str, genes: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    fs, key = fsspec.filesystem("memory"), "/place/genes.zarr/counts/c/3/0"
    fs.put(str(genes), "/place/genes.zarr", recursive=True)
    take = StoredRows.take

    def written_again(self: StoredRows, *where: Any) -> Any:
        fs.pipe_file(key, content or fs.cat_file(key))
        return take(self, *where)

    monkeypatch.setattr(StoredRows, "take", written_again)
    with pytest.raises(BrokenError) as caught:
        select(f"{memory}/genes.zarr", 3, 4, out=f"{memory}/out.zarr")
    assert caught.value.code == "source_changed"
    assert {path.split("/")[2] for path in fs.find("/place")} == {"genes.zarr"}


def test_of_two_runs_one_wins_whole(bucket: Bucket) -> None:
    out, barrier = bucket.at("out.zarr"), threading.Barrier(2)

    def run(number: int) -> KmufsError | None:
        barrier.wait()
        try:
            with new_zarr(place_of(out), overwrite=False) as root:
                made = zarr.open_group(root, mode="w")
                for name in ("a", "b"):
                    made.create_array(name, data=np.full(3, number))
        except KmufsError as error:
            return error
        return None

    with ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(run, range(2)))
    won = ends.index(None)
    lost = ends[1 - won]
    assert lost is not None
    assert lost.code in ("being_written", "output_exists")
    assert out in lost.message
    found = zarr.open_group(out, mode="r")
    assert [found[name][...].tolist() for name in ("a", "b")] == [[won] * 3] * 2
    assert not [key for key in bucket.objects() if key.startswith(".")]


def test_the_lock_of_a_live_run_holds_and_that_of_a_dead_one_is_void(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = place_of(bucket.at("out.zarr"))
    with new_zarr(out, overwrite=False) as root:
        zarr.open_group(root, mode="w")
        with pytest.raises(RequestError, match=r"Process \d+ on .* is writing") as caught:
            check_output(out, [], overwrite=True)
        assert caught.value.code == "being_written"
        assert ".out.zarr.writing/" in caught.value.remedy
    bucket.fs.rm(f"{bucket.name}/out.zarr", recursive=True)

    died = f"""
import os, zarr
from kmufs_stream.storage.output import new_zarr
from kmufs_stream.storage.places import place_of
with new_zarr(place_of({str(out)!r}), overwrite=False) as root:
    zarr.open_group(root, mode="w").create_array("left", data=__import__("numpy").ones(5))
    os._exit(9)
"""
    assert Begun(exec, died, {}).end() == 9
    assert [key for key in bucket.objects() if key.startswith("out.zarr/left/")]
    with monkeypatch.context() as patch:
        patch.setattr(object_output.socket, "gethostname", lambda: "elsewhere")
        with pytest.raises(RequestError, match="is writing"):  # who can tell, from here?
            check_output(out, [], overwrite=False)
    select(planted(30, 6), 2, 3, solver="exact", selection_only=True, out=str(out))
    assert xr.open_zarr(str(out)).sizes["feature"] == 3
    assert not [key for key in bucket.objects() if "left" in key or key.startswith(".")]


def test_a_lock_that_was_taken_away_is_noticed(memory: str) -> None:
    out, theirs = place_of(f"{memory}/out.zarr"), {"token": "theirs", "host": "there"}
    assert isinstance(out, UPath)
    with contextlib.ExitStack() as block:
        zarr.open_group(block.enter_context(new_zarr(out, overwrite=False)), mode="w")
        (lock,) = object_output._locks(out)
        lock.write_bytes(json.dumps(theirs | {"process": 1, "since": "now"}).encode())
        with pytest.raises(RequestError, match="Another run is writing"):
            block.close()
    assert not (out / "zarr.json").exists()
    assert object_output._locks(out)  # it is not ours to remove


def test_a_run_that_failed_here_holds_no_lock_and_a_lost_answer_is_no_other_run(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, put = place_of(f"{memory}/out.zarr"), MemoryFileSystem.pipe_file

    def asked_again(self: Any, *given: Any, **options: Any) -> None:
        put(self, *given, **options)
        put(self, *given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(object_output, "remove", mock.Mock(side_effect=ConnectionResetError))
        with contextlib.suppress(ZeroDivisionError), new_zarr(out, overwrite=False) as root:
            zarr.open_group(root, mode="w")
            raise ZeroDivisionError
    assert object_output._locks(out)
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", asked_again)
    with new_zarr(out, overwrite=False) as root:
        zarr.open_group(root, mode="w").attrs["made"] = "now"
    assert zarr.open_group(str(out), mode="r").attrs["made"] == "now"
    assert not object_output._locks(out)


@pytest.mark.filterwarnings("ignore:Numcodecs codecs")
def test_memory_and_stores_made_in_python(
    memory: str, genes: Path, here: Any, tmp_path: Path
) -> None:
    fsspec.filesystem("memory").put(str(genes), "/place/genes.zarr", recursive=True)
    repository, new = (
        icechunk.Repository.create(icechunk.in_memory_storage()) for _ in ("of the data", "new")
    )
    session, held = repository.writable_session("main"), MemoryStore()
    with xr.open_zarr(genes, consolidated=False) as table:
        for store in (session.store, held):
            table.to_zarr(store, zarr_format=3, consolidated=False)
    session.commit("the data")

    written = new.writable_session("main")
    for data, out in (
        (f"{memory}/genes.zarr", MemoryStore()),
        (repository.readonly_session("main").store, written.store),
        (held, LocalStore(tmp_path / "out.zarr")),
        (LocalStore(genes), FsspecStore.from_url(f"{memory}/there.zarr")),
    ):
        found = select(data, 3, 4, out=out)
        assert same_bits(found.factor, here.factor)
        same_result(out, here.output)
    written.commit("the selection")
    same_result(new.readonly_session("main").store, here.output)
    with pytest.raises(RequestError, match="a IcechunkStore, is not empty"):
        select(genes, 3, 4, out=new.writable_session("main").store, overwrite=True)
    with pytest.raises(RequestError, match="cannot be written"):
        select(genes, 3, 4, out=new.readonly_session("main").store)


def test_a_store_made_in_python_is_empty_again_after_a_failure(genes: Path) -> None:
    class Full(WrapperStore[MemoryStore]):
        async def set(self, key: str, value: Any) -> None:
            if "score" in key:
                raise OSError("no room")
            await super().set(key, value)

    session = icechunk.Repository.create(icechunk.in_memory_storage()).writable_session("main")
    for store in (MemoryStore(), session.store):
        with contextlib.suppress(ZeroDivisionError), new_zarr(store, overwrite=False) as root:
            zarr.open_group(root, mode="w").create_array("x", data=np.ones(3))
            raise ZeroDivisionError
        assert zarr.core.sync.sync(store.is_empty(""))
    with pytest.raises(BrokenError, match="no room"):
        select(genes, 3, 4, out=Full(MemoryStore()))


READING = """
import pickle, sys
from kmufs_stream import open_matrix
address, server = sys.argv[1:]
sent = pickle.loads(sys.stdin.buffer.read())
other = open_matrix(address, storage_options={"endpoint_url": server}).rows  # by another client
assert len(sent.read(0, 5)) == len(other.read(0, 5)) == 5
"""


def test_connections_are_closed_when_a_process_ends(
    bucket: Bucket, genes: Path, s3_server: str
) -> None:
    """Those of a store that it opens, and of one that it is sent."""
    there = bucket.put(genes)
    done = subprocess.run(
        [sys.executable, "-c", READING, there, s3_server],
        env=environment(),
        input=pickle.dumps(open_matrix(there).rows),
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_web_server_is_read_from(genes: Path, here: Any, tmp_path: Path) -> None:
    handler = partial(SimpleHTTPRequestHandler, directory=str(genes.parent))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        found = select(f"{address}/genes.zarr", 3, 4, out=tmp_path / "out.zarr")
        assert same_bits(found.factor, here.factor)
        same_result(tmp_path / "out.zarr", here.output)
        for refused, says in (
            (partial(select, genes, 3, 4, out=f"{address}/out.zarr"), "web address"),
            (partial(decompose, genes, 3, checkpoint=f"{address}/kept"), "web address"),
            (partial(open_matrix, f"{address}/none.zarr"), "does not exist"),
            (partial(open_matrix, f"{address}/genes.zarr?signature=1"), "query"),
        ):
            with pytest.raises(RequestError, match=says):
                refused()
    finally:
        server.shutdown()
        server.server_close()


def test_a_chunk_that_cannot_be_fetched_is_asked_for_again_and_then_named(
    bucket: Bucket, genes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, fails, asked = bucket.put(genes), [2], []
    fetch = s3fs.S3FileSystem._cat_file

    async def unsteady(self: Any, path: str, *args: Any, **kwargs: Any) -> Any:
        if path.endswith("c/3/0"):
            asked.append(path)
            if len(asked) <= fails[0]:
                raise EndpointConnectionError(endpoint_url="the store")
        return await fetch(self, path, *args, **kwargs)

    monkeypatch.setattr(retrying, "FIRST_WAIT", 1e-4)
    monkeypatch.setattr(s3fs.S3FileSystem, "_cat_file", unsteady)
    assert same_bits(decompose(there, 3), decompose(genes, 3))
    fails[0] = 10**9
    with pytest.raises(BrokenError, match=r"chunk counts/c/3/0 of s3://.*: EndpointConn") as caught:
        decompose(there, 3)
    assert caught.value.code == "unreachable"


def test_what_is_not_there(bucket: Bucket) -> None:
    bucket.fs.pipe_file(f"{bucket.name}/single.h5ad", b"HDF")
    for place, code in (
        ("s3://no-such-bucket/x.zarr", "not_found"),
        (bucket.at("none.zarr"), "not_found"),
        (bucket.at("single.h5ad"), "not_zarr"),
        ("gs://bucket/x.zarr", "needs_extra"),
        ("moon://x", "unknown_protocol"),
    ):
        with pytest.raises(RequestError) as caught:
            open_matrix(place)
        assert (caught.value.code, place in caught.value.message) == (code, True)
        assert caught.value.remedy


def test_who_may_not_is_told_so(
    bucket: Bucket, genes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = bucket.put(genes)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    for ask in (
        partial(open_matrix, there),
        partial(select, genes, 3, 4, out=bucket.at("out.zarr")),
        partial(decompose, genes, 3, checkpoint=bucket.at("kept")),
    ):
        with pytest.raises(RequestError) as denied:
            set_initial_no_auth_action_count(0)(ask)()  # the server checks who asks
        assert denied.value.code == "access_denied", denied.value
        assert f"s3://{bucket.name}/" in denied.value.message
    with pytest.raises(BrokenError) as unreachable:
        open_matrix(there, storage_options={"endpoint_url": "http://127.0.0.1:1"})
    assert unreachable.value.code == "unreachable"
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("HOME", "/nowhere")
    with pytest.raises(RequestError) as unknown:
        open_matrix(there, storage_options={"use_ssl": False})
    assert unknown.value.code == "no_credentials"


def test_an_address_is_not_overwritten_by_accident(bucket: Bucket, genes: Path) -> None:
    there, matrix = bucket.put(genes), open_matrix(bucket.at("genes.zarr"))
    array = zarr.open_array(FsspecStore.from_url(f"{there}/counts"), mode="r")
    bucket.fs.pipe_file(f"{bucket.name}/notes/readme.txt", b"mine")
    for data, out, code in (
        (matrix, there, "output_is_input"),
        (matrix, f"{there}/inside", "output_is_input"),
        (matrix, bucket.at(""), "output_is_input"),
        (array, there, "output_is_input"),
        (genes, bucket.at(""), "bad_output"),
        (genes, bucket.at("notes"), "output_exists"),
        (genes, "s3://no-such-bucket/out.zarr", "not_found"),
    ):
        with pytest.raises(RequestError) as caught:
            select(data, 3, 4, out=out, overwrite=True)
        assert caught.value.code == code, out
    with pytest.raises(RequestError, match="exists"):
        decompose(genes, 3, out=there)
    assert bucket.fs.cat_file(f"{bucket.name}/notes/readme.txt") == b"mine"


def test_an_older_output_survives_whatever_fails_before_writing(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = place_of(f"{memory}/out.zarr")
    with new_zarr(out, overwrite=False) as root:
        zarr.open_group(root, mode="w").attrs["made"] = "before"

    for overwrite in (True, False):
        with monkeypatch.context() as patch:
            patch.setattr(object_output, "is_zarr", mock.Mock(side_effect=OSError("gone")))
            with pytest.raises(BrokenError, match="gone"), new_zarr(out, overwrite=overwrite):
                pass
        assert zarr.open_group(f"{memory}/out.zarr", mode="r").attrs["made"] == "before"

    mine = out.with_name("mine")  # type: ignore[union-attr]
    (mine / "notes.txt").write_text("mine")
    with pytest.raises(RequestError, match="created meanwhile"), new_zarr(mine, overwrite=True):
        pass
    assert (mine / "notes.txt").read_text() == "mine"


def test_a_lock_is_put_only_where_none_is_however_a_store_says_so() -> None:
    held: dict[str, bytes] = {}

    def pipe_file(path: str, value: bytes, overwrite: bool = True) -> None:
        """Put an object, as adlfs does."""
        if path in held and not overwrite:
            raise FileExistsError(path)
        held[path] = value

    store = SimpleNamespace(pipe_file=pipe_file, cat_file=held.__getitem__)
    place: Any = SimpleNamespace(fs=store, path="out/claim-0")
    object_output._create(place, b"one")
    with pytest.raises(FileExistsError):
        object_output._create(place, b"another")
    assert held == {"out/claim-0": b"one"}


def test_what_other_object_stores_answer(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for status, code in (
        ({"status_code": 404}, "not_found"),
        ({"status_code": 403}, "access_denied"),
        ({"code": 401}, "access_denied"),
        ({"code": 503}, "unreachable"),
    ):
        error = Exception("No container.\nRequestId:1")
        vars(error).update(status)
        refused = store_error(place_of(memory), error)
        assert refused.code == code
        assert "No container" in refused.message
        assert "RequestId" not in refused.message
    azure = ValueError("Must provide a connection_string or account_name with credentials!!")
    monkeypatch.setattr(UPath, "__new__", mock.Mock(side_effect=azure))
    with pytest.raises(RequestError) as caught:
        place_of("az://container/data.zarr")
    assert caught.value.code == "no_credentials"
    assert "AZURE_STORAGE_CONNECTION_STRING" in caught.value.remedy


def test_only_what_azure_would_close_without_a_loop_is_left_open() -> None:
    for protocol, closes in (("abfs", False), ("s3", True)):
        fs = mock.Mock(protocol=(protocol,))
        closing = [weakref.finalize(fs, print, fs), weakref.finalize(fs, print)]
        address_store._keep_from_closing(fs)
        assert [finalizer.atexit for finalizer in closing] == [closes, closes]
        for finalizer in closing:
            finalizer.detach()

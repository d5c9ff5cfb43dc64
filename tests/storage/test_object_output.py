"""Stores in object stores and in Python: the bits of local ones, whole or not there."""

from __future__ import annotations

import contextlib
import functools
import json
import pickle
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import fsspec
import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr
from botocore.exceptions import EndpointConnectionError
from helpers import Bucket, environment, planted, same_bits, write_xarray
from processes import Begun
from upath import UPath
from zarr.storage import FsspecStore, MemoryStore, WrapperStore

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

SECRET = "sesame-open"


@pytest.fixture
def genes(tmp_path: Path) -> Path:
    """genes.zarr: 120 x 12 with labels and classes, in six chunks."""
    table = xr.DataArray(
        planted(120, 12),
        dims=("cell", "gene"),
        name="counts",
        coords={"gene": [f"gene {i}" for i in range(12)], "batch": ("cell", np.arange(120) % 3)},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return write_xarray(tmp_path / "genes.zarr", table, chunks=(20, 12))


@pytest.fixture
def memory() -> Iterator[str]:
    """An address in fsspec's memory, empty at first."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]
    yield "memory://place"
    fs.store.clear()


def same_result(ours: Any, theirs: Any) -> None:
    """Two written selections hold the same, but for where their source lies."""
    for group in ("", "all_features", "diagnostics"):
        a, b = (xr.open_zarr(s, group=group or None, chunks=None).load() for s in (ours, theirs))
        for dataset in (a, b):
            for key in ("source", "fingerprint"):
                dataset.attrs.pop(key, None)
        xr.testing.assert_identical(a, b)


def test_everything_in_s3_as_on_disk(bucket: Bucket, genes: Path, tmp_path: Path) -> None:
    there, out = bucket.put(genes), bucket.at("chosen.zarr")
    here = select(genes, 3, 4, out=tmp_path / "chosen.zarr")
    found = select(there, 3, 4, out=out, checkpoint=bucket.at("kept"))
    assert found.selected.tolist() == here.selected.tolist()
    assert same_bits(found.factor, here.factor)
    same_result(out, tmp_path / "chosen.zarr")
    assert found.summary()["output"] == out
    xr.testing.assert_identical(found.dataset.load(), xr.open_zarr(out).load())
    assert {key.partition("/")[0] for key in bucket.objects()} == {"genes.zarr", "chosen.zarr"}

    factor = bucket.at("factor.zarr")
    assert same_bits(decompose(there, 3, out=factor), here.factor)
    assert same_bits(load_factor(factor), here.factor)
    assert select(there, 3, 4, factor=factor).selected.tolist() == here.selected.tolist()
    assert (
        evaluate(out, labels="batch").agreement
        == evaluate(tmp_path / "chosen.zarr", labels="batch").agreement
    )
    again = apply(out, there, out=bucket.at("again.zarr"))
    np.testing.assert_array_equal(
        xr.open_zarr(bucket.at("again.zarr"))["counts"], found.dataset["counts"]
    )
    assert again.matched == "label"


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_until_it_is_whole_there_is_no_store(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, zarr_format: Any
) -> None:
    out = place_of(bucket.at("out.zarr"))
    with new_zarr(out, overwrite=False) as root:
        made = xr.Dataset({"x": ("i", np.arange(3))})
        made.to_zarr(root, mode="w", zarr_format=zarr_format, consolidated=False)
        assert any(key.startswith("out.zarr/x/") for key in bucket.objects())
        with pytest.raises(FileNotFoundError):
            zarr.open(str(out), mode="r")
    xr.testing.assert_identical(xr.open_zarr(str(out)).load(), made)

    for fails in (True, False):  # an older one is there until the new one is whole
        try:
            with new_zarr(out, overwrite=True) as root:
                newer = xr.Dataset({"y": ("j", np.ones(2))})
                newer.to_zarr(root, mode="w", zarr_format=zarr_format, consolidated=False)
                xr.testing.assert_identical(xr.open_zarr(str(out)).load(), made)
                if fails:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            xr.testing.assert_identical(xr.open_zarr(str(out)).load(), made)
    xr.testing.assert_identical(xr.open_zarr(str(out)).load(), newer)
    assert not [key for key in bucket.objects() if key.startswith(("out.zarr/x", "."))]


def test_a_failed_run_leaves_nothing(bucket: Bucket, genes: Path) -> None:
    before = bucket.put(genes), bucket.objects()
    chunk = f"{bucket.name}/genes.zarr/counts/c/3/0"
    whole = bucket.fs.cat_file(chunk)
    matrix = open_matrix(before[0])
    bucket.fs.pipe_file(chunk, whole[: len(whole) // 2])
    with pytest.raises(BrokenError, match="chunk c/3/0 of s3://"):
        select(matrix, 3, 4, out=bucket.at("out.zarr"))
    assert bucket.objects() == before[1]


def test_data_that_change_meanwhile_are_noticed(
    memory: str, genes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = fsspec.filesystem("memory")
    fs.put(str(genes), "/place/genes.zarr", recursive=True)
    key = "/place/genes.zarr/counts/c/3/0"
    read = StoredRows.take

    def take(self: StoredRows, *where: Any) -> Any:
        fs.pipe_file(key, fs.cat_file(key))
        return read(self, *where)

    monkeypatch.setattr(StoredRows, "take", take)
    with pytest.raises(BrokenError) as caught:
        select(f"{memory}/genes.zarr", 3, 4, out=f"{memory}/out.zarr")
    assert caught.value.code == "source_changed"
    assert {path.split("/")[2] for path in fs.find("/place")} == {"genes.zarr"}


def test_the_chunks_are_listed_once_before_and_once_after(
    bucket: Bucket, genes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs

    listed: list[str] = []
    find = s3fs.S3FileSystem._find

    async def noted(self: Any, path: str, *args: Any, **kwargs: Any) -> Any:
        listed.append(path)
        return await find(self, path, *args, **kwargs)

    there = bucket.put(genes)
    monkeypatch.setattr(s3fs.S3FileSystem, "_find", noted)
    select(there, 3, 4, out=bucket.at("out.zarr"))
    assert [path for path in listed if "genes.zarr" in path] == [
        f"{bucket.name}/genes.zarr/counts"
    ] * 2


def test_of_two_runs_one_wins_whole(bucket: Bucket, genes: Path, tmp_path: Path) -> None:
    matrix, out = open_matrix(genes), bucket.at("out.zarr")
    results: dict[int, Any] = {}
    barrier = threading.Barrier(2)

    def run(h: int) -> None:
        barrier.wait()
        try:
            results[h] = select(matrix, 3, h, out=out)
        except KmufsError as error:
            results[h] = error

    threads = [threading.Thread(target=run, args=(h,)) for h in (3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (won,) = [h for h, result in results.items() if not isinstance(result, KmufsError)]
    (lost,) = [result for result in results.values() if isinstance(result, KmufsError)]
    assert lost.code in ("being_written", "output_exists")
    assert out in lost.message
    select(genes, 3, won, out=tmp_path / "alone.zarr")
    same_result(out, tmp_path / "alone.zarr")
    assert not [key for key in bucket.objects() if key.startswith(".")]


def test_the_lock_of_a_live_run_holds_and_that_of_a_dead_one_is_void(
    bucket: Bucket, genes: Path, monkeypatch: pytest.MonkeyPatch
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
from kmufs_stream.storage.places import place_of, store_error
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
    select(genes, 3, 4, out=out)
    assert not [key for key in bucket.objects() if "left" in key or key.startswith(".")]


def test_a_lock_that_was_taken_away_is_noticed(memory: str) -> None:
    out = place_of(f"{memory}/out.zarr")
    assert isinstance(out, UPath)

    def written() -> None:
        with new_zarr(out, overwrite=False) as root:
            zarr.open_group(root, mode="w")
            (lock,) = object_output._locks(out)
            theirs = {"token": "theirs", "host": "there", "process": 1, "since": "now"}
            lock.write_bytes(json.dumps(theirs).encode())

    with pytest.raises(RequestError, match="Another run is writing"):
        written()
    assert not (out / "zarr.json").exists()
    assert object_output._locks(out)  # it is not ours to remove


def test_memory_and_stores_made_in_python(memory: str, genes: Path, tmp_path: Path) -> None:
    here = select(genes, 3, 4, out=tmp_path / "chosen.zarr")
    fsspec.filesystem("memory").put(str(genes), "/place/genes.zarr", recursive=True)
    repository = icechunk.Repository.create(icechunk.in_memory_storage())
    session = repository.writable_session("main")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        xr.open_zarr(genes).to_zarr(session.store, zarr_format=3, consolidated=False)
    session.commit("the data")
    held = MemoryStore()
    whole = zarr.storage.LocalStore(genes)
    for key in sorted(str(p.relative_to(genes)) for p in genes.rglob("*") if p.is_file()):
        value = (genes / key).read_bytes()
        zarr.core.sync.sync(held.set(key, zarr.core.buffer.cpu.Buffer.from_bytes(value)))

    for data, out in (
        (f"{memory}/genes.zarr", MemoryStore()),
        (repository.readonly_session("main").store, f"{memory}/out.zarr"),
        (held, zarr.storage.LocalStore(tmp_path / "out.zarr")),
        (whole, FsspecStore.from_url(f"{memory}/there.zarr")),
    ):
        found = select(data, 3, 4, out=out)
        assert same_bits(found.factor, here.factor)
        same_result(out, tmp_path / "chosen.zarr")

    new = icechunk.Repository.create(icechunk.in_memory_storage())
    written = new.writable_session("main")
    select(repository.readonly_session("main").store, 3, 4, out=written.store)
    written.commit("the selection")
    same_result(new.readonly_session("main").store, tmp_path / "chosen.zarr")
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


def test_secrets_are_nowhere(
    bucket: Bucket, genes: Path, tmp_path: Path, s3_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = bucket.put(genes)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    options = {"key": "the-key", "secret": SECRET, "endpoint_url": s3_server}
    out, kept = bucket.at("out.zarr"), bucket.at("kept")
    told: list[str] = []
    with pytest.raises(KmufsError) as caught:
        select(there, 3, 400, out=out, storage_options=options)
    told += [str(caught.value), repr(caught.value)]
    found = select(there, 3, 4, out=out, checkpoint=kept, storage_options=options)
    told += [repr(found), json.dumps(found.summary()), repr(found.matrix.provenance.place)]
    objects = [bucket.fs.cat_file(f"{bucket.name}/{key}") for key in bucket.objects("out.zarr")]
    told += [content.decode("latin1") for content in objects]
    with pytest.raises(KmufsError) as caught:
        select(bucket.at("none.zarr"), 3, 4, storage_options=options)
    told.append(str(caught.value))
    for word in (SECRET, "the-key"):
        assert not [text for text in told if word in text]
    with pytest.raises(RequestError) as caught:
        open_matrix(f"s3://the-key:{SECRET}@{bucket.name}/genes.zarr")
    assert caught.value.code == "secret_in_address"
    assert SECRET not in str(caught.value)
    assert "the-key" not in str(caught.value)


READING = """
import pickle, sys
from kmufs_stream import open_matrix
rows = pickle.loads(sys.stdin.buffer.read()) if len(sys.argv) < 2 else open_matrix(sys.argv[1]).rows
assert len(rows.read(0, 5)) == 5
"""


def test_connections_are_closed_when_a_process_ends(bucket: Bucket, genes: Path) -> None:
    """Of the process that opens a store, and of one that is sent it."""
    there = bucket.put(genes)
    for words, sent in (([there], b""), ([], pickle.dumps(open_matrix(there).rows))):
        done = subprocess.run(
            [sys.executable, "-c", READING, *words],
            env=environment(),
            input=sent,
            capture_output=True,
        )
        assert (done.returncode, done.stderr) == (0, b"")


def test_a_web_server_is_read_from(genes: Path, tmp_path: Path) -> None:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *words: Any) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(tmp_path))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        found = select(f"{address}/genes.zarr", 3, 4, out=tmp_path / "out.zarr")
        assert same_bits(found.factor, decompose(genes, 3))
        assert len(xr.open_zarr(tmp_path / "out.zarr")["gene"]) == 4
        with pytest.raises(RequestError, match="web address"):
            select(genes, 3, 4, out=f"{address}/out.zarr")
        with pytest.raises(RequestError, match="web address"):
            decompose(genes, 3, checkpoint=f"{address}/kept")
        with pytest.raises(RequestError, match="does not exist"):
            open_matrix(f"{address}/none.zarr")
        with pytest.raises(RequestError, match="query"):
            open_matrix(f"{address}/genes.zarr?signature=1")
    finally:
        server.shutdown()
        server.server_close()


def test_a_chunk_that_cannot_be_fetched_is_asked_for_again_and_then_named(
    bucket: Bucket, genes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs

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


@pytest.mark.parametrize(
    ("place", "code"),
    [
        ("s3://no-such-bucket/x.zarr", "not_found"),
        ("{bucket}/none.zarr", "not_found"),
        ("{bucket}/single.h5ad", "not_zarr"),
        ("gs://bucket/x.zarr", "needs_extra"),
        ("moon://x", "unknown_protocol"),
    ],
)
def test_what_is_not_there(bucket: Bucket, place: str, code: str) -> None:
    bucket.fs.pipe_file(f"{bucket.name}/single.h5ad", b"HDF")
    place = place.format(bucket=bucket.at("").rstrip("/"))
    with pytest.raises(RequestError) as caught:
        open_matrix(place)
    assert caught.value.code == code
    assert place in caught.value.message
    assert caught.value.remedy


def test_who_may_not_is_told_so(
    bucket: Bucket, genes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from moto.core import set_initial_no_auth_action_count

    there = bucket.put(genes)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")

    @set_initial_no_auth_action_count(0)
    def asked(ask: Callable[[], Any]) -> None:
        """Of a server that checks who asks."""
        with pytest.raises(RequestError) as caught:
            ask()
        assert caught.value.code == "access_denied", caught.value
        assert f"s3://{bucket.name}/" in caught.value.message

    asked(lambda: open_matrix(there))
    asked(lambda: select(genes, 3, 4, out=bucket.at("out.zarr")))
    asked(lambda: decompose(genes, 3, checkpoint=bucket.at("kept")))
    with pytest.raises(BrokenError) as caught_too:
        open_matrix(there, storage_options={"endpoint_url": "http://127.0.0.1:1"})
    assert caught_too.value.code == "unreachable"
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("HOME", "/nowhere")
    with pytest.raises(RequestError) as caught:
        open_matrix(there, storage_options={"use_ssl": False})
    assert caught.value.code == "no_credentials"


def test_an_address_is_not_overwritten_by_accident(bucket: Bucket, genes: Path) -> None:
    there = bucket.put(genes)
    bucket.fs.pipe_file(f"{bucket.name}/notes/readme.txt", b"mine")
    for out, code in (
        (there, "output_is_input"),
        (f"{there}/inside", "output_is_input"),
        (bucket.at(""), "output_is_input"),
        (bucket.at("notes"), "output_exists"),
        ("s3://no-such-bucket/out.zarr", "not_found"),
    ):
        with pytest.raises(RequestError) as caught:
            select(there, 3, 4, out=out, overwrite=True)
        assert caught.value.code == code, out
    with pytest.raises(RequestError, match="exists"):
        decompose(genes, 3, out=there)
    array = zarr.open_array(FsspecStore.from_url(f"{there}/counts"), mode="r")
    with pytest.raises(RequestError, match="overlaps the input"):
        select(array, 3, 4, out=there, overwrite=True)
    with pytest.raises(RequestError, match="a whole bucket"):
        decompose(genes, 3, out=bucket.at(""))
    assert bucket.fs.cat_file(f"{bucket.name}/notes/readme.txt") == b"mine"


def test_an_older_output_survives_whatever_fails_before_writing(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = place_of(f"{memory}/out.zarr")
    with new_zarr(out, overwrite=False) as root:
        zarr.open_group(root, mode="w").attrs["made"] = "before"

    def lost(place: Any) -> bool:
        raise ConnectionResetError("gone")

    for overwrite in (True, False):
        with monkeypatch.context() as patch:
            patch.setattr(object_output, "is_zarr", lost)
            with pytest.raises(BrokenError, match="gone"), new_zarr(out, overwrite=overwrite):
                pass
        assert zarr.open_group(f"{memory}/out.zarr", mode="r").attrs["made"] == "before"

    mine = out.with_name("mine")  # type: ignore[union-attr]
    (mine / "notes.txt").write_text("mine")
    with pytest.raises(RequestError, match="created meanwhile"), new_zarr(mine, overwrite=True):
        pass
    assert (mine / "notes.txt").read_text() == "mine"


def test_a_lock_is_put_only_where_none_is_however_a_store_says_so() -> None:
    class Azure:
        """As adlfs has it."""

        held: ClassVar[dict[str, bytes]] = {}

        def pipe_file(self, path: str, value: bytes, overwrite: bool = True, **_: Any) -> None:
            if path in self.held and not overwrite:
                raise FileExistsError(path)
            self.held[path] = value

    place: Any = SimpleNamespace(fs=Azure(), path="out/claim-0")
    object_output._create(place, b"one")
    with pytest.raises(FileExistsError):
        object_output._create(place, b"another")
    assert place.fs.held == {"out/claim-0": b"one"}


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ({"status_code": 404}, "not_found"),
        ({"status_code": 403}, "access_denied"),
        ({"code": 401}, "access_denied"),
        ({"code": 503}, "unreachable"),
    ],
)
def test_what_other_object_stores_answer(status: dict[str, int], code: str, memory: str) -> None:
    error = Exception("No container.\nRequestId:1")
    vars(error).update(status)
    refused = store_error(place_of(memory), error)
    assert refused.code == code
    assert "No container" in refused.message
    assert "RequestId" not in refused.message


def test_only_what_azure_would_close_without_a_loop_is_left_open() -> None:
    class Azure:
        protocol = ("abfs", "az")

    class Other:
        protocol = ("s3",)

    for kind, closes in ((Azure, False), (Other, True)):
        fs = kind()
        closing = [weakref.finalize(fs, print, fs), weakref.finalize(fs, print)]
        address_store._keep_from_closing(fs)
        assert [finalizer.atexit for finalizer in closing] == [closes, closes]
        for finalizer in closing:
            finalizer.detach()


def test_an_account_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    class Azure:
        def __init__(self, *_: Any, **__: Any) -> None:
            raise ValueError("Must provide a connection_string or account_name with credentials!!")

    monkeypatch.setattr("kmufs_stream.storage.places.UPath", Azure)
    with pytest.raises(RequestError) as caught:
        place_of("az://container/data.zarr")
    assert caught.value.code == "no_credentials"
    assert "AZURE_STORAGE_CONNECTION_STRING" in caught.value.remedy

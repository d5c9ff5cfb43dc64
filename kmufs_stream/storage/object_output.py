"""Outputs in object stores, where nothing can be renamed: the root's metadata is written last.

Until it is there, readers see no store at ``OUT``. While a run writes, ``.OUT.writing/`` beside it
holds its lock, which is created only where none exists, so that two runs never write one output at
once. Where an old store is replaced, the new one is first completed in that folder, then copied
within the object store: meanwhile there is no store at ``OUT``.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import socket
import time
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import psutil
from upath import UPath
from zarr.abc.buffer import Buffer
from zarr.abc.store import Store

from kmufs_stream.errors import BrokenError, RequestError, Text
from kmufs_stream.storage.address_store import store_of
from kmufs_stream.storage.internals import sync
from kmufs_stream.storage.metadata_last import ROOT, MetadataLast
from kmufs_stream.storage.places import (
    exists,
    is_zarr,
    name_of,
    refuse_web_address,
    remove,
    store_errors,
)

_tokens: set[str] = set()  # of this process's locks


class _Lock(NamedTuple):
    """A lock, and what is in no other's."""

    path: UPath
    token: str


class TakenError(RequestError):
    """Another run has written, or is writing, the same output."""


def check_address(out: UPath, parameter: str) -> bool:
    """Refuse an address that cannot be written to, or that another run is writing.

    Returns whether a run that died has left its lock, and so perhaps half a store.
    """
    refuse_web_address(out, parameter)
    if out.parent == out:
        raise RequestError(
            "bad_output", f"The output {out} is a whole bucket.", f"Name a store in it: {out}NAME."
        )
    with store_errors(out):
        return _check_locks(out) > 0


def check_writable_address(out: UPath) -> None:
    """Write an object and remove it again."""
    with store_errors(out):
        trial = _workspace(out) / f"trial-{uuid.uuid4().hex}"
        trial.write_bytes(b"")
        trial.unlink()


@contextlib.contextmanager
def new_in_object_store(out: UPath, *, overwrite: bool) -> Iterator[Store]:
    """Yield a store that is at ``out`` when the block ends, and removed if it fails."""
    with store_errors(out), _locked(out) as lock:
        place = None
        try:
            replaces, died = is_zarr(out), _number(lock.path) > 0
            if not overwrite if replaces else exists(out) and not died:
                raise appeared_meanwhile(out)
            place = _workspace(out) / "new" if replaces else out
            if died:
                remove(place)  # what the dead run has left
            root = MetadataLast(store_of(place))
            yield root
            if not _is_ours(lock):
                raise _being_written(out, "Another run")
            root.publish(partial(_appear, place))
        except BaseException as error:
            with contextlib.suppress(Exception):  # the first error counts; the next run cleans up
                if place is not None and not isinstance(error, TakenError):
                    remove(place)
                _release(out, lock)
            raise
        if replaces:
            _replace(out, place)
        _release(out, lock)


def _appear(place: UPath, mark: str, content: Buffer) -> None:
    """Write the object that makes a store of what lies at a place, if there is none yet."""
    try:
        _create(place / mark, content.to_bytes())
    except FileExistsError:
        raise appeared_meanwhile(place) from None


def _replace(out: UPath, new: UPath) -> None:
    """Put the complete store ``new`` in place of an older one."""
    fs = out.fs
    try:
        for key in reversed(ROOT):
            (out / key).unlink(missing_ok=True)
        remove(out)
        keys = [path.removeprefix(new.path + "/") for path in fs.find(new.path)]
        mark = max(set(ROOT).intersection(keys), key=ROOT.index)
        for part in ([key for key in keys if key != mark], [mark]):
            fs.copy([f"{new.path}/{key}" for key in part], [f"{out.path}/{key}" for key in part])
    except BaseException as error:
        raise BrokenError(
            "write_failed",
            f"The old {out} is removed, but the new one is not there yet: "
            f"{type(error).__name__}: {error}",
            f"The new one is complete: copy {new} to {out}, or run again.",
        ) from error


def _workspace(out: UPath) -> UPath:
    return out.with_name(f".{out.name}.writing")


def _locks(out: UPath) -> list[UPath]:
    """List the locks of an output, oldest first; a run numbers its own after those of dead ones."""
    try:
        found = [path for path in _workspace(out).iterdir() if path.name.startswith("claim-")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found, key=_number)


def _number(lock: UPath) -> int:
    return int(lock.name.partition("-")[2])


def _check_locks(out: UPath) -> int:
    """Return the number of the next lock. Raises TakenError where a live run holds one."""
    locks = _locks(out)
    for lock in locks:
        owner: dict[str, Any] = json.loads(lock.read_bytes())
        here, process = owner["host"] == socket.gethostname(), owner["process"]
        alive = psutil.pid_exists(process) and (process != os.getpid() or owner["token"] in _tokens)
        if alive or not here:  # whether a process elsewhere is alive cannot be known
            who = f"Process {process} on {owner['host']}, since {owner['since']},"
            raise _being_written(out, who)
    return _number(locks[-1]) + 1 if locks else 0


@contextlib.contextmanager
def _locked(out: UPath) -> Iterator[_Lock]:
    """Create this run's lock; where it is still there in the end, it is that of a dead run.

    Raises TakenError where another run holds one.
    """
    lock = _Lock(_workspace(out) / f"claim-{_check_locks(out)}", uuid.uuid4().hex)
    owner = {
        "token": lock.token,
        "host": socket.gethostname(),
        "process": os.getpid(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S %z"),
    }
    _tokens.add(lock.token)
    try:
        try:
            _create(lock.path, json.dumps(owner).encode())
        except FileExistsError:
            raise _being_written(out, "Another run") from None
        yield lock
    finally:
        _tokens.discard(lock.token)


def _is_ours(lock: _Lock) -> bool:
    try:
        return bool(json.loads(lock.path.read_bytes())["token"] == lock.token)
    except FileNotFoundError:
        return False


def _release(out: UPath, lock: _Lock) -> None:
    if _is_ours(lock):
        remove(_workspace(out))


def _create(place: UPath, content: bytes) -> None:
    """Write an object that does not exist yet; atomically, where the store can.

    Raises FileExistsError.
    """
    put = place.fs.pipe_file
    common = "mode" in inspect.signature(put).parameters  # Azure's has an option of its own
    try:
        put(place.path, content, **({"mode": "create"} if common else {"overwrite": False}))
    except FileExistsError:  # or the first answer was lost, and the client has asked again
        if place.fs.cat_file(place.path) != content:
            raise


def _being_written(out: UPath, who: str) -> TakenError:
    return TakenError(
        "being_written",
        f"{who} is writing the output {out}.",
        f"Wait for it, or choose another output; if it has died, remove {_workspace(out)}/.",
    )


def appeared_meanwhile(out: object) -> TakenError:
    """The error for an output that another run has written since it was checked."""
    return TakenError(
        "output_exists",
        f"The output {out} was created meanwhile by another run; it is left as it is.",
        Text("Say {overwrite}, or choose another output.", overwrite=True),
    )


def check_given(store: Store) -> None:
    """Refuse a Zarr store made in Python that is not empty or cannot be written to."""
    able = store.supports_writes and store.supports_deletes and store.supports_listing
    if store.read_only or not able:
        raise RequestError(
            "not_writable",
            f"The output, {name_of(store)}, cannot be written, listed and deleted from.",
            "Give a store that can.",
        )
    if exists(store):
        raise RequestError(
            "output_exists",
            f"The output, {name_of(store)}, is not empty; such stores are never overwritten.",
            "Give an empty one.",
        )


@contextlib.contextmanager
def new_in_given(store: Store) -> Iterator[Store]:
    """Yield a store made in Python, which is cleared if the block fails.

    Stores that manage their metadata themselves (icechunk) show nothing before a commit.
    """
    root = MetadataLast(store) if store.supports_consolidated_metadata else store
    try:
        with store_errors(store):
            yield root
            if isinstance(root, MetadataLast):
                root.publish()
    except BaseException:
        sync(store.clear())
        raise

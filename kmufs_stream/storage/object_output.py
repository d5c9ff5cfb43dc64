"""Outputs in object stores, where nothing can be renamed: the metadata of the root come last.

Until they are there, no reader sees a store at ``OUT``. Beside it lies ``.OUT.writing/`` while a
run writes: its claim, put only where there is none yet, so that two runs never write one output
at once; and where an old store is replaced, the new one, which is complete before the old one is
touched. It is then copied within the object store: meanwhile there is no store at ``OUT``.
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
from typing import Any, Self

import psutil
from upath import UPath
from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import ByteRequest, Store

from kmufs_stream.errors import BrokenError, RequestError
from kmufs_stream.storage.address_store import store_of
from kmufs_stream.storage.internals import StoreInFront, sync
from kmufs_stream.storage.places import (
    is_there,
    is_zarr,
    name_of,
    reached,
    refuse_unlisted,
    remove,
)

ROOT = ("zarr.json", ".zattrs", ".zmetadata", ".zgroup")  # what tells a store comes last
ONLY_NEW = {"mode": "create", "overwrite": False}  # as S3 and Google say it, and as Azure does
_ours: set[str] = set()  # claims of this process


class TakenError(RequestError):
    """Somebody else has written, or is writing, the same output."""


class RootLast(StoreInFront):
    """Keeps the metadata of the root back, in ``kept``; all else goes to the store."""

    def __init__(self, store: Store, kept: dict[str, Buffer] | None = None) -> None:
        super().__init__(store)
        self.kept: dict[str, Buffer] = {} if kept is None else kept

    def over(self, store: Store) -> Self:
        return type(self)(store, self.kept)

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        if key in ROOT:
            return self.kept.get(key)
        return await super().get(key, prototype, byte_range)

    async def exists(self, key: str) -> bool:
        return key in self.kept if key in ROOT else await super().exists(key)

    async def set(self, key: str, value: Buffer) -> None:
        if key in ROOT:
            self.kept[key] = value
        else:
            await super().set(key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        if key not in ROOT or key not in self.kept:
            await (self.set(key, value) if key in ROOT else super().set_if_not_exists(key, value))

    async def delete(self, key: str) -> None:
        if self.kept.pop(key, None) is None:
            await super().delete(key)


def check_object_store(out: UPath, parameter: str, *, overwrite: bool) -> None:
    """See ``check_output()``: the same for an address."""
    refuse_unlisted(out, parameter)
    if out.parent == out:
        raise RequestError(
            "bad_output", f"The output {out} is a whole bucket.", f"Name a store in it: {out}NAME."
        )
    with reached(out):
        _refuse_claimed(out)
        if is_zarr(out):
            if not overwrite:
                raise RequestError(
                    "output_exists",
                    f"The output {out} exists.",
                    f"Say `overwrite=True` to replace it, or choose another `{parameter}`.",
                )
        elif is_there(out) and not _claims(out):  # else it is what a run that died has left
            raise RequestError(
                "output_exists",
                f"The output {out} exists and is not a Zarr store, so it is not overwritten.",
                f"Choose another `{parameter}`, or remove it yourself.",
            )
        trial = _beside(out) / f"trial-{uuid.uuid4().hex}"
        trial.write_bytes(b"")
        trial.unlink()


@contextlib.contextmanager
def new_in_object_store(out: UPath, *, overwrite: bool) -> Iterator[Store]:
    """A store that is at ``out`` when the block ends, and gone if it fails."""
    with reached(out):
        claim, place = _claim(out), None
        try:
            replaces, died = is_zarr(out), _number(claim) > 0
            if not overwrite if replaces else is_there(out) and not died:
                raise _came_into_being(out)
            place = _beside(out) / "new" if replaces else out
            if died:
                remove(place)  # what that run has left
            root = RootLast(store_of(place))
            yield root
            if not _is_ours(claim):
                raise _being_written(out, "Another run")
            _release(place, root.kept)
        except BaseException as error:
            written = None if isinstance(error, TakenError) else place
            _withdraw(out, written, claim, error)
            raise
        if replaces:
            _replace(out, place)
        _withdraw(out, None, claim)


def _release(place: UPath, kept: dict[str, Buffer]) -> None:
    """Put the metadata of the root: with the last of them the store is there."""
    *others, mark = sorted(kept, key=ROOT.index)
    for key in others:
        (place / key).write_bytes(kept[key].to_bytes())
    try:
        _create(place / mark, kept[mark].to_bytes())
    except FileExistsError:
        raise _came_into_being(place) from None


def _replace(out: UPath, new: UPath) -> None:
    """Put the complete store ``new`` in place of an older one."""
    fs = out.fs
    try:
        for key in reversed(ROOT):
            (out / key).unlink(missing_ok=True)
        remove(out)
        keys = [path.removeprefix(new.path + "/") for path in fs.find(new.path)]
        last = [key for key in ROOT if key in keys]
        for part in ([key for key in keys if key not in ROOT], *([key] for key in last)):
            fs.copy([f"{new.path}/{key}" for key in part], [f"{out.path}/{key}" for key in part])
    except BaseException as error:
        raise BrokenError(
            "write_failed",
            f"The old {out} is removed, but the new one is not there yet: "
            f"{type(error).__name__}: {error}",
            f"The new one is complete: copy {new} to {out}, or run again.",
        ) from error


def _beside(out: UPath) -> UPath:
    return out.with_name(f".{out.name}.writing")


def _claims(out: UPath) -> list[UPath]:
    """The claims to an output, oldest first."""
    try:
        found = [path for path in _beside(out).iterdir() if path.name.startswith("claim-")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found, key=_number)


def _number(claim: UPath) -> int:
    return int(claim.name.partition("-")[2])


def _refuse_claimed(out: UPath) -> int:
    """The number of the next claim. Raises TakenError where there is one of a live run."""
    claims = _claims(out)
    for claim in claims:
        owner: dict[str, Any] = json.loads(claim.read_bytes())
        here, number = owner["host"] == socket.gethostname(), owner["process"]
        alive = psutil.pid_exists(number) and (number != os.getpid() or owner["token"] in _ours)
        if alive or not here:  # nobody here can tell whether a process elsewhere is alive
            raise _being_written(
                out, f"Process {number} on {owner['host']}, since {owner['since']},"
            )
    return _number(claims[-1]) + 1 if claims else 0


def _claim(out: UPath) -> UPath:
    """Claim an output. Raises TakenError where another run has a claim to it."""
    claim = _beside(out) / f"claim-{_refuse_claimed(out)}"
    token = uuid.uuid4().hex
    owner = {
        "token": token,
        "host": socket.gethostname(),
        "process": os.getpid(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S %z"),
    }
    _ours.add(token)
    try:
        _create(claim, json.dumps(owner).encode())
    except FileExistsError:
        raise _being_written(out, "Another run") from None
    return claim


def _is_ours(claim: UPath) -> bool:
    try:
        return json.loads(claim.read_bytes())["token"] in _ours
    except FileNotFoundError:
        return False


def _withdraw(
    out: UPath, failed: UPath | None, claim: UPath, error: BaseException | None = None
) -> None:
    """Remove what a failed run has written, and the claim, if it still is ours."""
    try:
        if failed is not None:
            remove(failed)
        if _is_ours(claim):
            remove(_beside(out))
    except Exception as other:
        if error is None:
            raise
        error.add_note(f"What was written to {out} cannot be removed: {other}")


def _create(place: UPath, content: bytes) -> None:
    """Write an object that is not there yet: for certain, where the store can tell.

    Raises FileExistsError.
    """
    put = place.fs.pipe_file
    known = inspect.signature(put).parameters
    for option, value in ONLY_NEW.items():
        if option in known:
            put(place.path, content, **{option: value})
            return
    if place.exists():
        raise FileExistsError(place)
    put(place.path, content)


def _being_written(out: UPath, who: str) -> TakenError:
    return TakenError(
        "being_written",
        f"{who} is writing the output {out}.",
        f"Wait for it, or choose another output; if it has died, remove {_beside(out)}/.",
    )


def _came_into_being(out: UPath) -> TakenError:
    return TakenError(
        "output_exists",
        f"The output {out} has come into being meanwhile; it is left as it is.",
        "Say `overwrite=True`, or choose another output.",
    )


def check_given(store: Store) -> None:
    """See ``check_output()``: the same for a Zarr store made in Python, which has to be empty."""
    able = store.supports_writes and store.supports_deletes and store.supports_listing
    if store.read_only or not able:
        raise RequestError(
            "not_writable",
            f"The output, {name_of(store)}, cannot be written, listed and deleted from.",
            "Give a store that can.",
        )
    if is_there(store):
        raise RequestError(
            "output_exists",
            f"The output, {name_of(store)}, is not empty; such stores are never overwritten.",
            "Give an empty one.",
        )


@contextlib.contextmanager
def new_in_given(store: Store) -> Iterator[Store]:
    """A store made in Python, that holds the output when the block ends, and nothing if it fails.

    One that looks after its metadata itself (icechunk) shows nothing before it is committed.
    """
    root = RootLast(store) if store.supports_consolidated_metadata else store
    try:
        with reached(store):
            yield root
            if isinstance(root, RootLast):
                for key in sorted(root.kept, key=ROOT.index):
                    sync(store.set(key, root.kept[key]))
    except BaseException:
        sync(store.clear())
        raise

"""Stores that appear whole or not at all."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import zarr
from zarr.abc.store import Store

from kmufs_stream.errors import BrokenError, RequestError
from kmufs_stream.storage.object_output import (
    check_given,
    check_object_store,
    new_in_given,
    new_in_object_store,
)
from kmufs_stream.storage.places import Place, is_hdf5, is_zarr, name_of, path_of, zarr_root
from kmufs_stream.storage.zarr_io import written_quietly

# A chunk of nothing but fill values is written like any other: what is not there, is lost.
ALL_CHUNKS = {"array.write_empty_chunks": True}


def check_output(
    out: Place, inputs: Sequence[Place], *, overwrite: bool, parameter: str = "out"
) -> None:
    """Refuse an output that cannot or must not be written, before anything is computed.

    ``parameter`` is what chooses another. Raises RequestError: it exists (without ``overwrite``, or
    is no Zarr store), it and an input lie one in the other, where it lies does not exist or cannot
    be written to.
    """
    if isinstance(out, Path) and out.name in ("", ".."):
        raise RequestError(
            "bad_output",
            f"The output {out} is an existing folder, not the name of a store to write.",
            f"Choose another `{parameter}`.",
        )
    _check_apart(out, inputs, f"Choose another `{parameter}`.")
    if isinstance(out, Path):
        _check_folder(out, parameter, overwrite=overwrite)
    elif isinstance(out, Store):
        check_given(out)
    else:
        check_object_store(out, parameter, overwrite=overwrite)


def _overlap(out: Place, source: Place) -> str | None:
    """How one lies in the other, if it does."""
    ours, theirs = path_of(out), path_of(source)
    if ours is None or theirs is None:
        return "is" if out == source else None
    if ours == theirs:
        return "is"
    if theirs in ours.parents:
        return "lies inside"
    return "holds" if ours in theirs.parents else None


def _check_folder(out: Path, parameter: str, *, overwrite: bool) -> None:
    place = out.resolve()
    _repair(place)
    if not place.parent.is_dir():
        what = "is not a folder" if place.parent.exists() else "does not exist"
        raise RequestError(
            "no_folder",
            f"The folder {place.parent} of the output {what}.",
            f"Create it, or choose another `{parameter}`.",
        )
    if out.exists():
        if not is_zarr(out) and not is_hdf5(out):
            raise RequestError(
                "output_exists",
                f"The output {out} exists and is not a Zarr store, so it is not overwritten.",
                f"Choose another `{parameter}`, or remove it yourself.",
            )
        if not overwrite:
            raise RequestError(
                "output_exists",
                f"The output {out} exists.",
                f"Say `overwrite=True` to replace it, or choose another `{parameter}`.",
            )
    if not _writable(place.parent):
        raise RequestError(
            "not_writable",
            f"The folder {place.parent} of the output cannot be written to.",
            f"Choose another `{parameter}`, or change the folder's permissions.",
        )


def _check_apart(out: Place, inputs: Sequence[Place], remedy: str) -> None:
    for place in inputs:
        how = _overlap(out, place)
        if how is not None:
            raise RequestError(
                "output_is_input",
                f"The output {name_of(out)} {how} the input {name_of(place)}.",
                remedy,
            )


def check_two_outputs(out: Place, other: Place, parameter: str) -> None:
    """Refuse outputs of one run of which one would replace the other, or be put into it.

    ``parameter`` is what chooses another place for ``out``.
    """
    how = _overlap(out, other)
    if how is not None:
        raise RequestError(
            "outputs_overlap",
            f"The output {name_of(out)} {how} the output {name_of(other)} of the same run.",
            f"Choose another `{parameter}`.",
        )


def check_file(out: Path, parameter: str, inputs: Sequence[Place], *, overwrite: bool) -> None:
    """Refuse a file that cannot or must not be written, before anything is computed.

    ``parameter`` is what chooses another. Raises RequestError as :func:`check_output` does.
    """
    another = f"choose another `{parameter}`."
    _check_apart(out, inputs, another.capitalize())
    folder = out.resolve().parent
    if not folder.is_dir():
        raise RequestError(
            "no_folder",
            f"The folder {folder} of the output does not exist.",
            f"Create it, or {another}",
        )
    stores = [parent for parent in out.resolve().parents if is_zarr(parent)]
    if stores:
        raise RequestError(
            "output_in_store",
            f"The output {out} lies inside the Zarr store {stores[-1]}.",
            another.capitalize(),
        )
    if out.is_dir():
        raise RequestError("output_exists", f"The output {out} is a folder.", another.capitalize())
    if out.exists() and not overwrite:
        raise RequestError(
            "output_exists",
            f"The output {out} exists.",
            f"Say `overwrite=True` to replace it, or {another}",
        )
    if not _writable(folder):
        raise RequestError(
            "not_writable",
            f"The folder {folder} of the output cannot be written to.",
            f"Change the folder's permissions, or {another}",
        )


@contextlib.contextmanager
def new_store(out: Path, *, overwrite: bool) -> Iterator[Path]:
    """A folder beside ``out`` that takes its place when the block ends, and is gone if it fails."""
    with new_output(out, overwrite=overwrite) as partial:
        partial.mkdir()
        yield partial


@contextlib.contextmanager
def new_zarr(out: Place, *, overwrite: bool) -> Iterator[Store]:
    """A new store, filled, that is at ``out`` when the block ends: whole, or not at all."""
    if isinstance(out, Path):
        place: contextlib.AbstractContextManager[Path | Store] = new_store(out, overwrite=overwrite)
    elif isinstance(out, Store):
        place = new_in_given(out)
    else:
        place = new_in_object_store(out, overwrite=overwrite)
    with place as root, filled(root) as store:
        yield store


@contextlib.contextmanager
def filled(place: Path | Store) -> Iterator[Store]:
    """A store written with all its chunks; its metadata are consolidated when the block ends."""
    store = zarr_root(place)
    with written_quietly(), zarr.config.set(ALL_CHUNKS):
        yield store
        if store.supports_consolidated_metadata:
            zarr.consolidate_metadata(store)


@contextlib.contextmanager
def new_output(out: Path, *, overwrite: bool) -> Iterator[Path]:
    """A path beside ``out``; what the block puts there takes its place when the block ends.

    An older ``out`` is renamed aside, the new one renamed in, the old one removed; after a crash
    between, the next :func:`check_output` puts the old one back.
    """
    out = out.resolve()  # through a link, what it leads to is replaced
    partial = out.with_name(f".{out.name}.partial-{os.getpid()}")
    previous = _previous(out)
    try:
        yield partial
        if out.exists() and not overwrite:
            raise RequestError(
                "output_exists",
                f"The output {out} has come into being meanwhile; it is left as it is.",
                "Say `overwrite=True`, or choose another output.",
            )
        if out.exists():
            out.rename(previous)
        partial.rename(out)
    except OSError as error:
        raise BrokenError(
            "write_failed",
            f"Writing {out} failed: {error.strerror or error}.",
            "Make room or repair the disk, or choose another output; nothing was changed.",
        ) from error
    finally:
        _remove(partial)
        if previous.exists() and not out.exists():
            previous.rename(out)
        _remove(previous)


def _remove(place: Path) -> None:
    """Remove a file, or a folder into which a last write may still be under way."""
    if place.is_file():
        place.unlink(missing_ok=True)
    for _ in range(20):
        if not place.exists():
            return
        shutil.rmtree(place, ignore_errors=True)
        time.sleep(0.05)  # and look again: that write may make the folder anew


def _previous(out: Path) -> Path:
    return out.with_name(f".{out.name}.previous")


def _repair(out: Path) -> None:
    """Undo what a crash left: put an older output back, remove partial ones of dead processes."""
    previous = _previous(out)
    with contextlib.suppress(OSError):  # a folder that cannot be written is reported by the check
        if previous.exists() and not out.exists():
            previous.rename(out)
        _remove(previous)
        for partial in out.parent.glob(f".{glob.escape(out.name)}.partial-*"):
            owner = partial.name.rpartition("-")[2]
            # In a container every run may have this process's own number.
            if owner.isdigit() and (int(owner) == os.getpid() or not psutil.pid_exists(int(owner))):
                _remove(partial)


def _writable(folder: Path) -> bool:
    """Whether a file can be made there: asking the file system beats reading permissions."""
    trial = folder / f".kmufs-stream-{os.getpid()}"
    try:
        trial.touch()
        trial.unlink()
    except OSError:
        return False
    return True

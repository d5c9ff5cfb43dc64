"""Write outputs that appear whole or not at all."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import zarr
from upath import UPath
from zarr.abc.store import Store
from zarr.storage import LocalStore

from kmufs_stream.errors import BrokenError, Option, RequestError, Text
from kmufs_stream.storage.metadata_last import MetadataLast
from kmufs_stream.storage.object_output import (
    appeared_meanwhile,
    check_address,
    check_given,
    check_writable_address,
    new_in_given,
    new_in_object_store,
)
from kmufs_stream.storage.places import (
    Place,
    comparable_path,
    exists,
    is_hdf5,
    is_zarr,
    name_of,
    remove,
    zarr_root,
)
from kmufs_stream.storage.zarr_io import quietly

# A chunk that holds only fill values is written too: then an absent chunk is a lost one.
ALL_CHUNKS = {"array.write_empty_chunks": True}


def check_output(
    out: Place,
    inputs: Sequence[Place],
    *,
    overwrite: bool,
    parameter: str = "out",
    file: bool = False,
) -> None:
    """Refuse an output that cannot or must not be written, before anything is computed.

    ``parameter`` is the one that chooses another output, ``file`` whether it is a file, not a
    store. Raises RequestError if the output exists (without ``overwrite``, or is of another kind),
    if it and an input lie in one another, and if its folder does not exist or cannot be written to.
    """
    if isinstance(out, Path) and out.name in ("", ".."):
        raise RequestError(
            "bad_output",
            f"The output {out} is an existing folder, not the name of what is to be written.",
            Text("Choose another {}.", Option(parameter)),
        )
    _check_apart(out, inputs, parameter)
    if isinstance(out, Store):
        check_given(out)
    elif isinstance(out, Path):
        _check_path(out, parameter, overwrite=overwrite, file=file)
    else:
        left_behind = check_address(out, parameter)
        if not left_behind or is_zarr(out):
            _check_replaceable(out, parameter, overwrite=overwrite)
        check_writable_address(out)


def check_two_outputs(out: Place, other: Place, parameter: str) -> None:
    """Refuse two outputs of one run of which one would replace or contain the other.

    ``parameter`` is the one that chooses another place for ``out``.
    """
    _check_apart(
        out, [other], parameter, code="outputs_overlap", what="the output {} of the same run"
    )


def check_folder(folder: Path, what: str, parameter: str) -> None:
    """Raise RequestError unless the folder exists in which ``what`` is to be written."""
    if not folder.is_dir():
        wrong = "is not a folder" if folder.exists() else "does not exist"
        raise RequestError(
            "no_folder",
            f"The folder {folder} of the {what} {wrong}.",
            Text("Create it, or choose another {}.", Option(parameter)),
        )


def _check_path(out: Path, parameter: str, *, overwrite: bool, file: bool) -> None:
    folder = out.resolve().parent
    _repair(out.resolve())
    check_folder(folder, "output", parameter)
    _check_replaceable(out, parameter, overwrite=overwrite, file=file)
    trial = folder / f".kmufs-stream-{os.getpid()}"
    try:
        trial.touch()  # more reliable than reading permissions
        trial.unlink()
    except OSError:
        raise RequestError(
            "not_writable",
            f"The folder {folder} of the output cannot be written to.",
            Text("Choose another {}, or change the folder's permissions.", Option(parameter)),
        ) from None


def _check_replaceable(
    out: Path | UPath, parameter: str, *, overwrite: bool, file: bool = False
) -> None:
    """Refuse to replace what exists, unless it is of the right kind and ``overwrite`` is given."""
    if not exists(out):
        return
    if not (out.is_file() if file else is_zarr(out) or is_hdf5(out)):
        raise RequestError(
            "output_exists",
            f"The output {out} exists and is not a {'file' if file else 'Zarr store'}, so it is "
            "not overwritten.",
            Text("Choose another {}, or remove it yourself.", Option(parameter)),
        )
    if not overwrite:
        other = Option(parameter)
        raise RequestError(
            "output_exists",
            f"The output {out} exists.",
            Text("Say {overwrite} to replace it, or choose another {}.", other, overwrite=True),
        )


def _check_apart(
    out: Place,
    others: Sequence[Place],
    parameter: str,
    *,
    code: str = "output_is_input",
    what: str = "the input {}",
) -> None:
    for place in others:
        if _overlap(out, place):
            raise RequestError(
                code,
                f"The output {name_of(out)} overlaps {what.format(name_of(place))}.",
                Text("Choose another {}.", Option(parameter)),
            )


def _overlap(out: Place, other: Place) -> bool:
    """Whether two places are the same, or one lies inside the other."""
    ours, theirs = comparable_path(out), comparable_path(other)
    if ours is None or theirs is None:
        return out == other
    return ours.is_relative_to(theirs) or theirs.is_relative_to(ours)


@contextlib.contextmanager
def new_zarr(out: Place, *, overwrite: bool) -> Iterator[Store]:
    """Yield a store to fill, which is at ``out`` when the block ends: whole, or not at all."""
    if isinstance(out, Path):
        opened = _new_in_folder(out, overwrite=overwrite)
    elif isinstance(out, Store):
        opened = new_in_given(out)
    else:
        opened = new_in_object_store(out, overwrite=overwrite)
    with opened as root, filled(root) as store:
        yield store


@contextlib.contextmanager
def _new_in_folder(out: Path, *, overwrite: bool) -> Iterator[Store]:
    with new_output(out, overwrite=overwrite) as folder:
        store = MetadataLast(LocalStore(folder))
        yield store
        store.publish()


@contextlib.contextmanager
def filled(place: Path | Store) -> Iterator[Store]:
    """Yield a store in which all chunks are written; consolidate its metadata at the end."""
    store = zarr_root(place)
    with quietly(), zarr.config.set(ALL_CHUNKS):
        yield store
        if store.supports_consolidated_metadata:
            zarr.consolidate_metadata(store)


@contextlib.contextmanager
def new_output(out: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a path beside ``out`` whose file or folder replaces ``out`` when the block ends.

    An older ``out`` is renamed, the new one renamed into its place, the old one removed; after a
    crash in between, the next :func:`check_output` restores the old one.
    """
    out = out.resolve()  # the target of a link is replaced, not the link
    partial = out.with_name(f".{out.name}.partial-{os.getpid()}")
    previous = _previous(out)
    try:
        yield partial
        if out.exists() and not overwrite:
            raise appeared_meanwhile(out)
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
        if partial.exists():  # the block has failed
            remove(partial, late_writes=True)
        _restore(out)


def _previous(out: Path) -> Path:
    return out.with_name(f".{out.name}.previous")


def _restore(out: Path) -> None:
    """Put an older output back unless a new one has taken its place."""
    previous = _previous(out)
    if previous.exists() and not out.exists():
        previous.rename(out)
    remove(previous)


def _repair(out: Path) -> None:
    """Undo what a crash left behind: restore an older output, remove partial ones."""
    with contextlib.suppress(OSError):  # a folder that cannot be written to is reported later
        _restore(out)
        for partial in out.parent.glob(f".{glob.escape(out.name)}.partial-*"):
            owner = partial.name.rpartition("-")[2]
            # In containers, a dead run may have had the same process id as this one.
            if owner.isdigit() and (int(owner) == os.getpid() or not psutil.pid_exists(int(owner))):
                remove(partial)

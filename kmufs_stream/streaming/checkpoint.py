"""Checkpoints: the states of a pass that wait for their siblings, kept on disk or in a store.

A folder, or what lies below an address in an object store, holds ``checkpoint.json``, which says
what it belongs to, and per pass one file for each node of the merge tree that is done while its
sibling is not. Each file stands for itself, appears whole or not at all, and ends with a checksum;
a node's file makes those below it superfluous. A pass that is over leaves its root. To resume is
to run again, with what is found in place of reading: as every node's state depends on its rows
alone, the result is the same bit for bit.

States are pickled: resume only from folders that nobody else can write to.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pickle
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeAlias

from dask.base import tokenize
from upath import UPath

from kmufs_stream.errors import BrokenError, KmufsError, RequestError
from kmufs_stream.storage.places import reached, refuse_unlisted, remove
from kmufs_stream.storage.provenance import CHECKPOINT_FILE
from kmufs_stream.streaming.tree import Node, Tree
from kmufs_stream.version import __version__

FORMAT = "kmufs-checkpoint"
FORMAT_VERSION = 1
ABOUT = "about"
CHUNKS, CORRUPT, OTHERS = "data chunks", "corrupt chunk", "data chunks but that"
SAVING_SHARE = 20  # saving may take one part in so many of the time
DIGEST_BYTES = 32
PIECE = 2**23  # bytes sent to and fetched from an object store at a time

Folder: TypeAlias = Path | UPath


class Checkpoint:
    """A folder with the states of a run: taken up or begun by ``claim()``, gone after success.

    A context: left by an error the folder stays, and the error is noted where it is; left without
    one it is removed. What was never claimed is somebody else's, and left alone.

    Parameters
    ----------
    folder : where; made when something is saved. A path or an address.
    resume : go on from what it holds. Without, a folder that exists is refused.
    about : what is kept with it for whoever looks into it, in plain JSON types.

    Raises RequestError where the folder cannot be used.
    """

    def __init__(
        self,
        folder: Folder,
        *,
        resume: bool,
        tell: Callable[[str], None] = lambda text: None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder: Folder = folder.absolute() if isinstance(folder, Path) else folder
        self.tell = tell
        self._resume, self._about = resume, dict(about or {})
        self._claimed = False
        with reached(self.folder):
            self._check(resume=resume)

    def _check(self, *, resume: bool) -> None:
        folder = self.folder
        if not isinstance(folder, Path):
            refuse_unlisted(folder, "checkpoint")
        elif not folder.parent.is_dir():
            raise RequestError(
                "no_folder",
                f"The folder {self.folder.parent} of the checkpoint does not exist.",
                "Create it, or choose another `checkpoint`.",
            )
        if self.folder.exists() and not (self.folder / CHECKPOINT_FILE).is_file():
            if not self.folder.is_dir() or not all(map(_unnamed, self.folder.iterdir())):
                raise RequestError(
                    "not_a_checkpoint",
                    f"{folder} exists and is not a checkpoint, so it is left as it is.",
                    "Choose another `checkpoint`.",
                )
        elif self.folder.exists() and not resume:
            raise RequestError(
                "checkpoint_exists",
                f"{folder} is the checkpoint of a run that did not end.",
                "Say `resume=True` to go on from it, or remove it to start again.",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None and self._claimed:
            with contextlib.suppress(FileNotFoundError):
                for inside in [*self.folder.iterdir()]:
                    if inside.name != CHECKPOINT_FILE:
                        remove(inside)
            remove(self.folder)  # what says whose it is goes last
        elif error is not None and self._claimed:
            self._note_corrupt(getattr(error, "chunk", None))
            error.add_note(f"The checkpoint {self.folder} is kept: `resume=True` goes on from it.")

    def claim(
        self,
        identity: dict[str, str],
        without: Callable[[str], tuple[str, str]] | None = None,
        *,
        serves: str = "",
    ) -> None:
        """Take the folder for a run that is told from others by ``identity``.

        Parameters
        ----------
        serves : what may differ from the run that left it, as people are told.
        without : from the key of a chunk, digests of all chunks and of all but that one. A chunk
            that could not be read may be another when the run goes on: no state holds its rows.

        Raises RequestError if it belongs to another, BrokenError if it cannot be written.
        """
        self._without = without
        self._ours = ours = {
            "format": f"{FORMAT} {FORMAT_VERSION}",
            "version": __version__,
            **identity,
        }
        place = self.folder / CHECKPOINT_FILE
        with reached(self.folder):
            there = place.exists()
        if not there:
            with _written(self.folder):
                _make(self.folder)
                self._identify(ours)
            none = "there is no checkpoint to go on from: the run begins anew, and keeps one in"
            self.tell(f"{none if self._resume else 'checkpoint:'} {self.folder}")
            self._claimed = True
            return
        try:
            theirs = json.loads(place.read_bytes())
            differing = [key for key in ours if theirs.get(key) != ours[key]]
        except (ValueError, AttributeError) as error:
            raise BrokenError(
                "damaged_checkpoint",
                f"The checkpoint {self.folder} is damaged: {CHECKPOINT_FILE} cannot be read.",
                "Remove it, and start again.",
            ) from error
        if differing == [CHUNKS] and self._mended(theirs):
            self._identify(ours)
            differing = []
        if differing:
            said = "; ".join(f"{key}: {theirs.get(key)}, now {ours[key]}" for key in differing)
            raise RequestError(
                "wrong_checkpoint",
                f"The checkpoint {self.folder} belongs to another run ({said}).",
                "Run with the data and options that it was made with, or choose another "
                "`checkpoint`, or remove it.",
            )
        self.tell(f"going on from the checkpoint {self.folder}{serves and f': {serves}'}")
        self._claimed = True

    def _note_corrupt(self, chunk: str | None) -> None:
        """Note a chunk that could not be read, unless others have changed since the run began."""
        if chunk is None or self._without is None:
            return
        with contextlib.suppress(KmufsError, OSError):  # what broke first is what counts
            every, others = self._without(chunk)
            if every == self._ours[CHUNKS]:
                self._identify(self._ours | {CORRUPT: chunk, OTHERS: others})

    def _mended(self, theirs: dict[str, str]) -> bool:
        """Whether of all chunks only the one that could not be read is another now."""
        if self._without is None or CORRUPT not in theirs:
            return False
        return self._without(theirs[CORRUPT])[1] == theirs[OTHERS]

    def _identify(self, identity: dict[str, str]) -> None:
        content = json.dumps({**identity, ABOUT: self._about}, indent=1).encode()
        _write(self.folder / CHECKPOINT_FILE, lambda file: file.write(content))

    def of_pass(self, number: int, kernel: Any) -> SavedPass:
        """The states of the ``number``-th pass, counted from 1."""
        folder = self.folder / f"pass-{number:03d}"
        with _written(self.folder):
            _make(folder)
        # The constants of a later kernel follow from earlier passes: on another machine they
        # may differ in the last bit, and states of the two must not be merged.
        return SavedPass(folder, tokenize(kernel, ensure_deterministic=True), self.tell)


@dataclass
class SavedPass:
    """The saved states of one pass.

    Attributes
    ----------
    folder : of their files.
    kernel : digest of the kernel that made them.
    """

    folder: Folder
    kernel: str
    tell: Callable[[str], None]
    _kept: set[Node] = field(default_factory=set)
    _began: float = field(default_factory=time.monotonic)
    _due: float = 0.0

    def path(self, node: Node) -> Folder:
        """The file of a node's state."""
        return self.folder / f"{node.level}-{node.index}.state"

    def find(self, tree: Tree) -> list[Node]:
        """The nodes to start from; damaged files are set aside, superfluous ones removed."""
        with reached(self.folder):
            whole = list(self._whole())
        self._kept = set(whole)
        highest = tree.highest(whole)
        for node in highest:
            self.keep(node)
        return highest

    def _whole(self) -> Iterator[Node]:
        files: list[Any] = [*self.folder.glob("*.state")]
        for path in sorted(files, key=str):
            level, _, index = path.stem.partition("-")
            made_by = _intact(path)
            if made_by is None:
                path.rename(path.with_suffix(".damaged"))
                self.tell(f"{path} is damaged and was set aside: its rows are read again")
            elif made_by == self.kernel:
                yield Node(int(level), int(index))
            else:
                path.unlink()
                self.tell(f"{path} is of a run on another machine: its rows are read again")

    def missing(self, nodes: Iterable[Node]) -> list[Node]:
        """Those nodes that are not saved, to be saved now."""
        self._began = time.monotonic()
        return sorted(set(nodes) - self._kept)

    def keep(self, node: Node) -> None:
        """A node's file is complete: those below it go."""
        self._kept.add(node)
        for below in [other for other in self._kept if node != other and node.covers(other)]:
            self.drop(below)
        now = time.monotonic()
        self._due = now + SAVING_SHARE * (now - self._began)

    def drop(self, node: Node) -> None:
        """Remove a node's file."""
        with reached(self.folder):
            self.path(node).unlink(missing_ok=True)
        self._kept.discard(node)

    @property
    def due(self) -> bool:
        """Whether it is time to save again."""
        return time.monotonic() >= self._due


def save_state(state: Any, path: Folder, kernel: str) -> None:
    """Write a state and a checksum, whole or not at all. Raises BrokenError where it cannot be."""

    def write(file: Any) -> None:
        summed = _Summed(file)
        summed.write(kernel.encode() + b"\n")
        pickle.dump(state, summed, protocol=5)
        file.write(summed.digest.digest())

    with _written(path.parent):
        _write(path, write)


def load_state(path: Folder) -> Any:
    """Read a state that was saved and found intact."""
    with reached(path), _opened(path) as file:
        file.readline()
        return pickle.load(file)


class _Summed:
    """A file that sums up what is written to it."""

    def __init__(self, file: Any) -> None:
        self.file, self.digest = file, hashlib.sha256()

    def write(self, part: Any) -> int:
        self.digest.update(part)
        whole = memoryview(part).cast("B")
        for start in range(0, len(whole), PIECE):  # what an object store copies before sending
            self.file.write(whole[start : start + PIECE])
        return len(whole)


def _intact(path: Folder) -> str | None:
    """The digest of the kernel of an undamaged file, else None."""
    left = path.stat().st_size - DIGEST_BYTES
    with _opened(path) as file:
        digest, kernel = hashlib.sha256(), file.readline()
        digest.update(kernel)
        left -= len(kernel)
        while left > 0 and (part := file.read(min(left, 2**20))):
            digest.update(part)
            left -= len(part)
        return kernel.decode().strip() if file.read() == digest.digest() else None


def _unnamed(path: Folder) -> bool:
    """Whether a file is what is left of a run that was killed while it wrote whose folder it is."""
    return path.name.startswith(f".{CHECKPOINT_FILE}-")


def _make(folder: Folder) -> None:
    """Make a folder; in an object store there are none."""
    if isinstance(folder, Path):
        folder.mkdir(exist_ok=True)


def _write(path: Folder, write: Callable[[Any], Any]) -> None:
    """Write a file beside its place, on to the disk, and rename it in; an object as a whole."""
    if not isinstance(path, Path):
        with path.open("wb", block_size=PIECE) as file:
            write(file)
        return
    partial = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    try:
        with partial.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _opened(path: Folder) -> BinaryIO:
    """A file to read from; of an object a piece at a time is in memory."""
    if isinstance(path, Path):
        return path.open("rb")
    return io.BufferedReader(_Pieces(path), PIECE)


class _Pieces(io.RawIOBase):
    """An object read in pieces: fsspec's own files hold all of what is asked for at once, twice."""

    def __init__(self, path: UPath) -> None:
        self._path, self._at, self._size = path, 0, path.stat().st_size

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        stop = min(self._at + min(len(into), PIECE), self._size)
        if stop == self._at:
            return 0
        piece = self._path.fs.cat_file(self._path.path, start=self._at, end=stop)
        into[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


@contextlib.contextmanager
def _written(folder: Folder) -> Iterator[None]:
    """Say of what fails inside that the checkpoint cannot be written."""
    try:
        with reached(folder):
            yield
    except (OSError, KmufsError) as error:
        said = error.message if isinstance(error, KmufsError) else error.strerror or error
        raise BrokenError(
            "checkpoint_failed",
            f"The checkpoint cannot be written to {folder}: {said}.",
            "Make room, or choose another `checkpoint`.",
        ) from error

"""Checkpoints: states of a pass that wait for their siblings, kept in a folder or object store.

The folder, or what lies under an address, holds ``checkpoint.json``, which identifies the run, and
for each pass one file per node of the merge tree that is done while its sibling is not. Each file
appears whole or not at all and ends with a checksum; a node's file makes those below it
superfluous. A finished pass leaves its root. To resume is to run again, loading what is found
instead of reading rows: as every node's state depends on its rows alone, the result is the same bit
for bit.

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
from typing import Any, BinaryIO, Self, TypeAlias

from upath import UPath

from kmufs_stream.errors import BrokenError, KmufsError, RequestError, Text
from kmufs_stream.storage.output import check_folder
from kmufs_stream.storage.places import refuse_web_address, remove, store_errors
from kmufs_stream.storage.provenance import CHECKPOINT, CHECKPOINT_FILE, FORMAT_VERSIONS
from kmufs_stream.streaming.tree import Node, Tree
from kmufs_stream.version import __version__

ABOUT = "about"
CHUNKS, CORRUPT = "data chunks", "corrupt chunk"
SAVING_SHARE = 20  # saving takes at most one part in so many of the time
DIGEST_BYTES = 32
PIECE = 2**23  # bytes sent to and fetched from an object store at a time

Folder: TypeAlias = Path | UPath


class Checkpoint:
    """A folder with the states of a run, from :meth:`begin` until the run succeeds.

    A context: after an error the folder stays, and a note on the error says where; after success it
    is removed. Before :meth:`begin` it may belong to another run, and is left alone.

    Parameters
    ----------
    folder : path or address; created when something is saved.
    resume : go on from what it holds; otherwise a folder that exists is refused.
    about : kept with it for people who look into it, in plain JSON types.

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
        self._began = False
        if isinstance(self.folder, Path):
            check_folder(self.folder.parent, "checkpoint", "checkpoint")
        else:
            refuse_web_address(self.folder, "checkpoint")
        with store_errors(self.folder):
            self._check_use()

    def _check_use(self) -> None:
        if not self.folder.exists():
            return
        partial = f".{CHECKPOINT_FILE}-"  # left by a run that was killed while it wrote the file
        if (self.folder / CHECKPOINT_FILE).is_file():
            if not self._resume:
                raise RequestError(
                    "checkpoint_exists",
                    f"{self.folder} is the checkpoint of a run that did not end.",
                    Text("Say {resume} to go on, or remove it to start again.", resume=True),
                )
        elif not self.folder.is_dir() or not all(
            inside.name.startswith(partial) for inside in self.folder.iterdir()
        ):
            raise RequestError(
                "not_a_checkpoint",
                f"{self.folder} exists and is not a checkpoint, so it is left as it is.",
                Text("Choose another {checkpoint}."),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not self._began:
            return
        if error is not None:
            self._note_corrupt(getattr(error, "chunk", None))
            folder = self.folder
            note = Text("The checkpoint {} is kept: {resume} goes on from it.", folder, resume=True)
            error.add_note(note)
            return
        with contextlib.suppress(FileNotFoundError):
            for inside in [*self.folder.iterdir()]:
                if inside.name != CHECKPOINT_FILE:
                    remove(inside)
        remove(self.folder)  # the file that identifies it goes last

    def begin(
        self,
        identity: dict[str, str],
        digests: Callable[[str], tuple[str, str]] | None = None,
        *,
        serves: str = "",
    ) -> None:
        """Use the folder for the run that ``identity`` tells from others; create or resume it.

        Parameters
        ----------
        digests : from the key of a chunk, digests of all chunks and of all but that one. A chunk
            that could not be read may have changed when the run resumes: no state holds its rows.
        serves : says which options may differ from the run that left it.

        Raises RequestError if it belongs to another run, BrokenError if it cannot be written.
        """
        self._digests = digests
        self._identity = {
            "format": f"{CHECKPOINT} {FORMAT_VERSIONS[CHECKPOINT]}",
            "version": __version__,
        }
        self._identity |= identity
        file = self.folder / CHECKPOINT_FILE
        with store_errors(self.folder):
            resumed = file.exists()
        if resumed:
            self._check_identity(file)
            self.tell(f"going on from the checkpoint {self.folder}" + (serves and ": " + serves))
        else:
            with _writing(self.folder):
                self._write_identity(self._identity)
            none = "there is no checkpoint to go on from: the run begins anew, and keeps one in"
            self.tell(f"{none if self._resume else 'checkpoint:'} {self.folder}")
        self._began = True

    def _check_identity(self, file: Folder) -> None:
        ours = self._identity
        try:
            theirs = json.loads(file.read_bytes())
            corrupt = theirs.get(CORRUPT)
            if corrupt is not None and self._digests is not None:
                ours = ours | {CHUNKS: self._digests(corrupt)[1]}
            differing = [key for key in ours if theirs.get(key) != ours[key]]
        except (ValueError, AttributeError) as error:
            raise BrokenError(
                "damaged_checkpoint",
                f"The checkpoint {self.folder} is damaged: {CHECKPOINT_FILE} cannot be read.",
                "Remove it, and start again.",
            ) from error
        if differing:
            said = "; ".join(f"{key}: {theirs.get(key)}, now {ours[key]}" for key in differing)
            raise RequestError(
                "wrong_checkpoint",
                f"The checkpoint {self.folder} belongs to another run ({said}).",
                Text("Use its data and options, choose another {checkpoint}, or remove it."),
            )
        if corrupt is not None:
            self._write_identity(self._identity)

    def _note_corrupt(self, chunk: str | None) -> None:
        """Note a chunk that could not be read, unless other chunks have changed meanwhile."""
        if chunk is None or self._digests is None:
            return
        with contextlib.suppress(KmufsError, OSError):  # the first error is the one that counts
            every, others = self._digests(chunk)
            if every == self._identity[CHUNKS]:
                self._write_identity(self._identity | {CORRUPT: chunk, CHUNKS: others})

    def _write_identity(self, identity: dict[str, str]) -> None:
        content = json.dumps({**identity, ABOUT: self._about}, indent=1).encode()
        _write(self.folder / CHECKPOINT_FILE, lambda file: file.write(content))

    def of_pass(self, number: int, kernel: Any) -> SavedPass:
        """Return the saved states of a pass, which are counted from 1."""
        from dask.base import tokenize

        folder = self.folder / f"pass-{number:03d}"
        # The constants of a later kernel follow from earlier passes: on another machine they
        # may differ in the last bit, and states of the two must not be merged.
        return SavedPass(folder, tokenize(kernel, ensure_deterministic=True), self.tell)


@dataclass
class SavedPass:
    """The saved states of one pass."""

    folder: Folder
    kernel: str  # digest of the kernel that made them
    tell: Callable[[str], None]
    _kept: set[Node] = field(default_factory=set)
    _began: float = field(default_factory=time.monotonic)
    _due: float = 0.0

    def path(self, node: Node) -> Folder:
        return self.folder / f"{node.level}-{node.index}.state"

    def find(self, tree: Tree) -> list[Node]:
        """Return the nodes to start from; remove files that are damaged or superfluous."""
        with store_errors(self.folder):
            files: list[Any] = [*self.folder.glob("*.state")]
            for path in sorted(files, key=str):
                if _kernel_of(path) == self.kernel:
                    level, _, index = path.stem.partition("-")
                    self._kept.add(Node(int(level), int(index)))
                else:
                    path.unlink()
                    said = "is damaged, or of another machine: its rows are read again"
                    self.tell(f"{path} {said}")
        highest = tree.highest(self._kept)
        for node in highest:
            self.keep(node)
        return highest

    def missing(self, nodes: Iterable[Node]) -> list[Node]:
        """Return the nodes that are not saved yet, for saving now."""
        self._began = time.monotonic()
        return sorted(set(nodes) - self._kept)

    def keep(self, node: Node) -> None:
        """Remove the files below a node, whose own is complete."""
        self._kept.add(node)
        for below in [other for other in self._kept if node != other and node.covers(other)]:
            self.drop(below)
        now = time.monotonic()
        self._due = now + SAVING_SHARE * (now - self._began)

    def drop(self, node: Node) -> None:
        """Remove a node's file."""
        with store_errors(self.folder):
            self.path(node).unlink(missing_ok=True)
        self._kept.discard(node)

    @property
    def due(self) -> bool:
        """Whether it is time to save again."""
        return time.monotonic() >= self._due


def save_state(state: Any, path: Folder, kernel: str) -> None:
    """Write a state and its checksum, whole or not at all. Raises BrokenError if that fails."""

    def write(file: Any) -> None:
        hashing = _HashingWriter(file)
        hashing.write(kernel.encode() + b"\n")
        pickle.dump(state, hashing, protocol=5)
        file.write(hashing.digest.digest())

    with _writing(path.parent):
        _write(path, write)


def load_state(path: Folder) -> Any:
    """Read a state whose file is intact."""
    with store_errors(path), _opened(path) as file:
        file.readline()
        return pickle.load(file)


class _HashingWriter:
    def __init__(self, file: Any) -> None:
        self.file, self.digest = file, hashlib.sha256()

    def write(self, part: Any) -> int:
        self.digest.update(part)
        whole = memoryview(part).cast("B")
        for start in range(0, len(whole), PIECE):  # an object store's client copies each
            self.file.write(whole[start : start + PIECE])
        return len(whole)


def _kernel_of(path: Folder) -> str | None:
    """Return the digest of the kernel that made a file; None if the file is damaged."""
    left = path.stat().st_size - DIGEST_BYTES
    with _opened(path) as file:
        digest, kernel = hashlib.sha256(), file.readline()
        digest.update(kernel)
        left -= len(kernel)
        while left > 0 and (part := file.read(min(left, 2**20))):
            digest.update(part)
            left -= len(part)
        return kernel.decode().strip() if file.read() == digest.digest() else None


def _write(path: Folder, write: Callable[[Any], Any]) -> None:
    """Write a file under another name, flush it to disk, and rename it; an object as a whole.

    The folder of the file is created, if its parent exists.
    """
    if not isinstance(path, Path):
        with path.open("wb", block_size=PIECE) as file:
            write(file)
        return
    path.parent.mkdir(exist_ok=True)
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
    if isinstance(path, Path):
        return path.open("rb")
    file = path.open("rb", block_size=PIECE, cache_type="none")
    return io.BufferedReader(_Pieces(file), PIECE)


class _Pieces(io.RawIOBase):
    """An object read in pieces; fsspec's files hold all that is asked for at once, twice."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        return int(self._file.readinto(into[:PIECE]))


@contextlib.contextmanager
def _writing(folder: Folder) -> Iterator[None]:
    """Report any failure as BrokenError: the checkpoint cannot be written."""
    try:
        with store_errors(folder):
            yield
    except (OSError, KmufsError) as error:
        said = error.message if isinstance(error, KmufsError) else error.strerror or error
        raise BrokenError(
            "checkpoint_failed",
            f"The checkpoint cannot be written to {folder}: {said}.",
            Text("Make room, or choose another {checkpoint}."),
        ) from error

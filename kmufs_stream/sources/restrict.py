"""Fewer samples, fewer features: conditions on coordinates, patterns on labels."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from keyword import iskeyword
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kmufs_stream.errors import KmufsError, Option, RequestError, Text, did_you_mean, listed
from kmufs_stream.sources.condition import parsed
from kmufs_stream.sources.coordinates import coordinates_read
from kmufs_stream.sources.dimensions import COORDINATE_ROWS
from kmufs_stream.sources.layout import Block, joined_rows
from kmufs_stream.sources.matrix import Matrix, Rows
from kmufs_stream.sources.names import plain
from kmufs_stream.sources.spelling import Spellings
from kmufs_stream.storage.chunks import describe

Patterns = str | Sequence[str] | None
NAMED_AT_MOST = 5


@dataclass(frozen=True)
class SomeRows:
    """The rows ``index``, ascending, of other rows; read in runs of whole chunks."""

    rows: Rows
    index: NDArray[np.int64]
    chunk_rows: int

    def read(self, start: int, stop: int) -> Block:
        """See Rows."""
        if start == stop:
            return self.rows.read(0, 0)
        return joined_rows([self.rows.read(a, b)[w] for a, b, w in self._runs(start, stop)])

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        """See Rows."""
        if start == stop:
            return self.rows.take(0, 0, columns)
        return np.concatenate(
            [self.rows.take(a, b, columns)[wanted] for a, b, wanted in self._runs(start, stop)]
        )

    def _runs(self, start: int, stop: int) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
        """First row, end, and which rows between: about as many rows at a time as are asked for."""
        index = self.index[start:stop]
        run = max((stop - start) // self.chunk_rows, 1) * self.chunk_rows
        cuts = np.flatnonzero(np.diff(index // run)) + 1
        for part in np.split(index, cuts):
            first = int(part[0])
            yield first, int(part[-1]) + 1, part - first


def keep_samples(matrix: Matrix, index: NDArray[np.int64]) -> Matrix:
    """The matrix of the rows ``index``, ascending."""
    n = matrix.shape[0]
    if len(index) == n:
        return matrix
    some = {matrix.metadata.sample_dim: index}
    sparsity = None if matrix.layout.sparsity is None else matrix.layout.sparsity.of_rows(index)
    pointers = 0 if sparsity is None else sparsity.indptr.nbytes
    return replace(
        matrix,
        rows=SomeRows(matrix.rows, index, matrix.layout.chunk_rows),
        shape=(len(index), matrix.shape[1]),
        layout=replace(
            matrix.layout,
            copied=True,
            sparsity=sparsity,
            held_bytes=matrix.layout.held_bytes + index.nbytes + pointers,
        ),
        metadata=replace(
            matrix.metadata,
            coords=matrix.metadata.coords.isel(some, missing_dims="ignore"),
            beside=matrix.metadata.beside.isel(some, missing_dims="ignore"),
        ),
        provenance=replace(
            matrix.provenance,
            inventory=partial(_inventory, matrix.provenance.inventory, index),
        ),
    )


def _inventory(of_all: Callable[[], list[str]], index: NDArray[np.int64]) -> list[str]:
    """What identifies the stored data, and which of the rows are kept."""
    metadata, *chunks = of_all()
    return [describe([metadata, len(index), zlib.crc32(index.tobytes())]), *chunks]


def samples_meeting(matrix: Matrix, condition: str) -> Matrix:
    """The matrix of the samples whose coordinates meet a condition.

    Raises RequestError for conditions that make no sense, or that no sample meets.
    """
    if not isinstance(condition, str):
        raise RequestError(
            "bad_condition",
            Text("{where} is a {}: {!r}.", type(condition).__name__, condition),
            "Give a text, as in \"batch == 'b1' and depth > 10\".",
        )
    met = keep_samples(matrix, _samples_where(matrix, condition))
    return replace(met, provenance=replace(met.provenance, where=condition))


def _samples_where(matrix: Matrix, condition: str) -> NDArray[np.int64]:
    """The rows whose coordinates meet a condition, ascending; coordinates are read in pieces."""
    along = _along(matrix)
    kept = []
    try:
        asked = parsed(condition, along)
        unknown = [name for name in asked.names.values() if name not in along]
        if unknown:
            raise ValueError(f"the samples have no coordinate {unknown[0]}")
        for start in range(0, matrix.shape[0], COORDINATE_ROWS):
            rows = {name: _values(matrix, name, start) for name in asked.names.values()}
            kept.append(np.flatnonzero(asked.met(rows)) + start)
    except KmufsError:
        raise
    except Exception as error:
        said = " ".join(str(error.args[0] if error.args else type(error).__name__).split())
        raise RequestError(
            "bad_condition",
            Text("{where} {!r} cannot be answered: {}", condition, said),
            f'{_misspelt(condition, along)}Compare coordinates of the samples as in "batch == '
            f"'b1' and depth > 10\"; there are {listed(along)}.",
        ) from error
    index = np.concatenate(kept) if kept else np.empty(0, np.int64)
    if not len(index):
        raise RequestError(
            "no_samples",
            Text("No sample of {} meets {where} {!r}.", matrix.source, condition),
            f"The coordinates of the samples are {listed(along)}.",
        )
    return index


def _values(matrix: Matrix, name: str, start: int) -> NDArray[Any]:
    """Those of a coordinate from one sample on, as they are compared."""
    with coordinates_read(matrix.source):
        stored = matrix.metadata.coords[name].variable[start : start + COORDINATE_ROWS].load()
    piece = xr.Dataset({"c": stored})
    try:
        values: NDArray[Any] = (xr.decode_cf(piece) if matrix.metadata.encoded else piece)[
            "c"
        ].values
    except ValueError as error:
        raise ValueError(f"the coordinate {name} cannot be read as times: {error}") from error
    if values.dtype == object and hasattr(values[0], "calendar"):
        # Times of other calendars, which pandas compares with no text.
        return np.array([plain(value) for value in values], dtype=object)
    return values


def unknown_names(matrix: Matrix, condition: str) -> list[str]:
    """The names in a condition that no coordinate along the samples has."""
    along = _along(matrix)
    try:
        names = parsed(condition, along).names.values()
    except ValueError:
        return []
    return [name for name in names if name not in along]


def _along(matrix: Matrix) -> list[str]:
    frame = matrix.metadata.coords
    return [str(c) for c in frame.coords if frame[c].dims == (matrix.metadata.sample_dim,)]


def _misspelt(condition: str, along: list[str]) -> str:
    """What the first unknown name outside of quotes may stand for."""
    words = re.findall(r"[^\W\d]\w*", re.sub(r"'[^']*'|\"[^\"]*\"", "", condition))
    unknown = [word for word in words if word not in along and not iskeyword(word)]
    return did_you_mean(unknown[0], along) if unknown else ""


def ask_features(matrix: Matrix, features: Patterns, exclude: Patterns) -> Matrix:
    """The matrix of which only some features take part; all are still there, and counted.

    Raises RequestError for patterns that no label meets, and where no feature is left.
    """
    asked = np.ones(matrix.shape[1], bool)
    if features is not None:
        asked = matching(matrix, features, "features")
    if exclude is not None:
        asked &= ~matching(matrix, exclude, "exclude_features")
    if not asked.any():
        raise RequestError(
            "no_features",
            Text("No feature is left by {features} and {exclude_features}."),
            "Leave one of them out, or ask for more.",
        )
    if matrix.asked is not None:
        asked &= np.isin(np.arange(len(asked)), matrix.asked)
    return replace(matrix, asked=np.flatnonzero(asked))


def matching(matrix: Matrix, patterns: str | Sequence[str], parameter: str) -> NDArray[np.bool_]:
    """(p,) whether a feature's label (its number, without labels) is met by one of the patterns.

    A pattern is a label, a shell pattern, or ``@FILE`` with a label on each line; where none is met
    as it stands, it may be spelt otherwise. Raises RequestError for those that meet nothing.
    """
    labels = matrix.labels
    texts = [str(i if labels is None else plain(labels[i])) for i in range(matrix.shape[1])]
    places: dict[str, list[int]] = {}
    for i, text in enumerate(texts):
        places.setdefault(text, []).append(i)
    met = np.zeros(len(texts), bool)
    lost = []
    spellings = None
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        from_file = pattern.startswith("@") and pattern not in places
        for label in _lines(pattern[1:], parameter) if from_file else [pattern]:
            found = places.get(label, [])
            if not found and not from_file:
                found = [i for i, text in enumerate(texts) if fnmatchcase(text, label)]
            if not found and labels is not None:
                spellings = spellings or Spellings(texts, matrix.metadata.feature_dim)
                found = spellings.of(label) or ([] if from_file else spellings.meeting(label))
            met[found] = True
            if not found:
                lost.append(label)
    if lost:
        message, remedy = _unknown(lost, list(places), parameter)
        whole = None if spellings is None else spellings.completed(lost[0])
        if whole is not None:
            remedy = f"For all of these, write {whole!r}."
        raise RequestError("unknown_features", message, remedy)
    return met


def _unknown(lost: list[str], labels: list[str], parameter: str) -> tuple[str, str]:
    """Message and remedy for labels and patterns that meet no feature."""
    named = ", ".join(map(repr, lost[:NAMED_AT_MOST]))
    more = f" and {len(lost) - NAMED_AT_MOST} more" if len(lost) > NAMED_AT_MOST else ""
    remedy = f"{did_you_mean(lost[0], labels)}Labels are like {', '.join(map(repr, labels[:3]))}."
    if Path(lost[0]).is_file():
        remedy = f"To take labels from that file, write @{lost[0]}."
    return Text("{}: no feature is called {}{}.", Option(parameter), named, more), remedy


def _lines(path: str, parameter: str) -> list[str]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(
            "not_found",
            Text(
                "{}: the file {} cannot be read: {}.",
                Option(parameter),
                path,
                getattr(error, "strerror", error),
            ),
            "Give a text file with one label on each line.",
        ) from error
    return [line.strip() for line in lines if line.strip()]

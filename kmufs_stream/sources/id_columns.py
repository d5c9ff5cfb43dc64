"""Find id columns: features of whole numbers that seem to number or classify the samples."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.errors import SHOWN, Option, Text, first_few

NUMBERS = ("id", "index", "unnamed: 0")  # names of columns that number the samples
CODES = re.compile(r"(?i:(.*[\W_])?(code|id))|.*[a-z](Code|I[dD])")  # of codes and ids
CLASSES = ("class", "cluster", "label", "target", "y")  # and of classes
MOST_CLASSES = 100
MOST_CODES = 20  # distinct values, where the name tells nothing
LEAST_ROWS = 3  # fewer run by chance
SOME_ROWS = 20  # fewer differ by chance


class IdColumns:
    """Find id columns block by block, among columns of whole numbers or gaps.

    These number the samples: columns that run 0, 1, 2, ... or 1, 2, 3, ...; those named as in
    NUMBERS; and beside at least as many columns of real numbers, those whose first values differ.
    These classify them: columns named as CODES matches; those named as in CLASSES with at most
    MOST_CLASSES values; and beside real numbers, those with at most MOST_CODES values, each often.

    Parameters
    ----------
    labels : (p,) names of the features; without them nothing is found.
    """

    def __init__(self, labels: Sequence[Any] | NDArray[Any]) -> None:
        self._labels = [str(label) for label in labels]
        called = [label.strip().lower() for label in self._labels]
        self._running = np.arange(len(called))
        self._first = np.empty(0)
        self._numbers = [i for i, name in enumerate(called) if name in NUMBERS]
        self._codes = [i for i, name in enumerate(self._labels) if CODES.fullmatch(name.strip())]
        self._few = {i: np.empty(0) for i, name in enumerate(called) if name in CLASSES}
        self._most = dict.fromkeys(self._few, MOST_CLASSES)
        self._rows = 0

    def add(self, block: NDArray[Any]) -> None:
        """Add the next samples, (rows, p)."""
        if not self._labels or not len(block):
            return
        if not self._rows:
            self._first = block[0]
            self._running = self._running[(self._first == 0) | (self._first == 1)]
            self._look_among_real(block)
        for rows in (LEAST_ROWS, len(block)):  # a few rows rule out most columns
            part = block[:rows, self._running]
            runs = self._rows + np.arange(len(part))[:, None] + self._first[self._running]
            self._running = self._running[(part == runs).all(axis=0)]
        self._rows += len(block)
        self._numbers = [i for i in self._numbers if _whole(block[:, i])]
        self._codes = [i for i in self._codes if _whole(_known(block[:, i]))]
        for i, before in list(self._few.items()):
            values = _known(block[:, i])
            self._few[i] = np.union1d(before, values)
            if not _whole(values) or len(self._few[i]) > self._most[i]:
                del self._few[i]

    def _look_among_real(self, block: NDArray[Any]) -> None:
        """Judge columns by their first values alone, if others hold real numbers."""
        whole = np.arange(block.shape[1])
        for rows in (LEAST_ROWS, len(block)):
            part = block[:rows, whole]
            whole = whole[((part == np.rint(part)) | np.isnan(part)).all(axis=0)]
        if not _among_others(whole, block.shape[1]) or len(block) < SOME_ROWS:
            return
        for i in whole.tolist():
            distinct = len(np.unique(_known(block[:, i])))
            if distinct == len(block):
                self._numbers.append(i)
            elif 1 < distinct <= MOST_CODES and i not in self._few:
                self._few[i], self._most[i] = np.empty(0), MOST_CODES

    def notes(self) -> list[str]:
        """Return a note that names the columns and the options to use, if there are any."""
        often = [
            i
            for i, values in self._few.items()
            if self._most[i] == MOST_CLASSES or SHOWN * len(values) <= self._rows
        ]
        running = self._running.tolist() if self._rows >= LEAST_ROWS else []
        numbers = {*running, *self._numbers} - {*often}
        found = sorted({*numbers, *self._codes, *often})
        if not found:
            return []
        asked: dict[str, Any] = {}
        if len(numbers) == 1 and numbers <= {*found[:SHOWN]}:
            asked["index_column"] = self._labels[min(numbers)]
        if others := [self._labels[i] for i in found[:SHOWN] if {i} != numbers]:
            asked["coordinates"] = others
        return [
            Text(
                "{} may number the samples or tell what they are, and became {}: if so, "
                "convert again, also with {}, or say {exclude_features} to select.",
                first_few(repr(self._labels[i]) for i in found),
                "features" if len(found) > 1 else "a feature",
                Option(**asked, overwrite=True),
            )
        ]


def note_of_whole_numbers(
    labels: Sequence[Any] | NDArray[Any],
    dtypes: Sequence[np.dtype[Any]],
    asked: Iterable[int],
    hint: str = "",
) -> str | None:
    """Return a note on features of integer dtypes among others of real numbers, or None.

    Parameters
    ----------
    labels, dtypes : (p,) of the features.
    asked : which of them take part.
    hint : how to leave them out, unless with ``exclude_features``.
    """
    asked = list(asked)
    whole = [i for i in asked if dtypes[i].kind != "f"]
    if not _among_others(whole, len(asked)):
        return None
    names = [str(labels[i]) for i in whole]
    many = len(whole) > 1
    together = np.result_type(*dtypes)
    real = np.result_type(*(dtype for dtype in dtypes if dtype.kind == "f"))
    wider = f"; for {'their' if many else 'its'} sake all values are {together}, not {real}"
    return Text(
        "{} hold{} whole numbers, unlike the other features: if {} the samples, {}{}",
        first_few(map(repr, names)),
        "s" * (not many),
        "they describe" if many else "it describes",
        hint or Text("give {exclude_features}", exclude_features=names[:SHOWN]),
        wider * (together != real),
    )


def note_of_sample(
    labels: Sequence[Any] | NDArray[Any],
    features: NDArray[np.int64],
    index: NDArray[np.int64],
    runs: Callable[[int, NDArray[np.int64]], Iterator[NDArray[Any]]],
) -> str | None:
    """Return a note on id columns among features, judged by a sample of rows, or None.

    Parameters
    ----------
    labels : (p,) names of all features.
    features : (u,) the features to judge.
    index : (m,) row numbers of the sample.
    runs : reads given columns of it, so many rows at a time; all rows of few columns only.
    """
    if len(index) < LEAST_ROWS:
        return None
    named = [_named_as_id(str(labels[i]).strip()) for i in features.tolist()]
    first = next(runs(LEAST_ROWS, features))
    features = features[_running(first, index[:LEAST_ROWS]) | named]
    if not len(features):
        return None
    values = next(runs(len(index), features))
    running = _running(values, index)
    names = [
        label
        for label, column, runs_on in zip(
            (str(labels[i]) for i in features), values.T, running, strict=True
        )
        if runs_on or _is_id_column(label.strip(), _known(column))
    ]
    if not names:
        return None
    return Text(
        "{} may number the samples or tell what they are: if so, give {exclude_features}",
        first_few(map(repr, names)),
        exclude_features=names[:SHOWN],
    )


def _running(values: NDArray[Any], index: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which columns are the row numbers, counted from 0 or 1."""
    start = values[0].astype(np.float64) - index[0]
    same = (values == index[:, None] + start).all(axis=0)
    return np.asarray(same & ((start == 0) | (start == 1)))


def _named_as_id(name: str) -> bool:
    return name.lower() in NUMBERS + CLASSES or CODES.fullmatch(name) is not None


def _is_id_column(name: str, values: NDArray[Any]) -> bool:
    few = name.lower() not in CLASSES or len(np.unique(values)) <= MOST_CLASSES
    return _named_as_id(name) and few and _whole(values)


def _among_others(whole: Sequence[int] | NDArray[np.int64], p: int) -> bool:
    """Whether columns of whole numbers are the exception; in tables of counts all are."""
    return 0 < 2 * len(whole) <= p


def _known(values: NDArray[Any]) -> NDArray[Any]:
    return values[~np.isnan(values)] if values.dtype.kind == "f" else values


def _whole(values: NDArray[Any]) -> bool:
    return values.dtype.kind != "f" or bool((values == np.rint(values)).all())

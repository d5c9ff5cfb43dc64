"""Columns of whole numbers that became features, but look as if they described the samples."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.errors import Option, Text

NUMBERS = ("id", "index", "unnamed: 0")  # what columns are called that number the samples
CODES = re.compile(r"(?i:(.*[\W_])?(code|id))|.*[a-z](Code|I[dD])")  # what they are or belong to
CLASSES = ("class", "cluster", "label", "target", "y")  # and that tell their class
MOST_CLASSES = 100
MOST_CODES = 20  # values of a column by whose name nothing is known
LEAST_ROWS = 3  # fewer run by chance
SOME_ROWS = 20  # fewer differ by chance
SHOWN = 5


class Doubtful:
    """Looks for them, block by block.

    A column numbers the samples where it runs 0, 1, 2, ..., or from 1, or is called one of NUMBERS.
    It tells what they are where it is called as CODES has it, or one of CLASSES and holds at most
    MOST_CLASSES values. Beside as many columns of real numbers, or more, it numbers them if its
    first values all differ, and tells what they are if it holds at most MOST_CODES values, each
    often. Whatever it is, it holds whole numbers, or gaps.

    Parameters
    ----------
    labels : (p,) names of the features; without any nothing is looked for.
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
        """Some more samples: (rows, p) numbers."""
        if not self._labels or not len(block):
            return
        if not self._rows:
            self._first = block[0]
            self._running = self._running[(self._first == 0) | (self._first == 1)]
            self._look_among_real(block)
        for rows in (LEAST_ROWS, len(block)):  # the first leave few to look at
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
        """What nothing but the first values tell of columns, where others are of real numbers."""
        whole = np.arange(block.shape[1])
        for rows in (LEAST_ROWS, len(block)):
            part = block[:rows, whole]
            whole = whole[((part == np.rint(part)) | np.isnan(part)).all(axis=0)]
        if not _among_others(whole, block.shape[1]) or len(block) < SOME_ROWS:
            return
        for i in whole.tolist():
            values = _known(block[:, i])
            distinct = len(np.unique(values))
            if distinct == len(block):
                self._numbers.append(i)
            elif 1 < distinct <= MOST_CODES and i not in self._few:
                self._few[i], self._most[i] = np.empty(0), MOST_CODES

    def notes(self) -> list[str]:
        """A line that names them and says what to type, where there are any."""
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
        names = [self._labels[i] for i in found]
        asked: dict[str, Any] = {}
        if len(numbers) == 1 and numbers <= {*found[:SHOWN]}:
            asked["index_column"] = self._labels[min(numbers)]
        if others := [self._labels[i] for i in found[:SHOWN] if {i} != numbers]:
            asked["coordinates"] = others
        became = "features" if len(found) > 1 else "a feature"
        return [
            Text(
                "{} may number the samples or tell what they are, and became {}: if so, "
                "convert again, also with {}, or say {exclude_features} to select.",
                _said(names),
                became,
                Option(**asked, overwrite=True),
            )
        ]


def beside_real(
    labels: Sequence[Any] | NDArray[Any],
    dtypes: Sequence[np.dtype[Any]],
    asked: Iterable[int],
    remedy: str = "",
) -> str | None:
    """What is told of features of whole numbers, by their dtypes, among others of real ones.

    ``asked`` are those that take part; ``remedy`` says how else to keep them out. None where there
    is nothing to tell.
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
        _said(names),
        "s" * (not many),
        "they describe" if many else "it describes",
        remedy or Text("give {exclude_features}", exclude_features=names[:SHOWN]),
        wider * (together != real),
    )


def in_sample(
    labels: Sequence[Any] | NDArray[Any],
    features: NDArray[np.int64],
    index: NDArray[np.int64],
    runs: Callable[[int, NDArray[np.int64]], Iterator[NDArray[Any]]],
) -> str | None:
    """What is told of features that number the samples, by a run or their name, or are classes.

    Parameters
    ----------
    labels : (p,) names of all features.
    features : (u,) which of them to look at.
    index : (m,) row numbers of a sample.
    runs : reads some columns of it, so many rows at a time.

    Returns None where there is nothing to tell. All rows are read of few columns only.
    """
    if len(index) < LEAST_ROWS:
        return None
    named = [_is_told_by(str(labels[i]).strip()) for i in features.tolist()]
    first = next(runs(LEAST_ROWS, features))
    features = features[_running(first, index[:LEAST_ROWS]) | named]
    if not len(features):
        return None
    values = next(runs(len(index), features))
    names = [
        str(labels[i])
        for i, column, running in zip(
            features.tolist(), values.T, _running(values, index), strict=True
        )
        if running or _is_number_or_class(str(labels[i]).strip(), _known(column))
    ]
    if not names:
        return None
    return Text(
        "{} may number the samples or tell what they are: if so, give {exclude_features}",
        _said(names),
        exclude_features=names[:SHOWN],
    )


def _running(values: NDArray[Any], index: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which columns are the row numbers, counted from 0 or 1."""
    start = values[0].astype(np.float64) - index[0]
    same = (values == index[:, None] + start).all(axis=0)
    return np.asarray(same & ((start == 0) | (start == 1)))


def _is_told_by(name: str) -> bool:
    return name.lower() in NUMBERS + CLASSES or CODES.fullmatch(name) is not None


def _is_number_or_class(name: str, values: NDArray[Any]) -> bool:
    """Whether the values of a column of such a name bear it out."""
    few = name.lower() not in CLASSES or len(np.unique(values)) <= MOST_CLASSES
    return _is_told_by(name) and few and _whole(values)


def _among_others(whole: Sequence[int] | NDArray[np.int64], p: int) -> bool:
    """Whether columns of whole numbers stand apart: in tables of counts all are."""
    return 0 < 2 * len(whole) <= p


def _said(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(map(repr, names[:SHOWN])) + more


def _known(values: NDArray[Any]) -> NDArray[Any]:
    return values[~np.isnan(values)] if values.dtype.kind == "f" else values


def _whole(values: NDArray[Any]) -> bool:
    return values.dtype.kind != "f" or bool((values == np.rint(values)).all())

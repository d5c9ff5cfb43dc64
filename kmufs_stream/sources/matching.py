"""Find features by name: those that meet patterns, and those of another table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.errors import Option, RequestError, Text, did_you_mean, first_few, listed
from kmufs_stream.sources.matrix import Matrix, Rows, feature_texts
from kmufs_stream.sources.names import canonical, plain

Matched = Literal["label", "position"]
Patterns = str | Sequence[str] | None


def find_features(
    wanted: NDArray[np.int64], theirs: Sequence[str] | None, count: int, matrix: Matrix, whose: str
) -> tuple[NDArray[np.int64], Matched]:
    """Find the columns of ``matrix`` that hold features of another table. O(p).

    Parameters
    ----------
    wanted : (h,) int64, indices of features of the other table.
    theirs : names of all its features, or None.
    count : number of its features.
    whose : what the other table is called in messages.

    Features are matched by name, also if it is spelt otherwise, as of a place whose dimensions are
    in another order; by position if either table has no names. Raises RequestError for different
    numbers of features without names, and for names that are missing or not unique.
    """
    ours = feature_texts(matrix)
    if theirs is None or ours is None:
        if count != matrix.shape[1]:
            raise RequestError(
                "wrong_features",
                f"{whose} was made from {count} features, {matrix.source} has "
                f"{matrix.shape[1]}, and there are no labels to match them by.",
                "Name the features of both, or give data with the same features in this order.",
            )
        return wanted, "position"
    if list(theirs) == list(ours):  # labels may then repeat
        return wanted, "label"
    labels = [theirs[i] for i in wanted]
    place = {label: i for i, label in enumerate(ours)}
    lost = [label for label in labels if label not in place]
    if lost:
        dim = matrix.metadata.feature_dim
        alike = _places([canonical(label, dim) for label in ours])
        for label in lost:
            found = alike.get(canonical(label, dim), [])
            if len({ours[i] for i in found}) == 1:  # others may mean the same
                place[label] = found[0]
    refuse("missing_features", [label for label in lost if label not in place], "lacks", matrix)
    columns = [place[label] for label in labels]
    times, before, taken = Counter(ours), Counter(theirs), Counter(columns)
    twice = [
        label
        for label, column in zip(labels, columns, strict=True)
        if times[ours[column]] > 1 or before[label] > 1 or taken[column] > 1
    ]
    refuse("ambiguous_features", twice, f"or {whose} repeats", matrix)
    return np.array(columns, np.int64), "label"


def refuse(code: str, labels: Sequence[str], what: str, matrix: Matrix) -> None:
    """Raise RequestError about names of features, if there are any."""
    if not labels:
        return
    raise RequestError(
        code,
        f"{matrix.source} {what} {len(labels)} of the features: {first_few(map(repr, labels))}.",
        Text("Give data that hold each of them once; {feature_labels} chooses other names."),
    )


@dataclass(frozen=True)
class ReorderedRows:
    """Rows with their columns in another order."""

    rows: Rows
    order: NDArray[np.int64]

    def read(self, start: int, stop: int) -> Any:
        return self.rows.read(start, stop)[:, self.order]

    def take(self, start: int, stop: int, columns: NDArray[np.int64]) -> NDArray[Any]:
        wanted = self.order[columns]
        ascending = np.argsort(wanted)  # as sources expect them
        taken = self.rows.take(start, stop, wanted[ascending])
        return taken[:, np.argsort(ascending)]


def ask_features(matrix: Matrix, features: Patterns, exclude: Patterns) -> Matrix:
    """Return the matrix with only some features taking part; the others keep their places.

    Raises RequestError for patterns that no name meets, or if no feature is left.
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
    """Return (p,) whether the name of a feature, or its number without names, meets a pattern.

    A pattern is a name, a shell pattern, or ``@FILE`` with a name on each line. If no name meets it
    literally, other spellings are tried. Raises RequestError for patterns that meet nothing.
    """
    labels, dim = matrix.labels, matrix.metadata.feature_dim
    texts = [str(i if labels is None else plain(labels[i])) for i in range(matrix.shape[1])]
    places = _places(texts)
    alike: dict[str, list[int]] = {}
    met = np.zeros(len(texts), bool)
    lost = []
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        from_file = pattern.startswith("@") and pattern not in places
        for label in _lines(pattern[1:], parameter) if from_file else [pattern]:
            found = places.get(label) or ([] if from_file else _meeting(label, places))
            if not found and labels is not None:
                alike = alike or _places([canonical(text, dim) for text in texts])
                spelt = canonical(label, dim)
                found = alike.get(spelt) or ([] if from_file else _meeting(spelt, alike))
            met[found] = True
            if not found:
                lost.append(label)
    if lost:
        raise RequestError(
            "unknown_features",
            Text("{}: no feature is called {}.", Option(parameter), first_few(map(repr, lost))),
            f"{did_you_mean(lost[0], places)}Labels are like {listed(map(repr, [*places][:3]))}; "
            "@FILE takes them from a file.",
        )
    return met


def _places(names: Sequence[str]) -> dict[str, list[int]]:
    """Return the features of each name."""
    places: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        places.setdefault(name, []).append(i)
    return places


def _meeting(pattern: str, places: dict[str, list[int]]) -> list[int]:
    met = (features for name, features in places.items() if fnmatchcase(name, pattern))
    return [i for features in met for i in features]


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

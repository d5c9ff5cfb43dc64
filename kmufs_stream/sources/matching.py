"""Find the features of one table in another, by their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.errors import RequestError, Text
from kmufs_stream.sources import Matrix, Rows
from kmufs_stream.sources.matrix import feature_texts
from kmufs_stream.sources.spelling import Spellings

NAMED = 5  # of the features that are missing
Matched = Literal["label", "position"]


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
        spellings = Spellings(ours, matrix.metadata.feature_dim)
        place |= {label: found[0] for label in lost if (found := spellings.of(label))}
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
    first = ", ".join(map(repr, labels[:NAMED])) + (", ..." if len(labels) > NAMED else "")
    raise RequestError(
        code,
        f"{matrix.source} {what} {len(labels)} of the features: {first}.",
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

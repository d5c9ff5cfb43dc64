"""Columns of whole numbers that became features, but look as if they described the samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUMBERS = ("id", "index", "unnamed: 0")  # what columns are called that number the samples
CLASSES = ("class", "cluster", "label", "target", "y")  # and that tell their class
MOST_CLASSES = 100
LEAST_ROWS = 3  # fewer run by chance
SHOWN = 5


class Doubtful:
    """Looks for them, block by block.

    A column numbers the samples where it runs 0, 1, 2, ..., or from 1, or where it is called one of
    NUMBERS and holds whole numbers; it tells their class where it is called one of CLASSES and
    holds whole numbers, or gaps, of at most MOST_CLASSES values.

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
        self._classes = {i: np.empty(0) for i, name in enumerate(called) if name in CLASSES}
        self._rows = 0

    def add(self, block: NDArray[Any]) -> None:
        """Some more samples: (rows, p) numbers."""
        if not self._labels:
            return
        if not self._rows:
            self._first = block[0]
            self._running = self._running[(self._first == 0) | (self._first == 1)]
        for rows in (LEAST_ROWS, len(block)):  # the first leave few to look at
            part = block[:rows, self._running]
            runs = self._rows + np.arange(len(part))[:, None] + self._first[self._running]
            self._running = self._running[(part == runs).all(axis=0)]
        self._rows += len(block)
        self._numbers = [i for i in self._numbers if _whole(block[:, i])]
        for i, known in list(self._classes.items()):
            values = block[~np.isnan(block[:, i]), i]
            self._classes[i] = np.union1d(known, values)
            if not _whole(values) or len(self._classes[i]) > MOST_CLASSES:
                del self._classes[i]

    def notes(self) -> list[str]:
        """A line for each kind that was found."""
        running = self._running.tolist() if self._rows >= LEAST_ROWS else []
        numbers = sorted({*running, *self._numbers} - self._classes.keys())
        found = {"number": numbers, "tell the class of": sorted(self._classes)}
        return [self._note(does, columns) for does, columns in found.items() if columns]

    def _note(self, does: str, columns: list[int]) -> str:
        names = [self._labels[i] for i in columns[:SHOWN]]
        said = ", ".join(map(repr, names))
        if len(columns) > SHOWN:
            said += f" and {len(columns) - SHOWN:,} more"
        said_by = f"`coordinates={names}`"
        if does == "number" and len(columns) == 1:
            said_by = f"`index_column={names[0]!r}`"
        return (
            f"{said} may {does} the samples, and became {'features' * (len(columns) > 1)}"
            f"{'a feature' * (len(columns) == 1)}: if so, convert again with {said_by}."
        )


def _whole(values: NDArray[Any]) -> bool:
    return values.dtype.kind != "f" or bool((values == np.rint(values)).all())

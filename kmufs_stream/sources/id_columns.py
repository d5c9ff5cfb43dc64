"""Find id columns: features of whole numbers that seem to number or classify the samples."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.errors import SHOWN, Option, Text, first_few

CLASSES = ("class", "cluster", "label", "target", "y")  # names of columns of classes
IDS = re.compile(r"(?i:index|unnamed: 0|(.*[\W_])?(code|id))|.*[a-z](Code|I[dD])")  # and of others
MOST_CLASSES = 100
MOST_CODES = 20  # distinct values, where the name tells nothing
LEAST_ROWS = 3  # fewer run by chance
SOME_ROWS = 20  # fewer differ by chance
JUDGED_ROWS = 1000


def notes_of_block(labels: Sequence[Any] | NDArray[Any], block: NDArray[Any]) -> list[str]:
    """Return a note on id columns, judged by the first rows of a table to convert, if any.

    Parameters
    ----------
    labels : (p,) names of the features.
    block : (m, p) the first rows.
    """
    index = np.arange(0, len(block), -(-len(block) // JUDGED_ROWS) or 1)
    if len(index) < LEAST_ROWS:
        return []
    texts, values = [str(label) for label in labels], block[index]
    found = np.flatnonzero(_describe(texts, values, index) | _differ_from_real(values)).tolist()
    if not found:
        return []
    return [
        Text(
            "{} may number the samples or tell what they are, and became {}: if so, convert again, "
            "also with {}, or say {exclude_features} to select.",
            first_few(repr(texts[i]) for i in found),
            "features" if len(found) > 1 else "a feature",
            Option(coordinates=[texts[i] for i in found[:SHOWN]], overwrite=True),
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
    together = np.result_type(*dtypes)
    real = np.result_type(*(dtype for dtype in dtypes if dtype.kind == "f"))
    wider = f"; beside them all values are {together}, not {real}" * (together != real)
    return Text(
        "whole numbers, unlike the other features: {}; if these describe the samples, {}{}",
        first_few(map(repr, names)),
        hint or Text("give {exclude_features}", exclude_features=names[:SHOWN]),
        wider,
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
    for rows in (LEAST_ROWS, len(index)):  # a few rows rule out most columns
        texts = [str(labels[i]) for i in features]
        values = next(runs(rows, features))
        features = features[_describe(texts, values, index[:rows])]
        if not len(features):
            return None
    names = [str(labels[i]) for i in features]
    return Text(
        "{} may number the samples or tell what they are: if so, give {exclude_features}",
        first_few(map(repr, names)),
        exclude_features=names[:SHOWN],
    )


def _describe(
    labels: Sequence[str], values: NDArray[Any], index: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether columns count the rows from 0 or 1, or hold whole numbers and are named as ids."""
    start = values[0].astype(np.float64) - index[0]
    running = (values == index[:, None] + start).all(axis=0) & ((start == 0) | (start == 1))
    named = [i for i, label in enumerate(labels) if _is_named(label.strip(), values[:, i])]
    running[named] = _are_whole(values[:, named])
    return np.asarray(running)


def _is_named(label: str, values: NDArray[Any]) -> bool:
    if label.lower() in CLASSES:
        return len(np.unique(values)) <= MOST_CLASSES
    return IDS.fullmatch(label) is not None


def _differ_from_real(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether columns hold whole numbers among real ones, all distinct or few of them."""
    differ = _are_whole(values)
    whole = np.flatnonzero(differ)
    if len(values) < SOME_ROWS or not _among_others(whole, len(differ)):
        return np.zeros_like(differ)
    for i in whole:
        column = values[:, i]
        distinct = len(np.unique(column[~np.isnan(column)]))
        few = 1 < distinct <= min(MOST_CODES, len(values) // SHOWN)
        differ[i] = few or distinct == len(values)
    return differ


def _are_whole(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether columns hold whole numbers and gaps only."""
    return np.asarray(((values == np.rint(values)) | np.isnan(values)).all(axis=0))


def _among_others(whole: Sequence[int] | NDArray[np.int64], p: int) -> bool:
    """Whether columns of whole numbers are the exception; in tables of counts all are."""
    return 0 < 2 * len(whole) <= p

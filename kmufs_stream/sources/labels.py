"""Read the classes of the samples from a variable along them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from kmufs_stream.errors import Option, RequestError, Text, did_you_mean, listed
from kmufs_stream.sources.matrix import Matrix
from kmufs_stream.storage.chunks import coordinate_of
from kmufs_stream.storage.zarr_io import decoded

ROWS_AT_ONCE = 2**20
MAX_CLASSES = 10_000
RUNS, RUN_ROWS = 8, 4096  # by which a coordinate is judged
FEW = 50  # different values
BESIDE = Text(
    " Variables beside the data are found where the table itself is given, as {data}; a feature "
    "becomes one by convert with {coordinates}."
)


def refuse_feature(name: str, chosen: Iterable[object], source: str) -> None:
    """Raise RequestError if the classes are one of the features that were chosen."""
    if name in map(str, chosen):
        raise RequestError(
            "label_is_feature",
            f"{name!r} is one of the features that {source} chose: clusters found by the classes "
            "themselves agree with them, and that tells nothing.",
            Text(
                "Where it is a variable of its own, select again with {exclude_features} "
                "and give the data as {data}; else make it a coordinate of the samples, "
                "as convert does, also with {}, and select again.",
                Option(coordinates=name, overwrite=True),
                exclude_features=name,
            ),
        )


def class_codes(name: str, matrices: Sequence[Matrix]) -> tuple[NDArray[np.int32], int]:
    """Number the classes of the samples.

    Parameters
    ----------
    name : of a coordinate, or of another variable along the samples of one of the matrices.

    Returns (n,) codes, -1 for samples without a class (NaN, NaT, None), and the number of classes.
    Raises RequestError if there is no such variable, or if its values are no classes.
    """
    along: dict[str, xr.DataArray] = {}
    for matrix in matrices:
        along |= {c: v for c, v in along_samples(matrix).items() if c not in along}
    source = " or ".join(dict.fromkeys(matrix.source for matrix in matrices))
    if name not in along:
        raise RequestError(
            "unknown_labels",
            f"There is no variable {name!r} along the samples of {source}.",
            f"{did_you_mean(name, along)}Along the samples are: {listed(along)}." + BESIDE,
        )
    labels = along[name]
    codes = np.empty(labels.shape[0], np.int32)
    known: dict[object, int] = {}
    for a in range(0, len(codes), ROWS_AT_ONCE):
        with coordinate_of(source):
            read = labels[a : a + ROWS_AT_ONCE].values
        piece, values = pd.factorize(read)
        numbers = [known.setdefault(value, len(known)) for value in values]
        if len(known) > MAX_CLASSES:
            raise RequestError(
                "not_classes",
                f"{name!r} has more than {MAX_CLASSES} different values.",
                "Give a variable that holds the class of each sample.",
            )
        codes[a : a + len(piece)] = np.array([*numbers, -1], np.int32)[piece]
    if not known:
        raise RequestError(
            "no_classes", f"No sample has a value of {name!r}.", "Give another variable."
        )
    return codes, len(known)


def likely_classes(matrix: Matrix, k: int) -> list[str]:
    """Find coordinates of the samples that seem to hold classes: text or integers of few values.

    Judged by runs of rows, evenly spread, that hold 2 to 50 values, each twice on average. Those of
    about k values come first, of these text.
    """
    n = matrix.shape[0]
    starts = np.unique(np.linspace(0, max(n - RUN_ROWS, 0), RUNS).astype(int))
    found: list[tuple[int, bool, str]] = []
    for name, labels in along_samples(matrix).items():
        if name in matrix.metadata.beside or labels.dtype.kind not in "OTUSbiu":
            continue
        with coordinate_of(matrix.source):
            seen = np.concatenate([labels[a : a + RUN_ROWS].values for a in starts.tolist()])
        values = len(pd.unique(seen))
        if 2 <= values <= min(FEW, len(seen) // 2):
            found.append((abs(values - k), labels.dtype.kind in "biu", name))
    return [name for *_, name in sorted(found)]


def along_samples(matrix: Matrix) -> dict[str, xr.DataArray]:
    """Return coordinates and other variables along the samples, decoded lazily."""
    metadata = matrix.metadata
    return {
        str(name): decoded(xr.Dataset({"labels": c.variable}))["labels"] if metadata.encoded else c
        for name, c in (metadata.coords.coords | metadata.beside.coords).items()
        if c.dims == (metadata.sample_dim,)
    }

"""Names of features and samples: found among coordinates, decoded, and shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray


def plain(value: Any) -> str | int | float | bool:
    """A label as a plain JSON value: numbers stay numbers, times become ISO strings.

    Spans of time are told in the largest unit that fits. Numbers have as few digits as tell them
    from all others of their dtype: 75.1 in float32, not what that is in float64; times no fraction
    of a second where there is none.
    """
    if isinstance(value, np.timedelta64 | timedelta):
        return _span(np.timedelta64(value))
    if isinstance(value, np.datetime64):
        text = str(value)
        return text.rstrip("0").rstrip(".") if "." in text else text
    if hasattr(value, "isoformat"):  # times of other calendars, as cftime has them
        return str(value.isoformat())
    if isinstance(value, np.float16 | np.float32):
        value = float(str(value))
    item = value.item() if isinstance(value, np.generic) else value
    if isinstance(item, bytes):
        return item.decode("utf-8", "replace")
    if isinstance(item, float) and not np.isfinite(item):
        return str(item)
    return item if isinstance(item, str | int | float | bool) else str(item)


def _span(value: np.timedelta64) -> str:
    """A span of time in the largest unit that it is whole in, like ``6 hours``."""
    units = (value.astype(f"m8[{unit}]") for unit in ("D", "h", "m", "s", "ms", "us"))
    return str(next((span for span in units if span == value), value))


def feature_labels(frame: xr.Dataset, feature_dim: str) -> NDArray[Any] | None:
    """The names of the features: their index coordinate, else their only textual coordinate."""
    along = [name for name, c in frame.coords.items() if c.dims == (feature_dim,)]
    if feature_dim not in along:
        along = [name for name in along if frame[name].dtype.kind in "OUST"]
    if feature_dim in along:
        along = [feature_dim]
    return decoded_values(frame[along[0]].variable) if len(along) == 1 else None


def decoded_values(stored: xr.Variable) -> NDArray[Any]:
    """A coordinate's values: times and packed numbers as what they stand for."""
    try:
        return np.asarray(xr.decode_cf(xr.Dataset({"labels": stored}))["labels"].values)
    except ValueError:  # time units that nobody knows: the numbers then are the labels
        return np.asarray(stored.values)


def joined(names: Sequence[Any], rows: Iterable[Iterable[Any]], count: int) -> NDArray[Any]:
    """Labels of stacked features: each dimension and the label there, like ``lat=75 lon=2.5``."""
    texts = (
        " ".join(f"{name}={_short(plain(x))}" for name, x in zip(names, levels, strict=True))
        for levels in rows
    )
    return np.fromiter(texts, dtype=object, count=count)


def _short(label: str | int | float | bool) -> str:
    whole = isinstance(label, float) and label.is_integer() and abs(label) < 2**53
    return str(int(label) if whole else label)

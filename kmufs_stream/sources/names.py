"""Find names of features among coordinates, decode, show and compare them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

PARTS = re.compile(r"\s+(?=[^\s=]+=)")  # the spaces of "lat=75 lon=202.5"


def plain(value: Any) -> str | int | float | bool:
    """Convert a name to a JSON value: numbers stay numbers, times become ISO strings.

    Numbers get the fewest digits that identify them within their dtype: 75.1 in float32, not its
    value in float64. Times get no empty fractions of a second, spans the largest unit that fits.
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
    """Spell a span of time in the largest unit of which it is a multiple, like ``6 hours``."""
    units = (value.astype(f"m8[{unit}]") for unit in ("D", "h", "m", "s", "ms", "us"))
    return str(next((span for span in units if span == value), value))


def feature_labels(frame: xr.Dataset, feature_dim: str) -> NDArray[Any] | None:
    """Return the names of the features: their index, or else their only textual coordinate."""
    along = [name for name, c in frame.coords.items() if c.dims == (feature_dim,)]
    if feature_dim not in along:
        along = [name for name in along if frame[name].dtype.kind in "OUST"]
    if feature_dim in along:
        along = [feature_dim]
    return decoded_values(frame[along[0]].variable) if len(along) == 1 else None


def decoded_values(stored: xr.Variable) -> NDArray[Any]:
    """Return the values of a coordinate, with times and packed numbers decoded."""
    try:
        return np.asarray(xr.decode_cf(xr.Dataset({"labels": stored}))["labels"].values)
    except ValueError:  # unknown units of time: the numbers are the names
        return np.asarray(stored.values)


def joined(names: Sequence[Any], rows: Iterable[Iterable[Any]], count: int) -> NDArray[Any]:
    """Return names of stacked features, like ``lat=75 lon=2.5``."""
    texts = (
        " ".join(f"{name}={_short(plain(x))}" for name, x in zip(names, levels, strict=True))
        for levels in rows
    )
    return np.fromiter(texts, dtype=object, count=count)


def _short(label: str | int | float | bool) -> str:
    whole = isinstance(label, float) and label.is_integer() and abs(label) < 2**53
    return str(int(label) if whole else label)


def canonical(name: str, feature_dim: str) -> str:
    """Spell a name in one way, whatever the order of its parts and the digits of its numbers.

    ``lon=2 lat=75.0`` becomes ``lat=75.0 lon=2.0``, and ``time=2001-01-01`` along the dimension
    time ``2001-01-01``, as does the midnight of that day.
    """
    parts = [part.partition("=") for part in PARTS.split(name.strip())]
    if len(parts) == 1 and parts[0][0] == feature_dim:
        return _canonical_value(parts[0][2])
    if not all(equals for _, equals, _ in parts):
        return _canonical_value(name.strip())
    return " ".join(sorted(f"{dim}={_canonical_value(value)}" for dim, _, value in parts))


def _canonical_value(text: str) -> str:
    try:
        return str(float(text) + 0)  # of -0 too
    except ValueError:
        return text.removesuffix("T00:00:00")

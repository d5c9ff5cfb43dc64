"""Which table of the data to open, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import zarr

from kmufs_stream.errors import Option, RequestError, Text
from kmufs_stream.storage.retrying import RETRIES, with_retries

Names = str | Sequence[str] | None
DIMS = ("sample_dims", "feature_dims")
NOT_CHOICES = ("fill_missing_chunks", "retries")


@dataclass(frozen=True)
class Opening:
    """Parameters of :func:`kmufs_stream.open_matrix` that choose a table and how to read it.

    A source refuses those that it has no use for, and ignores none.
    """

    variable: str | None = None
    group: str | None = None
    features_from_variables: bool = False
    layer: str | None = None
    raw: bool = False
    sample_dims: tuple[str, ...] = ()
    feature_dims: tuple[str, ...] = ()
    fill_missing_chunks: bool = False
    retries: int = RETRIES

    @property
    def has_dims(self) -> bool:
        return bool(self.sample_dims or self.feature_dims)

    def located(self) -> dict[str, Any]:
        """Return the parameters given that choose the table, as JSON types."""
        given = {name: value for name, value in asdict(self).items() if value}
        return {
            name: [*value] if isinstance(value, tuple) else value
            for name, value in given.items()
            if name not in NOT_CHOICES
        }

    def refuse_others(self, code: str, what: str, *used: str) -> None:
        """Raise RequestError if a parameter is given that has no use for ``what``."""
        others = [name for name in self.located() if name not in used]
        if others:
            raise RequestError(
                code,
                Text("{} of {} cannot be chosen.", Option(others[0]), what),
                "Leave it out, or give other data.",
            )

    def retrying(self, array: zarr.Array[Any]) -> zarr.Array[Any]:
        """Return the array as it is to be read; see :func:`with_retries`."""
        return with_retries(array, retries=self.retries, missing_is_fill=self.fill_missing_chunks)


def named(names: Names) -> tuple[str, ...]:
    """Return one name, several, or none, as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names or ())

"""Which table of the data to open, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import zarr

from kmufs_stream.errors import RequestError, Text
from kmufs_stream.storage.retrying import RETRIES, with_retries

Names = str | Sequence[str] | None
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

    def refuse_choice(self, what: str, *allowed: str) -> None:
        """Raise RequestError if a table within a store is chosen: ``what`` is none."""
        chosen = self.located().keys() - {"sample_dims", "feature_dims", *allowed}
        if chosen:
            raise RequestError(
                "not_a_store",
                Text(
                    "{variable}, {group}, {features_from_variables}, {layer} and {raw} "
                    "choose within a store; {} is not one.",
                    what,
                ),
                "Leave them out, or give a path or a store.",
            )

    def retrying(self, array: zarr.Array[Any]) -> zarr.Array[Any]:
        """Return the array as it is to be read; see :func:`with_retries`."""
        return with_retries(array, retries=self.retries, missing_is_fill=self.fill_missing_chunks)


def named(names: Names) -> tuple[str, ...]:
    """Return one name, several, or none, as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names or ())

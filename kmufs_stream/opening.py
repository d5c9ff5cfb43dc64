"""Data opened as those were from which something was made."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from kmufs_stream.errors import RequestError
from kmufs_stream.factor import Factor
from kmufs_stream.places import PlaceLike, is_there, place_of
from kmufs_stream.recognition import stored_attributes
from kmufs_stream.sources import LOCATING, Matrix, open_matrix

DIMS = ("sample_dims", "feature_dims")
LABELS = ("feature_labels",)
WITHIN = tuple(name for name in LOCATING if name not in DIMS + LABELS)
LACKING = (  # codes of what these data have not, and others had
    "ambiguous_variable",
    "bad_option",
    "no_table",
    "not_2d",
    "not_a_store",
    "not_anndata",
    "unknown_dimension",
    "unknown_group",
    "unknown_labels",
    "unknown_variable",
    "which_dimensions",
)


def open_like(made: Factor | PlaceLike | None, data: Any, **options: Any) -> Matrix:
    """Open data as those were from which a selection or a factor was made.

    Parameters
    ----------
    made : the factor, or where either is stored.
    data, options : see :func:`kmufs_stream.open_matrix`. What of these says where the table is,
        such as ``sample_dims``, is taken from ``made`` where it is not given, and where the data
        have it.

    Raises what ``open_matrix`` raises, of what is known where nothing else is right either.
    """
    known = {} if isinstance(data, Matrix) else _located(made, options.get("storage_options"))
    for names in (WITHIN, DIMS, LABELS):  # of those that belong together one speaks for all
        if any(options.get(name) for name in names):
            known = {name: value for name, value in known.items() if name not in names}
    try:
        return open_matrix(data, **{**options, **known})
    except RequestError as error:
        if not known or error.code not in LACKING:
            raise
        for less in ({name: known[name] for name in DIMS if name in known}, {}):
            with contextlib.suppress(RequestError):
                return open_matrix(data, **{**options, **less})
        raise


def _located(
    made: Factor | PlaceLike | None, storage_options: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What something that was made says of where the table was; nothing where it is not there."""
    if made is None:
        return {}
    if isinstance(made, Factor):
        return made.located
    place = place_of(made, storage_options)
    attrs = (stored_attributes(place) if is_there(place) else None) or {}
    return dict(json.loads(attrs.get("located", "{}")))

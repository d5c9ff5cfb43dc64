"""Open data with the options recorded in a factor or selection that was made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from kmufs_stream.errors import RequestError
from kmufs_stream.factors.factor import Factor
from kmufs_stream.factors.store import load_factor
from kmufs_stream.sources import Matrix, open_matrix
from kmufs_stream.sources.samples import samples_meeting
from kmufs_stream.sources.transforms import transformed
from kmufs_stream.sources.written import identify
from kmufs_stream.storage.places import Place, PlaceLike, check_exists, place_of

WHICH = ("variable", "features_from_variables")
DIMS = ("sample_dims", "feature_dims")
TOGETHER = (WHICH, ("group",), ("layer", "raw"), DIMS, ("feature_labels",))
UNNAMED = "data"  # what arrays without a name are called
LACKING = (  # codes of errors for what these data lack and others had
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


class Inputs(NamedTuple):
    """A table, and a factor of it."""

    matrix: Matrix  # as it was when the factor was made
    factor: Factor | None
    places: list[Place]  # what no output may overwrite


def open_inputs(
    data: Any,
    factor: Factor | PlaceLike | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Inputs:
    """Open a table, and the factor by which features are chosen from it, if there is one."""
    matrix = open_like(factor, data, storage_options=storage_options)
    places = matrix.inputs
    if factor is None:
        return Inputs(matrix, None, places)
    if not isinstance(factor, Factor):
        place = place_of(factor, storage_options)
        places.append(place)
        factor = load_factor(place)
    return Inputs(as_decomposed(factor, matrix), factor, places)


def open_like(made: Factor | PlaceLike | None, data: Any, **options: Any) -> Matrix:
    """Open data with the options recorded in a factor or selection that was made of similar data.

    Parameters
    ----------
    made : Factor, path, address, Zarr store or None
        The factor, or where a factor or a selection is stored; None opens the data as they are.
    data : path, address, Zarr store or array, table in memory, or Matrix
        Whatever :func:`kmufs_stream.open_matrix` opens.
    options
        Its keywords. Those that say where the table is, such as ``sample_dims``, default to the
        recorded ones, unless the data have no such dimension, group or layer. A table of another
        name is never taken for the recorded variable.

    Returns
    -------
    Matrix
        Lazy; nothing of its values is read.

    Raises
    ------
    RequestError
        What ``open_matrix`` raises; nothing is stored at ``made``.
    """
    known = {} if isinstance(data, Matrix) else _located(made, options.get("storage_options"))
    for names in TOGETHER:  # one that is given speaks for all
        if any(options.get(name) for name in names):
            known = {name: value for name, value in known.items() if name not in names}
    if not known:
        return open_matrix(data, **options)
    refused, name = None, known.get("variable")
    for kept in (tuple(known), WHICH + DIMS, DIMS, ()):
        said = {option: known[option] for option in kept if option in known}
        try:
            found = open_matrix(data, **{**options, **said})
        except RequestError as error:
            if refused is None and error.code not in LACKING:
                raise
            refused = refused or error
            if error.code == "not_a_store":  # only a store has variables to choose from
                name = None
            continue
        if said == known or name is None or found.metadata.name in (name, UNNAMED):
            return found
    assert refused is not None
    raise refused


def as_decomposed(factor: Factor, matrix: Matrix) -> Matrix:
    """Apply the factor's transforms, condition and choice of features to the data it was made of.

    Those with which the data were opened are kept; whether they are the factor's is checked by
    :func:`kmufs_stream.factors.identity.check_belongs`. Raises RequestError as :func:`as_made`.
    """
    matrix = as_made(matrix, factor.transforms, factor.where)
    asked, p = factor.features.asked, len(factor.features.mean)
    if matrix.asked is None and len(asked) < p == matrix.shape[1]:
        matrix = replace(matrix, asked=asked)
    return matrix


def as_made(matrix: Matrix, transforms: tuple[str, ...], where: str) -> Matrix:
    """Apply recorded transforms and a recorded condition, unless the data were opened with others.

    Raises RequestError if the data lack what the condition is about.
    """
    if not matrix.transforms:
        matrix = transformed(matrix, transforms)
    return samples_meeting(matrix, where) if where and not matrix.provenance.where else matrix


def _located(
    made: Factor | PlaceLike | None, storage_options: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Read where the table was; raises RequestError if nothing is stored at ``made``."""
    if made is None:
        return {}
    if isinstance(made, Factor):
        said = made.located
    else:
        place = place_of(made, storage_options)
        check_exists(place, "Make it with kmufs-stream select, or kmufs-stream decompose.")
        found = identify(place)
        said = {} if found is None else json.loads(found.attributes.get("located", "{}"))
    # A store must not choose what else is opened, nor with which storage options.
    return {name: said[name] for names in TOGETHER for name in names if name in said}

"""Add rows to a factor: only these are read, and the merged sums are decomposed again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kmufs_stream.errors import BrokenError, RequestError, Text
from kmufs_stream.events import SILENT, Progress, Started
from kmufs_stream.factors.computing import check_spread
from kmufs_stream.factors.factor import Factor, RowSample, check_rank
from kmufs_stream.factors.identity import added_rows, check_apart, check_unchanged, digest_of_chunks
from kmufs_stream.factors.methods.gram import gram_kernel, leading_of_gram, state_of
from kmufs_stream.factors.methods.screening import (
    ALL_MISSING,
    CONSTANT,
    LOW_STD,
    RARE,
    Standardised,
)
from kmufs_stream.factors.planning import plan_for
from kmufs_stream.factors.reader import Reader, tell_plan
from kmufs_stream.factors.reopening import open_like
from kmufs_stream.factors.store import load_factor, save_factor
from kmufs_stream.options import LanczosOptions
from kmufs_stream.sources import Matrix
from kmufs_stream.sources.casting import read_as
from kmufs_stream.sources.matching import ReorderedRows, find_features, refuse
from kmufs_stream.sources.matrix import feature_texts
from kmufs_stream.sources.transforms import transformed
from kmufs_stream.sources.written import identify
from kmufs_stream.storage.output import check_output
from kmufs_stream.storage.places import Place, PlaceLike, name_of, place_of
from kmufs_stream.storage.provenance import origin
from kmufs_stream.streaming.kernels.sample import sample_index, sample_size
from kmufs_stream.streaming.kernels.scaling import Precision, Scaling, read_probe
from kmufs_stream.streaming.planning.sizing import PlanRequest
from kmufs_stream.system import blas
from kmufs_stream.typing import Bool


def update(
    factor: Factor | PlaceLike,
    data: Any,
    *,
    out: PlaceLike | None = None,
    overwrite: bool = False,
    memory: str | int | None = None,
    threads: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    command: str | None = None,
    progress: Progress = SILENT,
) -> Factor:
    """Add the rows of ``data`` to a factor, after those that it was made from.

    Parameters
    ----------
    factor : Factor, path, address or Zarr store
        One made by ``gram``, or where it is stored.
    data : path, address, Zarr store or array, table in memory, or Matrix
        Anything that :func:`kmufs_stream.open_matrix` opens, with the same features, in any order
        if labels name them. The factor's transforms, choice of features and treatment of missing
        values and rare features apply to the new rows too; so does its dtype, to which floating
        point is rounded, and where in the data the table is.
    out, overwrite
        Where to store the result; see :func:`kmufs_stream.save_factor`.
    memory, threads, storage_options, command, progress
        See :func:`kmufs_stream.decompose`.

    Returns
    -------
    Factor
        Up to rounding that of all rows together, with the same rows in its sample.

    Raises
    ------
    RequestError
        The factor has no Gram matrix, or left out a feature that the new rows bring back; the new
        rows have other features, do not fit the factor's dtype, or are in it already (if some are,
        as far as samples show). Also whatever :func:`kmufs_stream.decompose` refuses.
    BrokenError
        A chunk is missing or cannot be read.

    Notes
    -----
    Reads ``data`` once, the older rows never. O(m p^2 + p^3) for m new rows.
    """
    matrix = open_like(factor, data, storage_options=storage_options)
    inputs = matrix.inputs
    target = None if out is None else place_of(out, storage_options)
    replaced: Place | None = None
    if not isinstance(factor, Factor):
        source = place_of(factor, storage_options)
        if target is not None and name_of(target) == name_of(source):
            replaced = source
        else:
            inputs.append(source)
        factor = load_factor(source)
    if target is not None:
        check_output(target, inputs, overwrite=overwrite)
    if factor.correlation is None or not factor.fingerprint:
        how = f"by {factor.method}" if factor.fingerprint else "of batches in memory"
        raise RequestError(
            "not_incremental",
            f"The factor was made {how}: only one that decompose made by gram takes further rows.",
            Text("Decompose all rows again, with {method}.", method="gram"),
        )
    matrix = _with_features_of(factor, matrix)
    older = factor.origin.get("source", "other data")
    updated = replace(
        _added(factor, matrix, memory, threads, progress),
        where=factor.where if factor.where == matrix.provenance.where else "",
        origin=origin(f"{older}, then {matrix.source}", command),
    )
    if replaced is not None:
        _check_not_updated(replaced, factor)
    if target is not None:
        progress(Started("writing"))
        save_factor(updated, target, overwrite=overwrite)
    return updated


def _check_not_updated(place: Place, factor: Factor) -> None:
    stored = identify(place)
    if stored is None or stored.attributes.get("fingerprint") != factor.fingerprint:
        raise BrokenError(
            "changed",
            f"{name_of(place)} is another factor than when this update began: something else "
            "has added rows to it; it is left as it is.",
            "Run again: these rows are added to what it is now.",
        )


def _with_features_of(factor: Factor, matrix: Matrix) -> Matrix:
    """Apply the factor's transforms, and put its features into its order."""
    features, p = factor.features, len(factor.features.mean)
    if not matrix.transforms:
        matrix = transformed(matrix, factor.transforms)
    matrix = read_as(
        matrix,
        factor.sample.values.dtype,
        "The older rows are of that dtype: decompose all rows together, stored in a wider one.",
    )
    labels = None if factor.labels is None else list(factor.labels)
    order, matched = find_features(np.arange(p), labels, p, matrix, "The factor")
    if matched == "label" and matrix.shape[1] > p:
        ours = feature_texts(matrix)
        more = [] if ours is None else list(np.delete(ours, order))
        refuse("other_features", more, "has more features than the factor,", matrix)
    if not np.array_equal(order, np.arange(p)):
        matrix = replace(
            matrix,
            rows=ReorderedRows(matrix.rows, order),
            labels=None if matrix.labels is None else matrix.labels[order],
            layout=replace(matrix.layout, copied=True),
            dtypes=(),
        )
    asked = features.asked
    return replace(matrix, asked=asked if len(asked) < p else None)


def _added(
    factor: Factor,
    matrix: Matrix,
    memory: str | int | None,
    threads: int | None,
    progress: Progress,
) -> Factor:
    before, screening, k = factor.features, factor.screening, factor.k
    asked, p = before.of_asked(), matrix.shape[1]
    if not matrix.shape[0]:
        raise RequestError(
            "too_few_samples",
            f"{matrix.source} has no samples to add.",
            "Give one or more.",
        )
    squares = 4 if factor.gaps is None else 7
    held = factor.nbytes + 2 * factor.sample.values.nbytes + squares * 8 * matrix.width**2
    request = PlanRequest(
        held=held, method="gram", memory=memory, threads=threads, precision=factor.precision
    )
    plan = plan_for(matrix, k, request, LanczosOptions(), screening)
    tell_plan(plan, progress)
    chunks = digest_of_chunks(matrix)
    belongs = added_rows(factor, matrix, read_probe(matrix))
    sparse, fills = matrix.layout.sparsity is not None, screening.missing == "mean"
    # Features that never varied in the older rows may still be constant.
    empty = asked.excluded.get(ALL_MISSING, asked.usable[:0])
    unsure = np.union1d(empty, asked.excluded.get(CONSTANT, ()))
    centre = np.zeros_like(asked.mean) if sparse else asked.mean
    scaling = Scaling.about(
        centre, asked.std, unsure.astype(np.int64), matrix.dtype, plan.precision
    )
    n = before.rows + matrix.shape[0]
    sampled = sample_index(n, sample_size(n, p * factor.sample.values.dtype.itemsize))
    kept = np.isin(factor.sample.index, sampled)
    complete = None
    if screening.missing == "drop-samples":
        complete = ~np.isin(np.arange(matrix.width), empty)
    sampled = sampled[sampled >= before.rows] - before.rows
    reader = Reader(
        matrix, plan, screening, progress, sampled=sampled, before=asked, complete=complete
    )
    with blas.all_cores(), _naming_factor():
        added = reader(gram_kernel(scaling, sparse=sparse, fills=fills))
        state = state_of(factor, scaling) + added
        del added
        single = "float32" in (factor.precision, plan.precision)
        least: Precision = "float32" if single else "float64"
        leading = leading_of_gram(state, replace(scaling, precision=least), k, reader.standardise)
    features = leading.features.of_all(before.asked, p)
    _check_returned(before, features, reader.complete, matrix)
    check_unchanged(matrix, chunks)
    rows = reader.sample()
    check_apart(factor, rows, matrix)
    updated = replace(
        factor,
        **vars(leading) | {"features": features, "passes": reader.passes},
        sample=RowSample(
            np.concatenate([factor.sample.index[kept], before.rows + rows.index]),
            [factor.sample.values[kept], *rows.pieces],
        ),
        precision=least,
        fingerprint=belongs,
    )
    with _naming_factor():
        if sparse:
            check_spread(features, matrix.feature_name)
        check_rank(k, updated)
    return updated


@contextlib.contextmanager
def _naming_factor() -> Iterator[None]:
    """Add to hints that the factor fixes the options they name, which an update does not take."""
    try:
        yield
    except RequestError as error:
        keeps = Text("A factor keeps its options; to change them decompose all rows anew. ")
        raise RequestError(error.code, error.message, keeps + error.remedy) from error


def _check_returned(
    before: Standardised, after: Standardised, complete: Bool | None, matrix: Matrix
) -> None:
    """Raise RequestError for features that need the older rows, which are no longer there."""
    lost = {reason: before.excluded.get(reason, before.usable[:0]) for reason in (LOW_STD, RARE)}
    lost = {reason: np.intersect1d(i, after.usable) for reason, i in lost.items()}
    if complete is not None:
        valued = np.union1d(after.usable, before.asked[complete])
        lost[ALL_MISSING] = np.intersect1d(before.excluded.get(ALL_MISSING, ()), valued)
    for reason, index in lost.items():
        if len(index):
            raise RequestError(
                "feature_returned",
                f"{matrix.feature_name(int(index[0]))} was left out of the factor as "
                f"{reason.replace('_', ' ')}, and with the new rows it no longer is "
                f"({len(index)} such features): what it has to do with the others in the older "
                "rows is not in the factor.",
                "Decompose all rows together.",
            )

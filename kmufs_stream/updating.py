"""Rows added to a factor: only they are read, and the merged state is decomposed again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmufs_stream.errors import BrokenError, RequestError, Text
from kmufs_stream.events import SILENT, Progress, Started
from kmufs_stream.factors.computing import check_spread
from kmufs_stream.factors.factor import Factor, RowSample, check_k, check_rank
from kmufs_stream.factors.identity import added_rows, check_apart, check_unchanged, digest_of_chunks
from kmufs_stream.factors.methods.gram import gram_kernel, leading_of_gram, state_of
from kmufs_stream.factors.methods.screening import (
    ALL_MISSING,
    CONSTANT,
    LOW_STD,
    RARE,
    Standardised,
    standardise,
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
from kmufs_stream.streaming.planning.plan import Plan
from kmufs_stream.streaming.planning.sizing import PlanRequest
from kmufs_stream.system import blas

UNKNOWN = "data that are not recorded"


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
    """The factor of the rows that a factor was made from, followed by those of ``data``.

    Parameters
    ----------
    factor : Factor, path, address or Zarr store
        One made by ``gram``, or where it is stored.
    data : path, address, Zarr store or array, table in memory, or Matrix
        (m, p), whatever :func:`kmufs_stream.open_matrix` opens, with the same features: in any
        order where labels name them. The factor's transforms, features that take part, and what
        becomes of missing values and rare features are those of the new rows too; so is its dtype,
        to which floating point is rounded, and where in the data the table is.
    out, overwrite
        Where to store the result; see :func:`kmufs_stream.save_factor`.
    memory, threads, storage_options, command, progress
        See :func:`kmufs_stream.decompose`.

    Returns
    -------
    Factor
        Equal, to rounding, to the factor of all rows together; its row sample holds the same rows.

    Raises
    ------
    RequestError
        A factor without its Gram matrix, other features, numbers that the factor's dtype does not
        hold, rows that are in it already (of part of them as far as samples show), or before which
        a feature was left out that has to take part with them; whatever
        :func:`kmufs_stream.decompose` refuses.
    BrokenError
        A chunk is missing or cannot be read.

    Notes
    -----
    Reads ``data`` once, the older rows never. O(m p^2 + p^3).
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
    if factor.correlation is None:
        raise RequestError(
            "not_incremental",
            f"The factor was made by {factor.method}, which keeps no sums that could go on.",
            Text("Make it with decompose {method}, or decompose all rows again.", method="gram"),
        )
    if not factor.fingerprint:
        raise RequestError(
            "not_incremental",
            "The factor was made of batches in memory, and does not know what they were.",
            "Give further rows to partial_fit() too, or decompose all rows again.",
        )
    matrix = _with_features_of(factor, matrix)
    updated = replace(
        _added(factor, matrix, memory, threads, progress),
        where=factor.where if factor.where == matrix.provenance.where else "",
        origin=origin(f"{factor.origin.get('source', UNKNOWN)}, then {matrix.source}", command),
    )
    stored = None if replaced is None else identify(replaced)
    if replaced is not None and (
        stored is None or stored.attributes.get("fingerprint") != factor.fingerprint
    ):
        raise BrokenError(
            "changed",
            f"{name_of(replaced)} is another factor than when this update began: something else "
            "has added rows to it; it is left as it is.",
            "Run again: these rows are added to what it is now.",
        )
    if target is not None:
        progress(Started("writing"))
        save_factor(updated, target, overwrite=overwrite)
    return updated


def _with_features_of(factor: Factor, matrix: Matrix) -> Matrix:
    """The new rows with the factor's transforms, and its features in its order."""
    features, p = factor.features, len(factor.features.mean)
    if not matrix.transforms:
        matrix = transformed(matrix, factor.transforms)
    elif matrix.transforms != factor.transforms:
        raise RequestError(
            "wrong_data",
            "The factor was made with the transforms: "
            f"{', '.join(factor.transforms) or 'none'}; the new rows are opened with: "
            f"{', '.join(matrix.transforms)}.",
            Text("Leave out {transform}: the factor's are applied."),
        )
    matrix = read_as(
        matrix,
        factor.sample.values.dtype,
        "The older rows are of that dtype: decompose all rows together, stored in a wider one.",
    )
    texts = factor.labels
    order, matched = find_features(
        np.arange(p), None if texts is None else list(texts), p, matrix, "The factor"
    )
    if matched == "label" and matrix.shape[1] > p:
        ours = feature_texts(matrix)
        more = [] if ours is None else list(np.delete(ours, order))
        refuse("other_features", more, "has more features than the factor,", matrix)
    if not np.array_equal(order, np.arange(p)):
        labels = None if matrix.labels is None else matrix.labels[order]
        rows = ReorderedRows(matrix.rows, order)
        layout = replace(matrix.layout, copied=True)
        matrix = replace(matrix, rows=rows, labels=labels, layout=layout, dtypes=())
    asked = features.asked
    return replace(matrix, asked=asked if len(asked) < p else None)


def _added(
    factor: Factor,
    matrix: Matrix,
    memory: str | int | None,
    threads: int | None,
    progress: Progress,
) -> Factor:
    before, screening = factor.features, factor.screening
    m, p = matrix.shape
    if m == 0:
        raise RequestError(
            "too_few_samples",
            f"{matrix.source} has no samples to add.",
            "Give one or more.",
        )
    k = factor.k
    plan = _plan(factor, matrix, memory, threads)
    tell_plan(plan, progress)
    pieces = digest_of_chunks(matrix)
    belongs = added_rows(factor, matrix, read_probe(matrix))
    scaling = _scaling(before.of_asked(), matrix, plan)
    n = before.rows + m
    sampled = sample_index(n, sample_size(n, p * factor.sample.values.dtype.itemsize))
    kept = np.isin(factor.sample.index, sampled)
    complete = None
    if screening.missing == "drop-samples":
        complete = np.ones(matrix.width, bool)
        complete[before.of_asked().excluded.get(ALL_MISSING, [])] = False
    reader = Reader(
        matrix,
        plan,
        screening,
        progress,
        sampled=sampled[sampled >= before.rows] - before.rows,
        complete=complete,
    )
    with blas.all_cores(), _fixed_by_factor():
        sparse, fills = matrix.layout.sparsity is not None, screening.missing == "mean"
        fresh = reader(gram_kernel(scaling, sparse=sparse, fills=fills))
        state = state_of(factor, scaling) + fresh
        del fresh
        single = "float32" in (factor.precision, plan.precision)
        least: Precision = "float32" if single else "float64"
        leading = leading_of_gram(
            state,
            replace(scaling, precision=least),
            k,
            partial(
                standardise,
                feature_name=lambda i: matrix.feature_name(int(before.asked[i])),
                screening=screening,
                nonzero=_sum(before.of_asked().nonzero, reader.nonzero),
                dropped=np.concatenate([before.dropped, before.rows + reader.dropped]),
            ),
        )
    features = leading.features.of_all(before.asked, p)
    _check_returned(before, features, reader.complete, matrix)
    check_unchanged(matrix, pieces)
    rows = reader.sample()
    check_apart(factor, rows, matrix)
    found = vars(leading) | {"features": features, "passes": reader.passes}
    updated = replace(
        factor,
        **found,
        sample=RowSample(
            np.concatenate([factor.sample.index[kept], before.rows + rows.index]),
            [factor.sample.values[kept], *rows.pieces],
        ),
        precision=least,
        fingerprint=belongs,
    )
    with _fixed_by_factor():
        if matrix.layout.sparsity is not None:
            check_spread(features, matrix.feature_name)
        check_k(k, len(features.usable), "usable features")
        check_rank(k, updated)
    return updated


@contextlib.contextmanager
def _fixed_by_factor() -> Iterator[None]:
    """Have refusals say where their remedies are to be typed: an update takes no such options."""
    try:
        yield
    except RequestError as error:
        keeps = Text("A factor keeps its options; to change them decompose all rows anew. ")
        raise RequestError(error.code, error.message, keeps + error.remedy) from error


def _plan(factor: Factor, matrix: Matrix, memory: str | int | None, threads: int | None) -> Plan:
    """That of a factor of the new rows, beside the old factor and the states made of it."""
    squares = 4 if factor.gaps is None else 7
    held = factor.nbytes + 2 * factor.sample.values.nbytes + squares * 8 * matrix.width**2
    return plan_for(
        matrix,
        factor.k,
        PlanRequest(
            held=held, method="gram", memory=memory, threads=threads, precision=factor.precision
        ),
        LanczosOptions(),
        factor.screening,
    )


def _scaling(before: Standardised, matrix: Matrix, plan: Plan) -> Scaling:
    """About the older rows; those of their features that never varied may be constant still."""
    never = [before.excluded.get(reason, before.usable[:0]) for reason in (CONSTANT, ALL_MISSING)]
    unsure = np.sort(np.concatenate(never))
    mean = np.zeros_like(before.mean) if matrix.layout.sparsity is not None else before.mean
    return Scaling.about(mean, before.std, unsure, matrix.dtype, plan.precision)


def _sum(a: NDArray[np.int64] | None, b: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    return None if a is None or b is None else a + b


def _check_returned(
    before: Standardised,
    after: Standardised,
    complete: NDArray[np.bool_] | None,
    matrix: Matrix,
) -> None:
    """Refuse what the older rows, no longer there, would have to be read again for."""
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

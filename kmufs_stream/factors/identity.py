"""Identify data, rows and runs by digests, and refuse a factor of other data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from kmufs_stream.errors import BrokenError, Option, RequestError, Text
from kmufs_stream.factors.factor import PARTS, Factor, RowSample
from kmufs_stream.options import Screening
from kmufs_stream.sources import Matrix
from kmufs_stream.sources.layout import Block, dense
from kmufs_stream.streaming.kernels.sample import sample_index
from kmufs_stream.streaming.kernels.scaling import read_probe
from kmufs_stream.streaming.planning.plan import Plan

ROWS_COMPARED = 16
ROWS = "rows"  # digests of the parts' rows, whatever their chunks and times
DIFFERENCES = {
    "shape": "its shape is {kept}, that of the data {found}",
    "transforms": "it was made with the transforms: {kept}; the data are opened with: {found}",
    "labels": "the features have other labels",
    "asked": "it was made from other features",
    "values": "the metadata or the values of the rows compared differ",
    "sample": "rows of its sample differ",
    "chunks": "chunk files were written or copied after it was made (sizes or times differ)",
}


def check_belongs(factor: Factor, matrix: Matrix) -> str:
    """Refuse a factor of other data; return :func:`digest_of_chunks` of these data.

    A factor to which rows were added, or that was made of batches, may not be of one store: some
    rows of its sample are compared instead of metadata, probe and chunks.
    """
    check_shape(factor, matrix)
    ours = fingerprint(matrix, read_probe(matrix))
    of_rows = factor.added_to or not factor.fingerprint
    kept = factor.fingerprint or {"asked": _digest_of_asked(None)}  # of batches
    for what, found in ours.items():
        if kept.get(what, found) != found:
            raise _wrong_factor(factor, matrix, what, kept=kept[what], found=found)
    if of_rows and not _holds_sample(factor, matrix):
        raise _wrong_factor(factor, matrix, "sample")
    return ours["chunks"]


def check_shape(factor: Factor, matrix: Matrix) -> None:
    """Refuse a factor of data of another shape, without reading any."""
    (n, p), features = matrix.shape, factor.features
    kept = f"{features.rows} x {len(features.mean)}"
    if kept != f"{n} x {p}":
        raise _wrong_factor(factor, matrix, "shape", kept=kept, found=f"{n} x {p}")


def _wrong_factor(factor: Factor, matrix: Matrix, what: str, **said: str | None) -> RequestError:
    return RequestError(
        "wrong_factor",
        f"The factor does not belong to {matrix.source}: {DIFFERENCES[what].format(**said)}.",
        Text(
            "Give all rows of {}, in order, opened with no other {transform}, {features} and "
            "{where}, or decompose these data again.",
            factor.origin.get("source", "its batches"),
        ),
    )


def _holds_sample(factor: Factor, matrix: Matrix) -> bool:
    """Whether rows of the factor's sample are in the same places of the matrix."""
    index, rows = _some_of_sample(factor)
    found = zip(_rows_at(matrix, index), rows, strict=True)
    return all(np.array_equal(ours, theirs, equal_nan=True) for ours, theirs in found)


def _some_of_sample(factor: Factor) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Row numbers and rows, spread over the factor's sample."""
    index, values = factor.sample.index, factor.sample.values
    places = np.unique(np.linspace(0, len(index) - 1, ROWS_COMPARED).astype(np.int64))
    return index[places], values[places]


def _rows_at(matrix: Matrix, index: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
    for i in index.tolist():
        yield dense(matrix.rows.read(i, i + 1))[0]


def added_rows(factor: Factor, matrix: Matrix, probe: Block) -> dict[str, str]:
    """Return the fingerprint of a factor to which the rows of a matrix are added.

    Raises RequestError for rows that the factor already holds.
    """
    held, n = factor.features.rows, matrix.shape[0]
    before, new = factor.fingerprint, fingerprint(matrix, probe)
    if before["transforms"] != new["transforms"]:
        kept, found = before["transforms"], new["transforms"]
        raise _wrong_factor(factor, matrix, "transforms", kept=kept, found=found)
    parts = before[PARTS].split() if factor.added_to else [_part(before)]
    known = set(before[ROWS].split()) if ROWS in before else _rows_of_first(factor)
    fresh = _rows_digest(n, _rows_at(matrix, sample_index(n, ROWS_COMPARED)))
    varied = bool(_rows_digest(held, _some_of_sample(factor)[1]))  # else they would prove nothing
    again = None
    if n > held and varied and _holds_sample(factor, matrix):
        again = f"{matrix.source} begins with the {held:,} rows that are in the factor already."
    elif _part(new) in parts or not known.isdisjoint(fresh):
        again = f"The rows of {matrix.source} are in the factor already."
    if again is not None:
        raise RequestError("already_added", again, "Give only the rows after them.")
    return {
        "shape": f"{held + n} x {matrix.shape[1]}",
        **{what: before[what] for what in ("transforms", "labels", "asked")},
        PARTS: " ".join([*parts, _part(new)]),
        ROWS: " ".join(sorted(known | fresh)),
    }


def check_apart(factor: Factor, fresh: RowSample, matrix: Matrix) -> None:
    """Refuse rows whose sample shares many rows with the factor's sample.

    Independent rows may be equal by chance: among s t pairs across samples of s and t rows, and
    among about (s^2 + t^2) / 2 pairs within them, which is no less. So only clearly more equal rows
    across the samples than within count as overlap. O(rows of both samples).
    """
    ours, twice = _distinct([factor.sample.values])
    theirs, again = _distinct(fresh.pieces)
    met = len(ours & theirs)
    if met > 2 * (twice + again + 1):
        raise RequestError(
            "already_added",
            f"Some rows of {matrix.source} are in the factor already: of {len(theirs):,} that were "
            f"compared with its sample, {met:,}.",
            "Give only rows that it does not hold, or decompose all rows together.",
        )


def _distinct(pieces: list[NDArray[Any]]) -> tuple[set[bytes], int]:
    """Return digests of rows, and how many rows equal another."""
    rows = [row for piece in pieces for row in piece]
    found = {hashlib.blake2b(_bytes_of(row), digest_size=16).digest() for row in rows}
    return found, len(rows) - len(found)


def _bytes_of(row: NDArray[Any]) -> bytes:
    """Return the same bytes for rows that compare equal."""
    if row.dtype.kind == "f":
        row = np.where(np.isnan(row), np.nan, row + 0).astype(row.dtype)
    return row.astype(row.dtype.newbyteorder("<")).tobytes()


def _rows_of_first(factor: Factor) -> set[str]:
    """Identify the rows of a factor to which none were added, if its sample holds those needed."""
    index, n = factor.sample.index, factor.features.rows
    wanted = sample_index(n, ROWS_COMPARED)
    if factor.added_to or not np.isin(wanted, index).all():
        return set()
    return _rows_digest(n, factor.sample.values[np.searchsorted(index, wanted)])


def _rows_digest(n: int, rows: Iterable[NDArray[Any]]) -> set[str]:
    """Identify n rows by some of them; equal rows identify nothing."""
    texts = [_bytes_of(row) for row in rows]
    return {_digest(str(n), *texts)} if len(set(texts)) > 1 else set()


def _part(fingerprint: dict[str, str]) -> str:
    return _digest("-".join(fingerprint.values()))


def check_screening(factor: Factor, screening: Screening | None) -> None:
    """Refuse a factor that was made with another treatment of missing values or rare features."""
    if screening is None:
        return
    for name, made in vars(factor.screening).items():
        asked = getattr(screening, name)
        if asked != made:
            raise RequestError(
                "wrong_factor",
                Text("The factor was made with {}, not {}.", Option(**{name: made}), asked),
                Text("Leave {} out, or decompose again with it.", Option(name)),
            )


def identity_of_run(
    belongs: dict[str, str],
    plan: Plan,
    screening: Screening,
    of_k: tuple[int, int] | None,
) -> dict[str, str]:
    """Identify a run by what its states depend on; ``of_k`` is k and the seed, if they do."""
    k, seed = ("any", "any") if of_k is None else of_k
    return {f"data {what}": value for what, value in belongs.items()} | {
        "k": str(k),
        "method": plan.method,
        "precision": plan.precision,
        **{name.replace("_", " "): str(value) for name, value in vars(screening).items()},
        "seed": str(seed),
        "rows of a block": str(plan.block_rows),
        "blocks of a partition": str(plan.blocks_per_partition),
    }


def identity_of_copy(matrix: Matrix) -> dict[str, str]:
    """Identify a copy of a table by shape, metadata and chunks."""
    metadata, *chunks = matrix.provenance.inventory()
    return {
        "data shape": f"{matrix.shape[0]} x {matrix.shape[1]}",
        "data values": _digest(metadata),
        "data chunks": _digest("\n".join(chunks)),
    }


def digest_of_chunks(matrix: Matrix) -> str:
    """Digest sizes and times of the stored chunks, which :func:`check_unchanged` compares."""
    return _digest("\n".join(matrix.provenance.inventory()[1:]))


def digest_without(matrix: Matrix, chunk: str) -> tuple[str, str]:
    """Return two digests of the stored chunks: of all of them, and of all but one."""
    chunks = matrix.provenance.inventory()[1:]
    others = [other for other in chunks if not other.startswith(f"{chunk} ")]
    if len(others) != len(chunks) - 1:  # several arrays have a chunk of this name
        others = chunks
    return _digest("\n".join(chunks)), _digest("\n".join(others))


def check_unchanged(matrix: Matrix, chunks: str) -> None:
    """Raise BrokenError if the stored data have changed since the run began."""
    if not matrix.layout.in_memory and digest_of_chunks(matrix) != chunks:
        raise BrokenError(
            "source_changed",
            f"{matrix.source} was changed while it was being read: sizes or times of its chunks "
            "differ.",
            "Run again when the data no longer change; remove the checkpoint of this run, if any.",
        )


def fingerprint(matrix: Matrix, probe: Block) -> dict[str, str]:
    """Identify a table by shape, transforms, labels, metadata, probe and chunks."""
    labels = None if matrix.labels is None else [str(label) for label in matrix.labels]
    metadata, *chunks = matrix.provenance.inventory()
    parts = [probe.data, probe.indices, probe.indptr] if isinstance(probe, csr_array) else [probe]
    return {
        "shape": f"{matrix.shape[0]} x {matrix.shape[1]}",
        "transforms": ", ".join(matrix.transforms) or "none",
        "labels": _digest(repr(labels)),
        "asked": _digest_of_asked(matrix.asked),
        "values": _digest(metadata, probe.dtype.str, *(part.tobytes() for part in parts)),
        "chunks": _digest("\n".join(chunks)),
    }


def _digest_of_asked(asked: NDArray[np.int64] | None) -> str:
    return _digest(repr("all" if asked is None else asked.tolist()))


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()[:16]

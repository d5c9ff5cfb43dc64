"""What tells data from other data, and a run over them from another run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
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
ROWS_AT_ONCE = 256
ROWS = "rows"  # of the parts, whatever their dtype, order of columns, chunks and times
DIFFERENCES = {
    "shape": "its shape is {kept}, that of the data {found}",
    "transforms": "it was made with the transforms: {kept}; the data are opened with: {found}",
    "labels": "the features have other labels",
    "asked": "it is of other features",
    "values": "the metadata or the values of the rows compared are others",
    "sample": "rows of its sample are others there",
    "chunks": "chunk files were written or copied after it was made (sizes or times differ)",
}


def check_belongs(factor: Factor, matrix: Matrix) -> str:
    """Refuse a factor of other data; returns :func:`digest_of_chunks` of these.

    No one store may hold all rows of a factor to which some were added, or that was made of
    batches: of its row sample, some rows are compared in place of metadata, probe and chunks.
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
    """Refuse a factor of data of another shape; nothing is read."""
    (n, p), features = matrix.shape, factor.features
    kept = f"{features.rows} x {len(features.mean)}"
    if kept != f"{n} x {p}":
        raise _wrong_factor(factor, matrix, "shape", kept=kept, found=f"{n} x {p}")


def _wrong_factor(factor: Factor, matrix: Matrix, what: str, **said: str | None) -> RequestError:
    source = factor.origin.get("source", matrix.source)
    other = "" if source == matrix.source else f" It was made of {source}."
    remedy = f"Decompose these data again.{other}"
    if what == "transforms":
        remedy = Text("Leave out {transform}: the factor's are applied.")
    elif what == "asked":
        remedy = Text("Leave out {features} and {exclude_features}: the factor's take part.")
    elif matrix.provenance.where not in ("", factor.where):
        own = f"the samples that meet {factor.where!r}" if factor.where else "all samples"
        remedy = Text("Leave out {where}: the factor is of {}; or decompose again with it.", own)
    elif not factor.fingerprint:
        remedy = "Give data that hold the rows of all its batches, in order; or decompose them."
    elif factor.added_to:
        remedy = (
            "Give data that hold all its rows, those that were added last; or decompose anew."
            f"{other}"
        )
    return RequestError(
        "wrong_factor",
        f"The factor does not belong to {matrix.source}: {DIFFERENCES[what].format(**said)}.",
        remedy,
    )


def _holds_sample(factor: Factor, matrix: Matrix) -> bool:
    """Whether some rows of the factor's sample are those of the matrix."""
    index, rows = _compared(factor)
    return all(
        np.array_equal(found, row, equal_nan=True)
        for found, row in zip(_rows_at(matrix, index), rows, strict=True)
    )


def _varies(factor: Factor) -> bool:
    """Whether those rows differ: such as are all alike tell nothing."""
    _, rows = _compared(factor)
    return not all(np.array_equal(row, rows[0], equal_nan=True) for row in rows)


def _compared(factor: Factor) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Some rows of the factor's sample, spread over it, and their numbers."""
    index, values = factor.sample.index, factor.sample.values
    places = np.unique(np.linspace(0, len(index) - 1, ROWS_COMPARED).astype(np.int64))
    return index[places], values[places]


def _rows_at(matrix: Matrix, index: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
    """The rows of these numbers, read one by one."""
    for i in index.tolist():
        yield dense(matrix.rows.read(i, i + 1))[0]


def added_rows(factor: Factor, matrix: Matrix, probe: Block) -> dict[str, str]:
    """The fingerprint of a factor to which the rows of a matrix are added.

    Raises RequestError for rows that it holds already.
    """
    held = factor.features.rows
    if matrix.shape[0] > held and _varies(factor) and _holds_sample(factor, matrix):
        raise RequestError(
            "already_added",
            f"{matrix.source} begins with the {held:,} rows that are in the factor already.",
            f"Give the {matrix.shape[0] - held:,} rows that came after them alone.",
        )
    before, new = factor.fingerprint, fingerprint(matrix, probe)
    parts = before[PARTS].split() if factor.added_to else [_part(before)]
    known = set(before[ROWS].split()) if ROWS in before else _rows_of_first(factor)
    rows = _rows_of(matrix)
    if _part(new) in parts or not known.isdisjoint(rows):
        raise RequestError(
            "already_added",
            f"The rows of {matrix.source} are in the factor already.",
            "Give the rows that came after them.",
        )
    n = factor.features.rows + matrix.shape[0]
    same = {what: before[what] for what in ("transforms", "labels", "asked")}
    shape = f"{n} x {matrix.shape[1]}"
    return {
        "shape": shape,
        **same,
        PARTS: " ".join([*parts, _part(new)]),
        ROWS: " ".join(sorted(known | rows)),
    }


def check_apart(factor: Factor, fresh: RowSample, matrix: Matrix) -> None:
    """Refuse rows of which the sample holds many of those in the factor's sample.

    Independent rows are equal by chance: of two samples of s and t rows, s t pairs may be, within
    them about (s^2 + t^2) / 2, which is no less. So what is equal across counts as overlap where it
    is well beyond what is within. O(rows of both samples).
    """
    ours, twice = _distinct([factor.sample.values])
    theirs, again = _distinct(fresh.pieces)
    met = len(ours & theirs)
    if met > 2 * (twice + again + 1):
        raise RequestError(
            "already_added",
            f"Some rows of {matrix.source} are in the factor already: of {len(theirs):,} that were "
            f"compared with its sample, {met:,}.",
            "Give only rows that it does not hold; if rows are rightly there twice, decompose all "
            "rows together.",
        )


def _distinct(pieces: list[NDArray[Any]]) -> tuple[set[bytes], int]:
    """Digests of rows, and how many of them are equal to another."""
    found: set[bytes] = set()
    n = 0
    for piece in pieces:
        for start in range(0, len(piece), ROWS_AT_ONCE):
            texts = _row_bytes(piece[start : start + ROWS_AT_ONCE])
            n += len(texts)
            found.update(hashlib.blake2b(text, digest_size=16).digest() for text in texts)
    return found, n - len(found)


def _row_bytes(values: NDArray[Any]) -> list[bytes]:
    """Each row as bytes: one pattern for each of what compares equal."""
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), np.nan, values + 0).astype(values.dtype)
    return [row.tobytes() for row in values.astype(values.dtype.newbyteorder("<"))]


def _rows_of(matrix: Matrix) -> set[str]:
    """What tells rows by some of their values, in the dtype and order they are read in."""
    n = matrix.shape[0]
    return _rows_digest(n, list(_rows_at(matrix, sample_index(n, ROWS_COMPARED))))


def _rows_of_first(factor: Factor) -> set[str]:
    """The same of the only rows of a factor: its sample holds those, unless they were dropped."""
    index, n = factor.sample.index, factor.features.rows
    wanted = sample_index(n, ROWS_COMPARED)
    if factor.added_to or not np.isin(wanted, index).all():
        return set()
    return _rows_digest(n, list(factor.sample.values[np.searchsorted(index, wanted)]))


def _rows_digest(n: int, rows: list[NDArray[Any]]) -> set[str]:
    """One digest of n rows, of which some are at hand; none of rows alike, which tell nothing."""
    texts = _row_bytes(np.stack(rows))
    return {_digest(str(n).encode(), *texts)} if len(set(texts)) > 1 else set()


def _part(of_one: dict[str, str]) -> str:
    """What tells one of several stores that a factor was made from."""
    return _digest("-".join(of_one.values()).encode())


def check_screening(factor: Factor, screening: Screening | None) -> None:
    """Refuse a factor for which missing values and rare features were dealt with otherwise."""
    if screening is None or screening == factor.screening:
        return
    ours, asked = vars(factor.screening), vars(screening)
    for name, made in ours.items():
        if asked[name] != made:
            raise RequestError(
                "wrong_factor",
                Text("The factor was made with {}, not {}.", Option(**{name: made}), asked[name]),
                Text("Leave {} out, or decompose again with it.", Option(name)),
            )


def identity_of_run(
    belongs: dict[str, str],
    plan: Plan,
    screening: Screening,
    of_k: tuple[int, int] | None,
) -> dict[str, str]:
    """What the states of a run depend on: the data, how they are read, maybe k and the seed."""
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
    """What a copy of a table depends on: its shape, metadata and stored pieces."""
    metadata, *chunks = matrix.provenance.inventory()
    return {
        "data shape": f"{matrix.shape[0]} x {matrix.shape[1]}",
        "data values": _digest(metadata.encode()),
        "data chunks": _digest_of_chunks(chunks),
    }


def digest_of_chunks(matrix: Matrix) -> str:
    """What :func:`check_unchanged` compares: a digest of the stored pieces of the data."""
    return _digest_of_chunks(matrix.provenance.inventory()[1:])


def digest_without(matrix: Matrix, chunk: str) -> tuple[str, str]:
    """Two digests of the stored pieces of the data: of all of them, and of all but one."""
    pieces = matrix.provenance.inventory()[1:]
    others = [piece for piece in pieces if not piece.startswith(f"{chunk} ")]
    if len(others) != len(pieces) - 1:  # several arrays have a chunk of this name
        others = pieces
    return _digest_of_chunks(pieces), _digest_of_chunks(others)


def check_unchanged(matrix: Matrix, chunks: str) -> None:
    """Raise BrokenError if the stored data are no longer those that the run began with."""
    if not matrix.layout.in_memory and digest_of_chunks(matrix) != chunks:
        raise BrokenError(
            "source_changed",
            f"{matrix.source} was changed while it was being read: sizes or times of its chunks "
            "differ.",
            "Run again when nobody writes to it; a checkpoint of this run has to be removed.",
        )


def fingerprint(matrix: Matrix, probe: Block) -> dict[str, str]:
    """What a saved factor is compared by: shape, transforms, labels, metadata and probe, chunks."""
    labels = None if matrix.labels is None else [str(label) for label in matrix.labels]
    metadata, *chunks = matrix.provenance.inventory()
    parts = [probe.data, probe.indices, probe.indptr] if isinstance(probe, csr_array) else [probe]
    values = [metadata.encode(), probe.dtype.str.encode(), *map(np.ndarray.tobytes, parts)]
    return {
        "shape": f"{matrix.shape[0]} x {matrix.shape[1]}",
        "transforms": ", ".join(matrix.transforms) or "none",
        "labels": _digest(repr(labels).encode()),
        "asked": _digest_of_asked(matrix.asked),
        "values": _digest(*values),
        "chunks": _digest_of_chunks(chunks),
    }


def _digest_of_asked(asked: NDArray[np.int64] | None) -> str:
    return _digest(repr("all" if asked is None else asked.tolist()).encode())


def _digest_of_chunks(chunks: list[str]) -> str:
    return _digest("\n".join(chunks).encode())


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]

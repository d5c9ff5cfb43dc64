"""From a matrix to its factor: probe, pass, eigenproblem."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from zarr.abc.store import Store

from kmufs_stream import blas
from kmufs_stream.errors import RequestError
from kmufs_stream.factor import Factor, components_for
from kmufs_stream.factor_store import save_factor
from kmufs_stream.identity import (
    check_unchanged,
    digest_without,
    fingerprint,
    identity_of_run,
)
from kmufs_stream.output import check_output
from kmufs_stream.places import Place, PlaceLike, name_of, place_of
from kmufs_stream.progress import SILENT, Noticed, Progress, Started
from kmufs_stream.reader import Reader
from kmufs_stream.routes.gram import leading_of_gram
from kmufs_stream.routes.lanczos import lanczos, lanczos_bytes, product_block_columns
from kmufs_stream.routes.tsqr import leading_of_triangle
from kmufs_stream.screening import Screening, Standardised
from kmufs_stream.sources import Matrix, open_matrix
from kmufs_stream.sources.matrix import dense, feature_texts
from kmufs_stream.streaming.checkpoint import Checkpoint
from kmufs_stream.streaming.cluster import active_client, cluster_size
from kmufs_stream.streaming.kernels import Gram, Kernel
from kmufs_stream.streaming.plan import Cost, Costs, Demand, Plan, make_plan
from kmufs_stream.streaming.sample import sample_index, sample_size
from kmufs_stream.streaming.scaling import Scaling, read_probe
from kmufs_stream.streaming.screened import missing_in
from kmufs_stream.streaming.sparse import (
    CANCELS,
    Densified,
    SparseGram,
    gram_update_bytes,
    slab_rows,
    sparse_scaling,
)
from kmufs_stream.streaming.table import Table
from kmufs_stream.streaming.tsqr import TSQR, TSQRState

CHECKPOINTED_BYTES = 50 * 10**9  # reading so much takes some minutes


@dataclass(frozen=True)
class LanczosOptions:
    """When the block Lanczos iteration stops, and its random start.

    Attributes
    ----------
    tol : a score a_i has settled when neither its last change nor its estimated error is larger.
    max_passes : reads of the data at most.
    seed : of the random start block.

    Raises RequestError for those with which it is not defined.
    """

    tol: float = 1e-4
    max_passes: int = 12
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.tol < 1:
            raise RequestError("bad_option", f"--tol is {self.tol}.", "It must be between 0 and 1.")
        if self.max_passes < 1:
            raise RequestError(
                "bad_option", f"--max-passes is {self.max_passes}.", "It must be at least 1."
            )
        if self.seed < 0:
            raise RequestError("bad_option", f"--seed is {self.seed}.", "It must be 0 or more.")


def plan_for(
    matrix: Matrix,
    k: int,
    demand: Demand,
    lanczos: LanczosOptions,
    screening: Screening,
    factor: Factor | None = None,
) -> Plan:
    """What would run for k clusters, and its predicted peak memory; nothing is computed.

    With a factor at hand nothing is read for it, and the plan's method is ``factor``. Where a
    Dask client is active its workers read, unless the data are in this process's memory.
    """
    p = matrix.width
    check_k(k, p)
    table = table_of(matrix, screening)
    client = None if matrix.in_memory else active_client()
    if client is not None:
        demand = replace(demand, cluster=cluster_size(client))
    if factor is not None:
        at_hand = Cost(0, 0, 0, 0, kept=factor.nbytes, reads=0)
        return make_plan(table, {"factor": lambda rows, itemsize: at_hand}, demand)
    fills = matrix.dtype.kind == "f" and screening.missing == "mean"
    sparse = matrix.sparsity is not None
    return make_plan(table, _costs(p, k, lanczos.max_passes, fills, sparse), demand)


def table_of(matrix: Matrix, screening: Screening | None = None) -> Table:
    """The facts about a matrix that a plan follows from."""
    copies = int(matrix.stacked) + int(matrix.asked is not None) + int(bool(matrix.transforms))
    if screening and screening.missing == "drop-samples" and matrix.dtype.kind == "f":
        copies += 2
    return Table(
        shape=matrix.shape,
        dtype=matrix.dtype,
        stored_itemsize=matrix.stored_dtype.itemsize,
        chunk_rows=matrix.chunk_rows,
        chunk_columns=matrix.chunk_columns,
        shard_rows=matrix.shard_rows,
        in_memory=matrix.in_memory,
        chunk_cells=matrix.chunk_cells,
        width=matrix.width,
        copies=copies,
        sparsity=matrix.sparsity,
        held_bytes=matrix.held_bytes,
    )


def _costs(p: int, k: int, max_passes: int, fills: bool, sparse: bool) -> Costs:
    """Memory and reads of the three routes; ``fills``: means may stand in for missing values."""
    components = 3 * 8 * p * components_for(k, p)
    square = 8 * (p + 1) ** 2

    def gram(rows: int, itemsize: int) -> Cost:
        # Finish: the scatter, the correlation matrix, and the copy that LAPACK destroys.
        product = gram_update_bytes(rows, p) if sparse else p * p * itemsize
        noted, of_gaps = 0, 0
        if fills:
            noted = 2 * square
            of_gaps = 3 * square if sparse else product + rows * p * itemsize
        return Cost(
            square + noted,
            product + of_gaps,
            0,
            3 * square + 2 * noted + components,
            square + noted + components,
            reads=1,
        )

    def tsqr(rows: int, itemsize: int) -> Cost:
        rows = min(rows, slab_rows(p)) if sparse else rows
        stacked = 2 * 8 * (rows + p + 1) * (p + 1)
        stacked += 8 * rows * p if sparse else 0
        update, finish = stacked + 4 * square, 8 * square + components
        return Cost(square, update, 0, finish, components, reads=2 if fills else 1)

    def lanczos(rows: int, itemsize: int) -> Cost:
        size = lanczos_bytes(p, product_block_columns(k), max_passes, rows, itemsize)
        # Sparse products make the vectors scaled, transposed, and a product to add.
        update = size.update + (size.state * 3 if sparse else 0)
        finish = size.driver + components
        return Cost(size.state, update, size.driver, finish, components, reads=max_passes)

    return {"gram": gram, "tsqr": tsqr, "lanczos": lanczos}


def decompose(
    data: Any,
    k: int,
    *,
    method: str = "auto",
    lanczos: LanczosOptions | None = None,
    screening: Screening | None = None,
    memory: str | int | None = None,
    threads: int | None = None,
    precision: str = "auto",
    out: PlaceLike | None = None,
    overwrite: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    command: str | None = None,
    progress: Progress = SILENT,
) -> Factor:
    """The factor of a samples x features table: every (k', h, solver), k' <= its rank, follows.

    Parameters
    ----------
    data : whatever :func:`kmufs_stream.open_matrix` opens, or a Matrix.
    k : clusters; the factor keeps min(usable features, 2k + 1) components.
    method : ``gram`` (one read, exact, up to several thousand features), ``lanczos`` (a few
        reads, for wide data), ``tsqr`` (one read, slower, for ill-conditioned data); ``auto``
        takes ``gram`` up to 6000 features and ``lanczos`` beyond.
    lanczos : when ``lanczos`` stops, and its seed.
    screening : what becomes of missing values, and of features that hardly vary.
    memory : budget such as ``"2GB"``; half of what is available by default.
    threads : block tasks side by side; one more than there are cores by default, so that one
        reads while the others compute.
    precision : ``float32`` or ``float64`` products of blocks; ``auto`` takes float32 where it
        holds every value of the data's dtype.
    out, overwrite, command : where to store the factor too; see
        :func:`kmufs_stream.save_factor`.
    checkpoint, resume : a folder or address that keeps what has been read until the run has
        ended; and whether to go on from what is in it. Long runs with an ``out`` keep it beside
        that, as ``<out>.checkpoint``.
    storage_options : for fsspec, where any of these is an address such as ``s3://bucket/x``.

    Where a ``distributed.Client`` is active the workers of its cluster read, unless the data are
    in this process's memory; the result is the same bit for bit.

    Raises
    ------
    RequestError : k out of range, values infinite or (unless ``screening`` says what then)
        missing, no feature that varies, fewer than two samples, a budget too small.
    BrokenError : a chunk is missing or cannot be read.

    O(n p^2 + p^3) for ``gram``, O(n p k) per read for ``lanczos``.
    """
    matrix = open_matrix(data, storage_options=storage_options)
    lanczos, screening = lanczos or LanczosOptions(), screening or Screening()
    demand = Demand(method=method, memory=memory, threads=threads, precision=precision)
    plan = plan_for(matrix, k, demand, lanczos, screening)
    target = None if out is None else place_of(out, storage_options)
    kept_in = None if checkpoint is None else place_of(checkpoint, storage_options)
    if target is not None:
        check_output(target, inputs_of(matrix), overwrite=overwrite)
    with checkpoint_for(plan, target, kept_in, resume=resume, progress=progress) as kept:
        factor, _ = compute_factor(matrix, k, None, plan, lanczos, screening, progress, kept)
        check_unchanged(matrix, factor.fingerprint["chunks"])
        if target is not None:
            progress(Started("writing"))
            save_factor(factor, target, overwrite=overwrite, command=command)
    return factor


def inputs_of(matrix: Matrix) -> list[Place]:
    """The store that the data lie in, if they do."""
    return [] if matrix.place is None else [matrix.place]


def checkpoint_for(
    plan: Plan,
    out: Place | None,
    folder: Place | None,
    *,
    resume: bool,
    progress: Progress,
) -> Checkpoint | contextlib.nullcontext[None]:
    """The checkpoint that was asked for, or that a long run gets beside its output; or none."""
    beside = resume or plan.read_bytes >= CHECKPOINTED_BYTES
    if folder is None and beside and out is not None and not isinstance(out, Store):
        out = out.resolve()
        folder = out.with_name(f"{out.name}.checkpoint")
    if isinstance(folder, Store):
        raise RequestError(
            "bad_option", f"{name_of(folder)} cannot hold a checkpoint.", "Give a path or address."
        )
    if folder is not None:
        return Checkpoint(folder, resume=resume, tell=lambda text: progress(Noticed(text)))
    if resume:
        raise RequestError(
            "bad_option",
            "There is nothing to resume: neither an output nor a checkpoint is given.",
            "Say where the checkpoint is: --checkpoint PATH.",
        )
    return contextlib.nullcontext()


@dataclass(frozen=True)
class FactorSeconds:
    """Wall-clock seconds of reading with its block products, and of the in-memory stage."""

    read: float
    factor: float


def compute_factor(
    matrix: Matrix,
    k: int,
    h: int | None,
    plan: Plan,
    lanczos_options: LanczosOptions,
    screening: Screening,
    progress: Progress = SILENT,
    checkpoint: Checkpoint | None = None,
) -> tuple[Factor, FactorSeconds]:
    """Run the plan; with h, ``lanczos`` settles only scores that may be among the h highest.

    Whether the data changed meanwhile is for the caller to check, once all that it reads is read.
    """
    n = matrix.shape[0]
    if n < 2:
        raise RequestError(
            "too_few_samples",
            f"{matrix.name!r} in {matrix.source} has {'one sample' if n else 'no samples'}.",
            "Standardising needs at least two; with samples along the other dimension, say "
            f"--sample-dims {matrix.feature_dim}.",
        )
    began = time.perf_counter()
    progress(Started("probing"))
    probe: Any = read_probe(matrix)
    belongs = fingerprint(matrix, probe)
    if matrix.asked is not None:
        probe = probe[:, matrix.asked]
    sparse = matrix.sparsity is not None
    if sparse and plan.method != "tsqr":  # which densifies, and so can shift
        scaling = sparse_scaling(probe)
    else:
        scaling = Scaling.from_probe(dense(probe), plan.precision)
    if screening.missing == "drop-samples":
        # A feature that varies in the probe may be constant in the samples that are kept.
        scaling = replace(scaling, unsure=np.arange(matrix.width))
    if checkpoint is not None:
        checkpoint.claim(
            identity_of_run(belongs, k, plan, lanczos_options.seed, screening),
            partial(digest_without, matrix),
        )
    complete = None
    if screening.missing == "drop-samples":
        # A guess at the features that have any value at all.
        complete = missing_in(probe).sum(axis=0) < probe.shape[0]
    del probe
    sampled = sample_index(n, sample_size(n, matrix.shape[1] * matrix.dtype.itemsize))
    reader = Reader(
        matrix, plan, screening, progress, checkpoint, sampled=sampled, complete=complete
    )
    standardised = reader.standardise
    with blas.all_cores():
        if plan.method == "lanczos":
            options = vars(lanczos_options)
            leading = lanczos(
                reader,
                scaling,
                matrix.width,
                k=k,
                h=h,
                standardise=standardised,
                sparse=sparse,
                **options,
            )
        elif plan.method == "tsqr":
            state = reader(_qr(scaling, sparse))
            if screening.missing == "mean" and state.moments.missing.any():
                # A QR cannot take in afterwards what only this read has shown.
                mean = standardised(state.moments, scaling, np.ones(matrix.width)).mean
                scaling = scaling.centred(mean)
                state = reader(_qr(scaling, sparse))
            leading = leading_of_triangle(state, scaling, k, standardised)
        else:
            gram = SparseGram if sparse else Gram
            scatter = reader(gram(scaling, note_gaps=screening.missing == "mean"))
            leading = leading_of_gram(scatter, scaling, k, standardised)
    features = leading.features
    if matrix.asked is not None:
        features = features.of_all(matrix.asked, matrix.shape[1])
    if sparse and plan.method != "tsqr":
        check_spread(features, matrix.feature_name)
    found = vars(leading) | {"features": features, "passes": reader.passes}
    factor = Factor(
        **found,
        k=k,
        sample=reader.sample(),
        screening=screening,
        method=plan.method,
        precision=plan.precision,
        labels=feature_texts(matrix),
        fingerprint=belongs,
    )
    check_k(k, len(factor.features.usable), "usable features")
    check_rank(k, factor)
    total = time.perf_counter() - began
    return factor, FactorSeconds(reader.seconds, total - reader.seconds)


def _qr(scaling: Scaling, sparse: bool) -> Kernel[TSQRState]:
    kernel = TSQR(scaling)
    return Densified(kernel) if sparse else kernel


def check_spread(features: Standardised, feature_name: Callable[[int], str]) -> None:
    """Refuse sparse data whose means are so large that uncentred sums lose the spread."""
    mean, std = features.mean[features.usable], features.std[features.usable]
    lost = features.usable[np.abs(mean) > CANCELS * std]
    if len(lost):
        i = int(lost[0])
        raise RequestError(
            "mean_too_large",
            f"The mean of {feature_name(i)} is {abs(features.mean[i]) / features.std[i]:.0e} times "
            f"its spread ({len(lost)} such features): sums over sparse data, which are not "
            "centred, lose too many digits.",
            "Say --method tsqr, which centres, or drop these features.",
        )


def check_k(k: int, limit: int, what: str = "features") -> None:
    """Refuse k < 1 and k beyond the number of features."""
    if k < 1:
        raise RequestError(
            "bad_k", f"k is {k}; clusters are counted from 1.", "Give --k 1 or more."
        )
    if k > limit:
        raise RequestError(
            "bad_k",
            f"k is {k}, but there are only {limit} {what}.",
            f"Give --k {limit} or less.",
        )


def check_rank(k: int, factor: Factor) -> None:
    """Refuse k beyond the rank: the components further on are rounding."""
    rank = factor.rank
    if k <= rank:
        return
    kept = len(factor.singular_values)
    if rank == kept < len(factor.components):
        raise RequestError(
            "bad_k",
            f"k is {k}, but this factor holds {rank} components.",
            f"Give --k {rank} or less, or decompose again with a larger --k.",
        )
    raise RequestError(
        "bad_k",
        f"k is {k}, but the standardised data have rank {rank}.",
        f"Give --k {rank} or less.",
    )

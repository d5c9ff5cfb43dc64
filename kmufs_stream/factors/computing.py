"""Compute a factor by running a plan, with a checkpoint if one is kept."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from zarr.abc.store import Store

from kmufs_stream.errors import RequestError, Text
from kmufs_stream.events import SILENT, Noticed, Progress, Started
from kmufs_stream.factors.factor import Factor, check_rank
from kmufs_stream.factors.identity import (
    check_belongs,
    check_screening,
    digest_without,
    fingerprint,
    identity_of_run,
)
from kmufs_stream.factors.methods import METHODS
from kmufs_stream.factors.methods.screening import Standardised, check_samples
from kmufs_stream.factors.planning import problem_of
from kmufs_stream.factors.reader import Reader, tell_plan
from kmufs_stream.factors.reopening import Inputs
from kmufs_stream.options import LanczosOptions, Screening, Spec
from kmufs_stream.sources import Matrix
from kmufs_stream.sources.layout import dense
from kmufs_stream.sources.matrix import feature_texts
from kmufs_stream.storage.output import check_two_outputs
from kmufs_stream.storage.places import Place, name_of, place_of
from kmufs_stream.streaming.checkpoint import Checkpoint
from kmufs_stream.streaming.kernels.sample import sample_index, sample_size
from kmufs_stream.streaming.kernels.scaling import Scaling, read_probe
from kmufs_stream.streaming.kernels.screened import missing_in
from kmufs_stream.streaming.kernels.sparse import CANCELS, sparse_scaling
from kmufs_stream.streaming.planning.plan import Plan
from kmufs_stream.system import blas

CHECKPOINTED_BYTES = 50 * 10**9  # reading so much takes some minutes


def checkpoint_for(
    plan: Plan, out: Place | None, spec: Spec, about: Mapping[str, str]
) -> Checkpoint | contextlib.nullcontext[None]:
    """Open the checkpoint that was asked for, or that a long run keeps beside its output."""
    options = spec.storage_options
    folder = None if spec.checkpoint is None else place_of(spec.checkpoint, options)
    if folder is not None and out is not None:
        check_two_outputs(folder, out, "checkpoint")
    beside = spec.resume or plan.read_bytes >= CHECKPOINTED_BYTES
    if folder is None and beside and out is not None and not isinstance(out, Store):
        out = out.resolve()
        folder = out.with_name(f"{out.name}.checkpoint")
    if isinstance(folder, Store):
        raise RequestError(
            "bad_option", f"{name_of(folder)} cannot hold a checkpoint.", "Give a path or address."
        )
    if folder is not None:
        return Checkpoint(
            folder,
            resume=spec.resume,
            tell=lambda text: spec.progress(Noticed(text)),
            about={**about, "partitions": len(plan.partitions)},
        )
    if spec.resume:
        raise RequestError(
            "bad_option",
            "There is nothing to resume: neither an output nor a checkpoint is given.",
            Text("Say where the checkpoint is with {checkpoint}."),
        )
    return contextlib.nullcontext()


@dataclass(frozen=True)
class FoundFactor:
    """A factor of a table, and what it took to have it.

    Attributes
    ----------
    chunks : digest of the stored chunks that it belongs to.
    passes : reads of the data; 0 for a factor that was given.
    read, solve : wall-clock seconds of reading with its block products, and in memory.
    """

    factor: Factor
    chunks: str
    passes: int = 0
    read: float = 0.0
    solve: float = 0.0


def find_factor(
    inputs: Inputs,
    k: int,
    h: int | None,
    plan: Plan,
    lanczos: LanczosOptions,
    screening: Screening | None,
    made: dict[str, str],
    progress: Progress = SILENT,
    checkpoint: Checkpoint | None = None,
) -> FoundFactor:
    """Take the factor that is given, once it proves to be of these data; else compute it.

    See :func:`compute_factor`.
    """
    matrix, factor = inputs.matrix, inputs.factor
    if factor is None:
        screening = screening or Screening()
        return compute_factor(matrix, k, h, plan, lanczos, screening, made, progress, checkpoint)
    began = time.perf_counter()
    chunks = check_belongs(factor, matrix)
    check_screening(factor, screening)
    check_rank(k, factor)
    progress(plan.resources)
    return FoundFactor(factor, chunks, read=time.perf_counter() - began)


def compute_factor(
    matrix: Matrix,
    k: int,
    h: int | None,
    plan: Plan,
    lanczos_options: LanczosOptions,
    screening: Screening,
    made: dict[str, str],
    progress: Progress = SILENT,
    checkpoint: Checkpoint | None = None,
) -> FoundFactor:
    """Run a plan. With h, ``lanczos`` settles only scores that may be among the h highest.

    The caller checks whether the data changed meanwhile, once it has read all that it needs.
    """
    check_samples(matrix.shape[0])
    n, began = matrix.shape[0], time.perf_counter()
    tell_plan(plan, progress)
    progress(Started("probe"))
    method, problem = METHODS[plan.method], problem_of(matrix, k, lanczos_options, screening, h)
    probe = read_probe(matrix)
    belongs = fingerprint(matrix, probe)
    if matrix.asked is not None:
        probe = probe[:, matrix.asked]
    centred = method.centres or not problem.sparse
    scaling = Scaling.from_probe(dense(probe), plan.precision) if centred else sparse_scaling(probe)
    complete = None
    if screening.missing == "drop-samples":
        # A feature that varies in the probe may be constant in the samples that are kept.
        scaling = replace(scaling, unsure=np.arange(matrix.width))
        # Guess which features have any value at all.
        complete = missing_in(probe).sum(axis=0) < probe.shape[0]
    del probe
    if checkpoint is not None:
        of_k = (k, lanczos_options.seed) if method.of_k else None
        checkpoint.begin(
            identity_of_run(belongs, plan, screening, of_k),
            partial(digest_without, matrix),
            serves=Text("what has been read serves any {h} and {solver}")
            + ("" if method.of_k else Text(", and any {k}")),
        )
    sampled = sample_index(n, sample_size(n, matrix.shape[1] * matrix.dtype.itemsize))
    reader = Reader(
        matrix, plan, screening, progress, checkpoint, sampled=sampled, complete=complete
    )
    # Thin products gain nothing from BLAS threads, and two libraries' threads would wait for each
    # other.
    with blas.one_thread() if method.thin else blas.all_cores():
        leading = method.run(problem, reader, scaling)
    features = leading.features
    if matrix.asked is not None:
        features = features.of_all(matrix.asked, matrix.shape[1])
    if not centred:
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
        located=matrix.provenance.located,
        where=matrix.provenance.where,
        origin=made,
    )
    check_rank(k, factor)
    total = time.perf_counter() - began
    return FoundFactor(
        factor, belongs["chunks"], factor.passes, reader.seconds, total - reader.seconds
    )


def check_spread(features: Standardised, feature_name: Callable[[int], str]) -> None:
    """Raise RequestError for sparse data with means too large for uncentred sums."""
    mean, std = features.mean[features.usable], features.std[features.usable]
    lost = features.usable[np.abs(mean) > CANCELS * std]
    if len(lost):
        i = int(lost[0])
        raise RequestError(
            "mean_too_large",
            f"The mean of {feature_name(i)} is {abs(features.mean[i]) / features.std[i]:.0e} times "
            f"its spread ({len(lost)} such features): sums over sparse data, which are not "
            "centred, lose too many digits.",
            Text("Say {method}, which centres, or drop these features.", method="tsqr"),
        )

"""Decompose a table into the factor that every selection follows from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from kmufs_stream.events import SILENT, Progress, Started
from kmufs_stream.factors.computing import checkpoint_for, find_factor
from kmufs_stream.factors.factor import Factor, as_whole
from kmufs_stream.factors.identity import check_unchanged
from kmufs_stream.factors.planning import plan_for
from kmufs_stream.factors.reopening import open_inputs
from kmufs_stream.factors.store import save_factor
from kmufs_stream.options import LanczosOptions, MethodName, PrecisionName, Screening, Spec
from kmufs_stream.storage.output import check_output
from kmufs_stream.storage.places import PlaceLike, place_of
from kmufs_stream.storage.provenance import origin
from kmufs_stream.streaming.planning.sizing import PlanRequest


def decompose(
    data: Any,
    k: int,
    *,
    method: MethodName = "auto",
    lanczos: LanczosOptions | None = None,
    screening: Screening | None = None,
    memory: str | int | None = None,
    threads: int | None = None,
    precision: PrecisionName = "auto",
    out: PlaceLike | None = None,
    overwrite: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    command: str | None = None,
    progress: Progress = SILENT,
) -> Factor:
    """Compute the factor of a samples x features table, which answers every k, h and solver.

    Parameters
    ----------
    data : path, address, Zarr store or array, table in memory, or Matrix
        Anything that :func:`kmufs_stream.open_matrix` opens.
    k : int
        Number of clusters; the factor keeps min(usable features, 2k + 1) components.
    method : {'auto', 'gram', 'lanczos', 'tsqr'}, default 'auto'
        ``gram``: one read, exact, up to several thousand features; ``lanczos``: a few reads, for
        wide data; ``tsqr``: one read, slower, for ill-conditioned data. ``auto`` takes ``gram`` up
        to 6000 features and ``lanczos`` beyond.
    lanczos : LanczosOptions, optional
        When ``lanczos`` stops, and its seed.
    screening : Screening, optional
        How to treat missing values and features that hardly vary.
    memory : str or int, optional
        Memory budget in bytes, or such as ``"2GB"``; by default half of what is available.
    threads : int, optional
        Block tasks side by side; by default one more than there are cores, so that one reads while
        the others compute.
    precision : {'auto', 'float32', 'float64'}, default 'auto'
        Of the products of blocks; ``auto`` is float32 if that holds every value of the data's
        dtype.
    out : path, address or empty Zarr store, optional
        Where to write the factor.
    overwrite : bool, default False
        Replace an existing one; see :func:`kmufs_stream.select`.
    checkpoint : path or address, optional
        Where to save progress until the run ends. Long runs with ``out`` use ``<out>.checkpoint``.
    resume : bool, default False
        Continue from the checkpoint.
    storage_options : mapping, optional
        Options of fsspec for addresses such as ``s3://bucket/x``.
    command : str, optional
        A command line to record in the factor, with the date.
    progress : callable, optional
        Called with each event; see :func:`kmufs_stream.select`.

    Returns
    -------
    Factor
        All that solvers need to know of these data.

    Raises
    ------
    RequestError
        k out of range, infinite values, missing values (unless ``screening`` treats them), no
        feature that varies, fewer than two samples, a budget too small.
    BrokenError
        A chunk is missing or cannot be read.

    Notes
    -----
    The workers of an active ``distributed.Client`` read, unless the data are in this process's
    memory; the result is the same bit for bit.

    O(n p^2 + p^3) for ``gram``, O(n p k) per read for ``lanczos``.
    """
    k = as_whole("k", k)
    spec = Spec(memory, threads, precision, checkpoint, resume, storage_options, progress)
    lanczos, screening = lanczos or LanczosOptions(), screening or Screening()
    inputs = open_inputs(data, None, storage_options)
    matrix = inputs.matrix
    request = PlanRequest(method=method, memory=memory, threads=threads, precision=precision)
    plan = plan_for(matrix, k, request, lanczos, screening)
    target = None if out is None else place_of(out, storage_options)
    if target is not None:
        check_output(target, inputs.places, overwrite=overwrite)
    made = origin(matrix.source, command)
    with checkpoint_for(plan, target, spec, made) as kept:
        found = find_factor(inputs, k, None, plan, lanczos, screening, made, progress, kept)
        check_unchanged(matrix, found.chunks)
        if target is not None:
            progress(Started("writing"))
            save_factor(found.factor, target, overwrite=overwrite)
    return found.factor

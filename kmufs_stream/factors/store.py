"""Factors on disk: one Zarr group, written and read through xarray."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from kmufs_stream.errors import BrokenError
from kmufs_stream.factors.factor import Factor, RowSample
from kmufs_stream.factors.methods.screening import Standardised
from kmufs_stream.options import Screening
from kmufs_stream.sources.written import open_written
from kmufs_stream.storage.output import check_output, new_zarr
from kmufs_stream.storage.places import (
    PlaceLike,
    name_of,
    place_of,
)
from kmufs_stream.storage.provenance import FACTOR, FORMAT_VERSIONS, origin_in
from kmufs_stream.streaming.kernels.gram import Gaps
from kmufs_stream.version import __version__


def save_factor(
    factor: Factor,
    out: PlaceLike,
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write a factor as a Zarr group at ``out``, whole or not at all.

    Parameters
    ----------
    factor : Factor
        What :func:`kmufs_stream.decompose` made.
    out : path, address or empty Zarr store
        Where to write it.
    overwrite : bool, default False
        Replace what is there; see :func:`kmufs_stream.select`.
    storage_options : mapping, optional
        For fsspec, where ``out`` is an address.

    Raises
    ------
    RequestError
        The place is taken (without ``overwrite``) or cannot be written to.
    BrokenError
        Writing failed.
    """
    target = place_of(out, storage_options)
    check_output(target, [], overwrite=overwrite)
    features = factor.features
    variables: dict[str, Any] = {
        "components": (("usable", "component"), factor.components),
        "singular_values": ("component", factor.singular_values),
        "residuals": ("component", factor.residuals),
        "usable": ("usable", features.usable),
        "mean": ("feature", features.mean),
        "std": ("feature", features.std),
        "missing": ("feature", features.missing),
        "dropped": ("dropped", features.dropped),
        "sample_index": ("row", factor.sample.index),
        "sample": (("row", "feature"), factor.sample.values),
    }
    if factor.correlation is not None:
        variables["correlation"] = (("usable", "usable_too"), factor.correlation)
    if factor.gaps is not None:
        variables["gap_values"] = (("gap", "asked"), factor.gaps.values)
        variables["gap_counts"] = (("gap", "gap_too"), factor.gaps.counts)
    if features.nonzero is not None:
        variables["nonzero"] = ("feature", features.nonzero)
    coords = {} if factor.labels is None else {"feature": factor.labels}
    attrs = {
        "format": FACTOR,
        "format_version": FORMAT_VERSIONS[FACTOR],
        "version": __version__,
        "k": factor.k,
        "samples": features.samples,
        "excluded": json.dumps({r: i.tolist() for r, i in features.excluded.items()}),
        "score_error": factor.score_error,
        "settled": factor.settled,
        "last_change": factor.last_change if np.isfinite(factor.last_change) else None,
        "screening": vars(factor.screening),
        "method": factor.method,
        "precision": factor.precision,
        "passes": factor.passes,
        "fingerprint": factor.fingerprint,
        "located": json.dumps(factor.located),
        "where": factor.where,
        **factor.origin,
    }
    whole = xr.Dataset(variables, coords, attrs)
    whole.attrs["checksum"] = _checksum(whole)
    with new_zarr(target, overwrite=overwrite) as root:
        whole.to_zarr(root, mode="w", zarr_format=3, consolidated=False)


def load_factor(where: PlaceLike, *, storage_options: Mapping[str, Any] | None = None) -> Factor:
    """Read a factor that was stored.

    Parameters
    ----------
    where : path, address or Zarr store
        Where :func:`kmufs_stream.decompose` or :func:`kmufs_stream.save_factor` wrote it.
    storage_options : mapping, optional
        For fsspec, where it is stored under an address.

    Returns
    -------
    Factor
        As it was written, bit for bit.

    Raises
    ------
    RequestError
        Nothing is there, or anything else; a factor of another version's format.
    BrokenError
        Its values are not those that were written.
    """
    place = place_of(where, storage_options)
    stored = open_written(place, FACTOR).read(load=True)
    if stored.attrs.pop("checksum", None) != _checksum(stored):
        raise BrokenError(
            "damaged_factor",
            f"The factor {name_of(place)} is damaged: its values are not those that were written.",
            "Decompose again.",
        )
    attrs = stored.attrs
    excluded = json.loads(attrs["excluded"])
    return Factor(
        features=Standardised(
            samples=int(attrs["samples"]),
            mean=stored["mean"].values,
            std=stored["std"].values,
            missing=stored["missing"].values,
            dropped=stored["dropped"].values,
            usable=stored["usable"].values,
            excluded={r: np.asarray(i, dtype=np.int64) for r, i in excluded.items()},
            nonzero=stored["nonzero"].values if "nonzero" in stored else None,
        ),
        components=stored["components"].values,
        singular_values=stored["singular_values"].values,
        residuals=stored["residuals"].values,
        score_error=float(attrs["score_error"]),
        settled=bool(attrs["settled"]),
        last_change=np.inf if attrs["last_change"] is None else float(attrs["last_change"]),
        correlation=stored["correlation"].values if "correlation" in stored else None,
        gaps=(
            Gaps(stored["gap_values"].values, stored["gap_counts"].values)
            if "gap_values" in stored
            else None
        ),
        k=int(attrs["k"]),
        sample=RowSample(stored["sample_index"].values, [stored["sample"].values]),
        screening=Screening(**attrs["screening"]),
        method=str(attrs["method"]),
        precision=attrs["precision"],
        passes=int(attrs["passes"]),
        labels=stored["feature"].values.astype(object) if "feature" in stored.coords else None,
        fingerprint=dict(attrs["fingerprint"]),
        located=json.loads(attrs.get("located", "{}")),
        where=attrs.get("where", ""),
        origin=origin_in(attrs),
    )


def _checksum(stored: xr.Dataset) -> str:
    """Of all values and attributes: chunks that are lost would be read as fill values."""
    digest = hashlib.sha256(json.dumps(stored.attrs, sort_keys=True).encode())
    for name in sorted(map(str, stored.variables)):
        digest.update(name.encode())
        values = stored[name].values
        if values.dtype.kind in "OUT":
            digest.update(json.dumps(values.tolist()).encode())
            continue
        native = values.astype(values.dtype.newbyteorder("="), order="C", copy=False)
        digest.update(native.data)
    return digest.hexdigest()

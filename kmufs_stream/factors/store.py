"""Store a factor as a Zarr group, through xarray, and load it."""

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
from kmufs_stream.storage.places import PlaceLike, name_of, place_of
from kmufs_stream.storage.provenance import FACTOR, origin_in, stamp
from kmufs_stream.streaming.kernels.gram import Gaps

DIMS: dict[str, str | tuple[str, str]] = {
    "components": ("usable", "component"),
    "singular_values": "component",
    "residuals": "component",
    "correlation": ("usable", "usable_too"),
    "usable": "usable",
    "mean": "feature",
    "std": "feature",
    "missing": "feature",
    "nonzero": "feature",
    "dropped": "dropped",
    "sample_index": "row",
    "sample": ("row", "feature"),
    "gap_values": ("gap", "asked"),
    "gap_counts": ("gap", "gap_too"),
}
"""Of each array; correlation, gaps and nonzero may be missing."""
PLAIN = ("k", "score_error", "settled", "method", "precision", "passes", "fingerprint")


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
        Replace an existing output; see :func:`kmufs_stream.select`.
    storage_options : mapping, optional
        Options of fsspec for an address.

    Raises
    ------
    RequestError
        The output exists (without ``overwrite``) or cannot be written.
    BrokenError
        Writing failed.
    """
    target = place_of(out, storage_options)
    check_output(target, [], overwrite=overwrite)
    features, gaps = factor.features, factor.gaps
    values = vars(factor) | vars(features)
    values |= {"sample": factor.sample.values, "sample_index": factor.sample.index}
    values |= {f"gap_{name}": getattr(gaps, name, None) for name in ("values", "counts")}
    variables = {name: (dims, values[name]) for name, dims in DIMS.items()}
    variables = {name: stored for name, stored in variables.items() if stored[1] is not None}
    coords = {} if factor.labels is None else {"feature": factor.labels}
    attrs = {
        **stamp(FACTOR),
        **{name: values[name] for name in PLAIN},
        "samples": features.samples,
        "excluded": json.dumps({r: i.tolist() for r, i in features.excluded.items()}),
        "last_change": factor.last_change if np.isfinite(factor.last_change) else None,
        "screening": vars(factor.screening),
        "located": json.dumps(factor.located),
        "where": factor.where,
        **factor.origin,
    }
    whole = xr.Dataset(variables, coords, attrs)
    whole.attrs["checksum"] = _checksum(whole)
    with new_zarr(target, overwrite=overwrite) as root:
        whole.to_zarr(root, mode="w", zarr_format=3, consolidated=False)


def load_factor(where: PlaceLike, *, storage_options: Mapping[str, Any] | None = None) -> Factor:
    """Read a stored factor.

    Parameters
    ----------
    where : path, address or Zarr store
        Where :func:`kmufs_stream.decompose` or :func:`kmufs_stream.save_factor` wrote it.
    storage_options : mapping, optional
        Options of fsspec for an address.

    Returns
    -------
    Factor
        As it was written, bit for bit.

    Raises
    ------
    RequestError
        Nothing is there, or no factor, or one of another format.
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
    arrays: dict[str, Any] = {name: stored[name].values for name in DIMS if name in stored}
    excluded = json.loads(attrs["excluded"])
    features = Standardised(
        samples=int(attrs["samples"]),
        excluded={r: np.asarray(i, dtype=np.int64) for r, i in excluded.items()},
        nonzero=arrays.get("nonzero"),
        **{name: arrays[name] for name in ("usable", "mean", "std", "missing", "dropped")},
    )
    gaps = None
    if "gap_values" in arrays:
        gaps = Gaps(arrays["gap_values"], arrays["gap_counts"])
    return Factor(
        **{name: attrs[name] for name in PLAIN},
        **{name: arrays[name] for name in ("components", "singular_values", "residuals")},
        features=features,
        last_change=np.inf if attrs["last_change"] is None else attrs["last_change"],
        correlation=arrays.get("correlation"),
        gaps=gaps,
        sample=RowSample(arrays["sample_index"], [arrays["sample"]]),
        screening=Screening(**attrs["screening"]),
        labels=stored["feature"].values.astype(object) if "feature" in stored.coords else None,
        located=json.loads(attrs.get("located", "{}")),
        where=attrs.get("where", ""),
        origin=origin_in(attrs),
    )


def _checksum(stored: xr.Dataset) -> str:
    """Digest all values and attributes: lost chunks would be read as fill values."""
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

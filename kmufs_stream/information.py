"""Show how something that this tool wrote was made: its metadata, and first and last times."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
import zarr.core.sync
from upath import UPath
from zarr.abc.store import Store

from kmufs_stream.errors import RequestError
from kmufs_stream.sources.names import decoded_values, plain
from kmufs_stream.sources.written import SWEEP, describe, identify
from kmufs_stream.storage.places import Place, PlaceLike, check_exists, name_of, place_of, zarr_root
from kmufs_stream.storage.provenance import CHECKPOINT, FACTOR, FORMAT_VERSIONS, TRUTHS
from kmufs_stream.streaming import checkpoint
from kmufs_stream.streaming.tree import Node, Tree

RECORDED = ("format_version", "version", "command", "created", "source")
OUTCOME = re.compile(
    "objective|optimum|solver_objective|iterations|converged|at_noise|beyond_noise|near_copies|"
    "ambiguous|kept|passes|settled|score_error|last_change|samples_dropped|missing_values|"
    "reads_kept|of_next_read|excluded.*"
)
DIGESTS = ("data labels", "data asked", "data values", checkpoint.CHUNKS)
SHAPE = ("samples", "features", "k", "h")
OTHERS = {*RECORDED, *SHAPE, "format", "fingerprint", "checksum"}


def info(path: PlaceLike, *, storage_options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what a selection, a factor, an applied selection or a checkpoint says of itself.

    Parameters
    ----------
    path : path, address or Zarr store
        Where it is stored.
    storage_options : mapping, optional
        Options of fsspec for an address.

    Returns
    -------
    dict
        Plain JSON types: ``path``, ``kind``, ``format_version`` and that which this version
        ``reads``, the ``version`` that wrote it, ``command`` and ``created`` (None from Python),
        ``source``, ``identity`` of the data, ``shape``, ``options``, ``outcome``, ``arrays`` (name
        to shape and dtype; of times first and last), ``bytes`` stored. What is not recorded is
        None or missing.

    Raises
    ------
    RequestError
        Nothing is there, or nothing that this tool wrote.

    Notes
    -----
    Reads metadata, and the first and last of times. O(number of arrays and files).
    """
    place = place_of(path, storage_options)
    check_exists(place, "Look for a slip in the path.")
    found = identify(place)
    if found is None or found.format == SWEEP:
        what, hint = describe(place, found)
        raise RequestError(
            "not_ours",
            f"{name_of(place)} is {what}: info is about what select, decompose or apply wrote, and "
            "checkpoints.",
            hint,
        )
    unfinished = found.format == CHECKPOINT
    said = _of_checkpoint(place, found.attributes) if unfinished else found.attributes
    arrays = {} if unfinished else _arrays(place)
    rest = {name: value for name, value in said.items() if name not in OTHERS}
    outcome = {name: rest.pop(name) for name in [*rest] if OUTCOME.fullmatch(name)}
    for name in TRUTHS & outcome.keys():
        outcome[name] = bool(outcome[name])
    shape = {name: said[name] for name in SHAPE if name in said}
    if found.format == FACTOR:
        shape["features"] = arrays["mean"]["shape"][0]
        shape["components"] = arrays["singular_values"]["shape"][0]
        outcome |= {
            f"excluded_{reason}": len(index)
            for reason, index in json.loads(outcome.pop("excluded")).items()
        }
        names = said["fingerprint"].get("transforms", "none")
        rest |= {**rest.pop("screening"), "transforms": "" if names == "none" else names}
    rest |= json.loads(rest.pop("located", "{}"))
    identity = said.get("fingerprint")
    return {
        "path": name_of(place),
        "kind": found.format.removeprefix("kmufs-"),
        "reads": FORMAT_VERSIONS[found.format],
        **{name: said.get(name) for name in RECORDED},
        "identity": "-".join(identity.values()) if isinstance(identity, dict) else identity,
        "shape": shape,
        "options": rest,
        "outcome": outcome,
        "arrays": arrays,
        "bytes": _stored_bytes(place),
    }


def _stored_bytes(place: Place) -> int:
    if isinstance(place, Store):
        return zarr.core.sync.sync(place.getsize_prefix(""))
    return sum(f.stat().st_size for f in [place, *place.rglob("*")] if f.is_file())


def _arrays(place: Place) -> dict[str, Any]:
    """Return shape and dtype of each array of a Zarr group, and the first and last of times."""
    try:
        members = zarr.open_group(zarr_root(place), mode="r").members(max_depth=None)
    except Exception as error:
        raise RequestError(
            "not_ours",
            f"{name_of(place)} cannot be read: {type(error).__name__}: {error}",
            "Its metadata are damaged: make it again.",
        ) from error
    return {
        name: {"shape": list(array.shape), "dtype": str(array.dtype), **_times(array)}
        for name, array in sorted(members, key=lambda member: member[0])
        if isinstance(array, zarr.Array)
    }


def _times(array: zarr.Array[Any]) -> dict[str, Any]:
    """Return the first and last of times, or time spans, that are stored as numbers."""
    numbers = array.dtype.kind in "iuf" and array.ndim == 1 and array.size
    if not numbers or "units" not in array.attrs:
        return {}
    try:
        ends = np.array([array[0], array[-1]])
    except Exception:  # the rest can be shown all the same
        return {}
    values = decoded_values(xr.Variable("ends", ends, dict(array.attrs)))
    if values.dtype.kind not in "mMO":
        return {}
    return {"first": plain(values[0]), "last": plain(values[1])}


def _of_checkpoint(place: Any, attributes: dict[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint belongs to, and how far its run came."""
    said = dict(attributes)
    about = dict(said.pop(checkpoint.ABOUT, {}))
    said["fingerprint"] = {name: said.pop(name) for name in DIGESTS if name in said}
    partitions = about.pop("partitions", None)
    return said | about | (_reads(place, partitions) if partitions else {})


def _reads(folder: Path | UPath, partitions: int) -> dict[str, Any]:
    """Count the reads of the data that are kept whole, and the share of the next."""
    shares = []
    for states in folder.glob("pass-*"):
        found = [path.stem.split("-") for path in states.glob("*.state")]
        nodes = Tree(partitions).highest(Node(int(level), int(index)) for level, index in found)
        shares.append(sum(len(node.partitions(partitions)) for node in nodes) / partitions)
    whole = sum(share == 1 for share in shares)
    return {"reads_kept": whole, "of_next_read": sum(shares) - whole}

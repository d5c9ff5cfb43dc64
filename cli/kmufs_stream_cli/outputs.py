"""Where what a command writes goes."""

from __future__ import annotations

from pathlib import Path

from kmufs_stream.errors import RequestError

PACKED = (".zip", ".gz", ".bz2", ".xz", ".zst")
ENDINGS = {  # what a command adds to the name of what it is given
    "apply": ".selected.zarr",
    "convert": ".zarr",
    "decompose": ".factor.zarr",
    "rechunk": ".rechunked.zarr",
    "report": ".report.html",
    "select": ".selected.zarr",
}


def lasting(place: str | None) -> str | None:
    """An output, as it is. Raises RequestError for one that would end with the process."""
    if place is not None and "memory" in place.rpartition("://")[0].split("::"):
        raise RequestError(
            "not_lasting",
            "memory:// is memory of this process: what is written there is gone when it ends.",
            "Give a path, or an address like s3://bucket/name.zarr.",
        )
    return place


def default_output(command: str, data: str) -> str:
    """Beside the user, not beside the data, which may lie where nothing can be written."""
    name = Path(data if "://" in data else data.partition("::")[0]).resolve().name
    for packed in PACKED:
        name = name.removesuffix(packed)
    return Path(name).stem + ENDINGS[command]

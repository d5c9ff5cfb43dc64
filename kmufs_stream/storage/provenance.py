"""Names and versions of our formats, and the attributes that record how a store was made."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kmufs_stream.version import __version__

# Written by decompose, select, apply, and runs that may be resumed.
FACTOR, SELECTION, APPLICATION = "kmufs-factor", "kmufs-selection", "kmufs-application"
CHECKPOINT = "kmufs-checkpoint"
FORMAT_VERSIONS = {
    FACTOR: 3,
    SELECTION: 1,
    APPLICATION: 1,
    CHECKPOINT: 1,
}  # see tests/results/test_format_versions.py
TITLES = {
    # Whenever the factor was made: a selection by a stored factor reads nothing for it.
    "passes": "reads for the factor",
    "at_noise": "chosen that tell no more than noise",
    "beyond_noise": "features that tell more",
    "near_copies": "chosen that are near copies",
}
CHECKPOINT_FILE = "checkpoint.json"
ORIGIN = ("source", "command", "created")
TRUTHS = {"converged", "settled"}  # booleans that a selection stores as 0 and 1


def stamp(format: str) -> dict[str, str | int]:
    """Return the attributes that tell a format, its version and that of this library."""
    return {"format": format, "format_version": FORMAT_VERSIONS[format], "version": __version__}


def origin(source: str, command: str | None) -> dict[str, str]:
    """Return the attributes that record the source, the command line and the date.

    Without a command there is no date: what Python code writes is the same bit for bit whenever it
    runs.
    """
    if command is None:
        return {"source": source}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"source": source, "command": command, "created": now}


def origin_in(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Return those of these attributes that a store has."""
    return {name: attributes[name] for name in ORIGIN if name in attributes}


def described(attributes: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names and values of attributes for people."""
    return [
        (TITLES.get(name, name.replace("_", " ")), _in_words(value))
        for name, value in attributes.items()
    ]


def _in_words(value: Any) -> str:
    if value is None:
        return "not recorded"
    if value == "":
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_in_words, value))
    return f"{value:.10g}" if isinstance(value, float) else str(value)

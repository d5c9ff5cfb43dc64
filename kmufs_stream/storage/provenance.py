"""What a store says of how it was made."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

# The formats of what decompose, select and apply write.
FACTOR, SELECTION, APPLICATION = "kmufs-factor", "kmufs-selection", "kmufs-application"
FORMAT_VERSIONS = {
    FACTOR: 3,
    SELECTION: 1,
    APPLICATION: 1,
}  # see tests/results/test_format_versions.py
NAMES = {
    # Whenever the factor was made: the run that selected by a stored one read nothing for it.
    "passes": "reads for the factor",
    "at_noise": "chosen that tell no more than noise",
    "beyond_noise": "features that tell more",
    "near_copies": "chosen that are near copies",
}
ORIGIN = ("source", "command", "created")
TRUTHS = {"converged", "settled"}  # attributes that a selection has as 0 and 1


def origin(source: str, command: str | None) -> dict[str, str]:
    """Attributes of what was made of data: where these lie, and the command line, and when.

    The latter two not without a command: what Python code makes is the same bit for bit whenever
    it runs.
    """
    if command is None:
        return {"source": source}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"source": source, "command": command, "created": now}


def origin_in(attributes: Mapping[str, Any]) -> dict[str, str]:
    """The same, as a store says it; of what is not recorded, nothing."""
    return {name: attributes[name] for name in ORIGIN if name in attributes}


def named(attribute: str) -> str:
    """An attribute's name for people."""
    return NAMES.get(attribute, attribute.replace("_", " "))


def in_words(value: Any) -> str:
    """An attribute for people."""
    if value is None:
        return "not recorded"
    if value == "":
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(in_words, value))
    return f"{value:.10g}" if isinstance(value, float) else str(value)


CHECKPOINT_FILE = "checkpoint.json"

"""What a store says of how it was made."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

# The formats of what decompose, select and apply write.
FACTOR, SELECTION, APPLICATION = "kmufs-factor", "kmufs-selection", "kmufs-application"
NAMES = {
    # Whenever the factor was made: the run that selected by a stored one read nothing for it.
    "passes": "reads for the factor",
    "at_noise": "chosen that tell no more than noise",
    "beyond_noise": "features that tell more",
}
TRUTHS = {"converged", "settled"}  # attributes that a selection has as 0 and 1


def made_by(command: str | None) -> dict[str, str]:
    """Attributes of what a command line has made: the command, and when.

    Empty without a command: what Python code makes is the same bit for bit whenever it runs.
    """
    if command is None:
        return {}
    return {"command": command, "created": datetime.now(UTC).isoformat(timespec="seconds")}


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

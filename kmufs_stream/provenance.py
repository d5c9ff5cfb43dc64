"""What a store says of how it was made."""

from __future__ import annotations

from datetime import UTC, datetime


def made_by(command: str | None) -> dict[str, str]:
    """Attributes of what a command line has made: the command, and when.

    Empty without a command: what Python code makes is the same bit for bit whenever it runs.
    """
    if command is None:
        return {}
    return {"command": command, "created": datetime.now(UTC).isoformat(timespec="seconds")}

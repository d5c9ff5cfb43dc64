"""How long stages tell somebody that they get on."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told of each stage and of the rows that it has done; called from several threads."""

    def start(self, stage: str, rows: int) -> None:
        """A stage over that many rows begins (0 where it does not go by rows)."""

    def advance(self, rows: int) -> None:
        """So many rows more are done."""

    def tell(self, notice: str) -> None:
        """Something that a user should know: where a checkpoint or a dashboard is."""


class Silent:
    """Tells nobody."""

    def start(self, stage: str, rows: int) -> None:
        """See Progress."""

    def advance(self, rows: int) -> None:
        """See Progress."""

    def tell(self, notice: str) -> None:
        """See Progress."""


SILENT: Progress = Silent()

"""Plain lines on stderr: what a user should know, whatever else is shown there."""

from __future__ import annotations

import sys

from kmufs_stream.events import Event, Noticed, Planned
from kmufs_stream_cli.show import escaped
from kmufs_stream_cli.wording import as_typed


def notices(event: Event) -> None:
    """Nothing but what a user should know."""
    if isinstance(event, Noticed):
        say(as_typed(event.text))
    elif isinstance(event, Planned) and event.dashboard:
        say(f"cluster dashboard: {event.dashboard}")


def say(line: str) -> None:
    """A plain line on stderr, not broken by what is in a name."""
    print(escaped(line), file=sys.stderr, flush=True)

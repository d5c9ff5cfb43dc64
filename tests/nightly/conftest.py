"""All tests here try much at random, and count how it ends."""

from __future__ import annotations

import pytest
from nightly.tally import PROPERTY, Tally


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    """Counts trials, for the table at the end; the report of a test takes the counts there."""
    tally = Tally()
    request.node.user_properties.append((PROPERTY, tally.counts))
    return tally

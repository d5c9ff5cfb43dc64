"""All tests here are slow: they try much at random, and count how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from nightly.tally import PROPERTY, Tally


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    """Counts trials, for the table at the end; the report of a test takes the counts there."""
    tally = Tally()
    request.node.user_properties.append((PROPERTY, tally.counts))
    return tally

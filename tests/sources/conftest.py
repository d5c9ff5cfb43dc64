"""AnnData stores that many tests read and none changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from sources.anndata_stores import Write, cells


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Write], Path]:
    """The same cells, as each writer stores them."""
    folder = tmp_path_factory.mktemp("cells")

    @cache
    def path_of(write: Write) -> Path:
        return write(cells(), folder / write.__name__)

    return path_of

"""Whatever is damaged in a store or a table, it is read as others read it, or refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from fuzzing import survives, table_survives
from nightly.tally import Tally, trials

pytestmark = pytest.mark.filterwarnings("ignore")


@trials(12_000, batch=250)
def test_damaged_stores(tmp_path: Path, tally: Tally, seeds: range) -> None:
    tally("damaged stores", seeds, partial(survives, folder=tmp_path))


@trials(8_000, batch=250)
def test_damaged_tables(tmp_path: Path, tally: Tally, seeds: range) -> None:
    tally("damaged tables", seeds, partial(table_survives, folder=tmp_path))

"""Whatever is asked of whatever table, the peak of memory is at most what the plan says."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from nightly.tally import Tally, trials
from streaming.planning.drawn import keeps_its_word


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@trials(80, batch=4)
def test_drawn_plans(tmp_path: Path, tally: Tally, seeds: range) -> None:
    def trial(seed: int) -> None:
        with TemporaryDirectory(dir=tmp_path) as folder:
            keeps_its_word(seed, Path(folder))

    tally("drawn plans of memory", seeds, trial)

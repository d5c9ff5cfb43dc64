"""Killed at random moments, a selection leaves nothing half-written, and goes on to its bits."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from nightly.tally import Tally, trials
from runs import killed_and_resumed, slow_workers, undisturbed, write_rows


@pytest.mark.parametrize("where", ["threads", "cluster"])
@trials(50, batch=5)
def test_killed_at_random_moments(tmp_path: Path, tally: Tally, where: str, seeds: range) -> None:
    more = ("--workers", 2) if where == "cluster" else ("--threads", 2)
    environs = slow_workers(tmp_path)
    write_rows(tmp_path)
    alone = undisturbed(tmp_path, *more, **environs)

    def trial(seed: int) -> None:
        rng = random.Random(seed)
        while not killed_and_resumed(rng, tmp_path, alone, *more, **environs):
            pass  # it ended before

    tally(f"killed on {where}", seeds, trial)

"""Count trials: tried, right, refused by name, wrong."""

from __future__ import annotations

import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

SCALE = float(os.environ.get("KMUFS_TRIALS", "1"))  # of the numbers of trials, to try the tier
PROPERTY = "trials"
ENDS = ("right", "refused", "wrong")


def trials(count: int, *, batch: int) -> pytest.MarkDecorator:
    """Seeds of so many trials, in batches for processes to share; slow ones."""
    count = max(round(count * SCALE), 1)
    batches = [range(a, min(a + batch, count)) for a in range(0, count, batch)]
    rows = [pytest.param(seeds, id=str(seeds[0]), marks=pytest.mark.slow) for seeds in batches]
    return pytest.mark.parametrize("seeds", rows)


class Tally:
    """Runs trials and counts how they end.

    Attributes
    ----------
    counts : by kind of trial, how many ended in each of ENDS.
    """

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, int]] = {}

    def __call__(self, kind: str, seeds: Iterable[int], trial: Callable[[int], str | None]) -> None:
        """Run a trial with each seed; fail in the end if any was wrong.

        A trial returns None where the result is right, the code of the error where it is refused,
        and raises anything where it is wrong.
        """
        counts = self.counts.setdefault(kind, dict.fromkeys(ENDS, 0))
        wrong = []
        for seed in seeds:
            try:
                end = "right" if trial(seed) is None else "refused"
            except Exception:
                end = "wrong"
                wrong.append(f"seed {seed}: {traceback.format_exc()}")
            counts[end] += 1
        if wrong:
            pytest.fail("\n".join(wrong), pytrace=False)


def table(reports: Iterable[Any]) -> list[str]:
    """Lines of a table of all that reports of tests count; none if none counts anything."""
    found: dict[str, Counter[str]] = {}
    for report in reports:
        if getattr(report, "when", None) != "call":
            continue
        for kind, counts in dict(report.user_properties).get(PROPERTY, {}).items():
            found.setdefault(kind, Counter()).update(counts)
    if not found:
        return []
    rows = [("trials", "tried", *ENDS)]
    for kind, counts in found.items():
        rows.append((kind, str(counts.total()), *(str(counts[end]) for end in ENDS)))
    width = max(len(kind) for kind, *_ in rows)
    return [
        f"{kind:{width}}" + "".join(f"{number:>9}" for number in numbers) for kind, *numbers in rows
    ]

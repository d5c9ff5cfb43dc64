"""The trials of a sweep, and the one to begin with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from kmufs_stream.errors import counted
from kmufs_stream.factors.structure import KSuggestion
from kmufs_stream.typing import Int
from kmufs_stream.version import __version__

RECOMMENDED = "consensus"


@dataclass(frozen=True, eq=False)
class Trial:
    """One choice of features."""

    k: int
    h: int
    solver: str
    objective: float
    optimum: float
    solver_objective: float
    iterations: int
    converged: bool
    at_noise: int  # chosen features that vary with the k components no more than noise would
    explained: float  # share of the relaxed cluster indicators Q_k in the span of those chosen
    mean_correlation: float  # mean absolute correlation of two chosen features
    selected: Int  # (h,) source indices, ascending
    labels: list[str] | None


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """All trials, by k, then solver, then h, and what they suggest.

    Attributes
    ----------
    trials : tuple of Trial
        One for each k, solver and h; the rows of ``table()``.
    suggested_k : KSuggestion
        The number of clusters that the spectrum suggests.
    suggested_h : dict of (int, str) to int or None
        The h at the knee of what is explained, by k and solver; None without a knee.
    usable : int
        Features that could be chosen.
    passes : int
        Reads of the data: 0 from a factor.
    seconds : float
        Wall-clock seconds.
    peak : int
        Peak resident bytes of the process until the sweep ended.
    """

    trials: tuple[Trial, ...]
    suggested_k: KSuggestion
    suggested_h: dict[tuple[int, str], int | None]
    usable: int
    passes: int
    seconds: float
    peak: int

    def __repr__(self) -> str:
        ks, hs = {t.k for t in self.trials}, {t.h for t in self.trials}
        return (
            f"<Sweep: {counted(len(self.trials), 'trials')}, k from {min(ks)} to {max(ks)}, h from "
            f"{min(hs)} to {max(hs)}, by {', '.join(dict.fromkeys(t.solver for t in self.trials))}>"
        )

    @property
    def proposals(self) -> list[Trial]:
        """The trial to begin with for each k and solver; it leaves features out if possible."""
        each = []
        for which, knee in self.suggested_h.items():
            every = [trial for trial in self.trials if (trial.k, trial.solver) == which]
            each.append(_best_h([trial for trial in every if trial.h < self.usable] or every, knee))
        return each

    @property
    def proposal(self) -> Trial | None:
        """The trial to begin with: of the k next to the suggested one, else of the smallest.

        None if all choose all features. Between k what is explained cannot be compared.
        """
        k = self.suggested_k.k or 0
        return min(
            (trial for trial in self.proposals if trial.h < self.usable),
            key=lambda trial: (abs(trial.k - k), trial.solver != RECOMMENDED),
            default=None,
        )

    def table(self) -> pd.DataFrame:
        """Return a row per trial, with indices separated by spaces, and labels as a JSON list."""
        rows = [
            {
                **vars(trial),
                "selected": " ".join(map(str, trial.selected)),
                # A label may hold any separator.
                "labels": trial.labels and json.dumps(trial.labels, ensure_ascii=False),
            }
            for trial in self.trials
        ]
        return pd.DataFrame(rows)

    def summary(self) -> dict[str, Any]:
        """Return the sweep in plain JSON types; the keys are listed in docs/output.md."""
        return {
            "trials": [{**vars(t), "selected": t.selected.tolist()} for t in self.trials],
            "suggested_k": vars(self.suggested_k).copy(),
            "suggested_h": [
                {"k": k, "solver": solver, "h": h} for (k, solver), h in self.suggested_h.items()
            ],
            "passes": self.passes,
            "seconds": {"total": self.seconds},
            "peak_rss_bytes": self.peak,
            "version": __version__,
        }


def _best_h(curve: Sequence[Trial], knee: int | None) -> Trial:
    """Choose a trial of a curve: at its knee, or of most features; with none at noise if any is."""
    telling = [trial for trial in curve if not trial.at_noise]
    at_knee = [trial for trial in telling or curve if trial.h == knee]
    return (at_knee or telling[-1:] or curve)[0]

"""The trials of a sweep, and the one to begin with."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from kmufs_stream.errors import BrokenError, Text, counted
from kmufs_stream.factors.structure import KSuggestion
from kmufs_stream.storage.output import check_output
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
    def proposal(self) -> Proposal | None:
        """The trial to begin with, and why; None if all choose all features."""
        return propose(self)

    @property
    def proposals(self) -> list[Trial]:
        """The trial to begin with for each k and solver; it leaves features out if possible."""
        each = []
        for which, knee in self.suggested_h.items():
            every = [trial for trial in self.trials if (trial.k, trial.solver) == which]
            curve = [trial for trial in every if trial.h < self.usable] or every
            h, _ = _one_h(curve, knee)
            each.append(next(trial for trial in curve if trial.h == h))
        return each

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


def write_csv(found: Sweep, csv: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write one line per trial.

    Raises RequestError if the file exists (without ``overwrite``), BrokenError if it cannot be
    written.
    """
    path = Path(csv)
    check_output(path, [], overwrite=overwrite, parameter="csv", file=True)
    try:
        found.table().to_csv(path, index=False)
    except OSError as error:
        raise BrokenError(
            "write_failed",
            f"Writing {path} failed: {error.strerror or error}.",
            Text("Make room, or choose another {csv}."),
        ) from error


@dataclass(frozen=True)
class Proposal:
    """The trial to begin with."""

    k: int
    h: int
    solver: str
    why: tuple[str, ...]  # a reason for each of k, solver and h that could have been another


def propose(found: Sweep) -> Proposal | None:
    choices = [trial for trial in found.trials if trial.h < found.usable]
    if not choices:
        return None
    k, why_k = _one_k(found.suggested_k.k, sorted({trial.k for trial in choices}))
    solvers = list(dict.fromkeys(trial.solver for trial in choices))
    solver, why_solver = solvers[0], ""
    if len(solvers) > 1:
        solver = RECOMMENDED if RECOMMENDED in solvers else solver
        usual = ", which usually finds clusters best" if solver == RECOMMENDED else ", the first"
        why_solver = solver + usual
    curve = [trial for trial in choices if (trial.k, trial.solver) == (k, solver)]
    h, why_h = _one_h(curve, found.suggested_h.get((k, solver)))
    several = len({trial.h for trial in found.trials}) > 1
    said = (why_k, why_solver, why_h if several else "")
    return Proposal(k, h, solver, tuple(why for why in said if why))


def _one_k(wanted: int | None, ks: Sequence[int]) -> tuple[int, str]:
    """Choose a k, and say why: what is explained cannot be compared between k."""
    if wanted is None:
        return ks[0], f"k = {ks[0]}, the smallest" * (len(ks) > 1)
    if wanted in ks:
        return wanted, f"k = {wanted}, for which the spectrum speaks"
    nearest = min(ks, key=lambda k: abs(k - wanted))
    spoken = f"k = {nearest}, the nearest to k = {wanted}, for which the spectrum speaks"
    return nearest, spoken * (len(ks) > 1)


def _one_h(curve: Sequence[Trial], knee: int | None) -> tuple[int, str]:
    """Choose an h, and say why: the knee, or an h without features at noise, if possible."""
    at_noise = {trial.h: trial.at_noise for trial in curve}
    telling = [h for h, some in at_noise.items() if not some]
    if knee in telling or (knee in at_noise and not telling):
        some = f", with {at_noise[knee]:,} of them at noise" if at_noise[knee] else ""
        return knee, f"h = {knee}, the knee of its curve{some}"
    if len(telling) == len(curve):
        return telling[-1], f"h = {telling[-1]}, the most that leaves any out (there is no knee)"
    if telling:
        return telling[-1], f"h = {telling[-1]}, the most with none at noise"
    return curve[0].h, f"h = {curve[0].h}, the fewest (all have some at noise)"

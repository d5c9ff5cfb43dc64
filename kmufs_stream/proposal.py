"""Which trial of a sweep to begin with, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kmufs_stream.trials import Sweep, Trial

RECOMMENDED = "consensus"


@dataclass(frozen=True)
class Proposal:
    """One of several trials.

    Attributes
    ----------
    why : for each of k, solver and h of which there were several, what it is and the reason.
    """

    k: int
    h: int
    solver: str
    why: tuple[str, ...]


def propose(found: Sweep) -> Proposal | None:
    """A trial to begin with; None where all choose all features, which is no choice."""
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


def one_each(found: Sweep) -> list[Trial]:
    """Of each k and solver the trial to begin with; all features only where there is no other."""
    each = []
    for which, knee in found.suggested_h.items():
        every = [trial for trial in found.trials if (trial.k, trial.solver) == which]
        curve = [trial for trial in every if trial.h < found.usable] or every
        h, _ = _one_h(curve, knee)
        each.append(next(trial for trial in curve if trial.h == h))
    return each


def _one_k(wanted: int | None, ks: Sequence[int]) -> tuple[int, str]:
    """A k and why; what is explained of the components of one k says nothing of another k."""
    if wanted is None:
        return ks[0], f"k = {ks[0]}, the smallest" * (len(ks) > 1)
    if wanted in ks:
        return wanted, f"k = {wanted}, for which the spectrum speaks"
    nearest = min(ks, key=lambda k: abs(k - wanted))
    spoken = f"k = {nearest}, the nearest to k = {wanted}, for which the spectrum speaks"
    return nearest, spoken * (len(ks) > 1)


def _one_h(curve: Sequence[Trial], knee: int | None) -> tuple[int, str]:
    """An h and why: the knee where there is one, without what is mere noise where that can be."""
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

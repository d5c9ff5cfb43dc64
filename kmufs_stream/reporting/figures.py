"""The figures of a report: which there are, and in words what each shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.figure import FigureBase

from kmufs_stream.reporting import drawing
from kmufs_stream.reporting.content import Redundancy, Result, Trials, View
from kmufs_stream.reporting.drawing import ACCENT, MUTED, SECOND, Panel
from kmufs_stream.results.measures import COPIES

SWEPT = {
    "explained": (
        "Explained",
        "The share of the k leading components, the relaxed cluster indicators, that the h chosen "
        "features span. k clusters make k - 1 components; the k-th is noise, so about 1/k less "
        "than 1 is no loss. Compare along h: each k has its own components, and css maximises "
        "this share. Rings: the knee of a curve.",
    ),
    "of_optimum": (
        "Objective",
        "The objective as a share of the largest that any h features have.",
    ),
    "mean_correlation": (
        "Redundancy",
        "Mean absolute correlation of two chosen features: lower is less repetition.",
    ),
}
"""Title and caption for each column of a sweep that is drawn."""


@dataclass(frozen=True)
class Picture:
    """A figure, ``WIDTH`` wide; without ``draw``, its caption says why there is none."""

    slug: str  # its kind, for names of files and styles
    title: str
    caption: str
    alt: str = ""  # for those who cannot see it; goes before the caption
    draw: Callable[[FigureBase], None] | None = None
    height: float = 2.9  # inches

    @property
    def description(self) -> str:
        return f"{self.alt} {self.caption}"


def of_result(result: Result) -> list[Picture]:
    return [
        _spectrum(result),
        _scores(result),
        _redundancy(result.redundancy),
        _view(result.view, int(result.attrs["k"]), str(result.attrs["transforms"])),
        _convergence(result),
    ]


def _spectrum(result: Result) -> Picture:
    values, k = result.eigenvalues, int(result.attrs["k"])
    share = values[:k].sum() / result.usable
    above = int((values > result.edge).sum())
    known = "at least " if above == len(values) else ""
    return Picture(
        "spectrum",
        "Spectrum",
        f"The leading k = {k} components hold {share:.1%} of the variance of "
        f"{result.usable:,} standardised features; {known}{above:,} stand above the noise edge "
        f"{result.edge:.3g}, where independent features would end.",
        f"Eigenvalues of the correlation matrix from {values[0]:.3g} down to "
        f"{values[-1]:.3g}, the first {k} marked.",
        partial(drawing.draw_spectrum, result=result, k=k),
    )


def _scores(result: Result) -> Picture:
    scores, h = result.every_score, len(result.selected)
    falling = np.sort(scores[~np.isnan(scores)])[::-1]
    cutoff = falling[h - 1]
    best = int((result.scores >= cutoff).sum())
    return Picture(
        "scores",
        "Score of every feature",
        f"Score: the share of a feature's variance that the {result.attrs['k']} components "
        f"explain. Chosen: {result.scores.min():.3f} to {result.scores.max():.3f}; {best:,} of "
        f"{h:,} are among the {h:,} highest of all (above the line at {cutoff:.3f}).",
        f"Scores of {len(falling):,} features by their place in the table, the {h:,} chosen ones "
        "marked.",
        partial(drawing.draw_scores, result=result, cutoff=float(cutoff)),
    )


def _redundancy(found: Redundancy | None) -> Picture:
    if found is None:
        return Picture(
            "redundancy",
            "Redundancy",
            "Not drawn: this result was written by a version that did not keep the correlations of "
            "the chosen features. Select again to have them.",
        )
    shown = len(found.correlation)
    best = f"the best {shown:,}" if shown < found.of else "the chosen"
    return Picture(
        "redundancy",
        "Redundancy",
        f"Correlations of {best} features, similar ones side by side. Mean absolute correlation "
        f"{found.mean:.3f}; {found.of:,} features are worth {found.effective_rank:.1f} "
        f"uncorrelated ones; {found.copies:,} pairs correlate by more than {COPIES:g}.",
        f"Map of the correlations of {shown:,} chosen features.",
        partial(drawing.draw_redundancy, found=found),
        height=4.0,
    )


def _view(view: View | None, k: int, transforms: str) -> Picture:
    slug, title = "view", "Samples on the chosen features"
    if view is None:
        return Picture(
            slug,
            title,
            "Not drawn: this result holds no data, or too few. A selection that was written "
            "with its columns holds them.",
        )
    shown = len(view.points)
    which = f"{shown:,} of {view.of:,} samples" if shown < view.of else f"All {shown:,} samples"
    stored = f", as stored (before {transforms})" if transforms else ""
    largest = np.bincount(view.clusters).max() / shown
    return Picture(
        slug,
        title,
        f"{which} on the two leading components of the chosen features, standardised{stored}: "
        f"{sum(view.shares):.0%} of their variance. Colours and numbers: K-means with k = {k} on "
        "all of the chosen features.",
        f"Scatter plot; the largest cluster holds {largest:.0%} of these samples.",
        partial(drawing.draw_view, view=view),
        height=4.0,
    )


def _convergence(result: Result) -> Picture:
    attrs, history = result.attrs, result.history
    slug, title = "convergence", "Convergence"
    if not history:
        why = (
            f"Nothing to draw: solver {attrs['solver']} has a closed form and takes no iterations."
        )
        return Picture(slug, title, why)
    steps, panels = len(next(iter(history.values()))), _panels(result)
    if result.greedy:
        said = (
            f"{steps:,} steps, a feature each; what the solver maximises ends at "
            f"{attrs['solver_objective']:.4g}."
        )
    else:
        ending = "NOT CONVERGED: the chosen set was still changing"
        if attrs["converged"]:
            ending = "The chosen set came to rest"
        said = (
            f"{ending} after {attrs['iterations']:,} iterations, at {result.of_optimum:.2%} of the "
            "model's optimum."
        )
        if "residual_u" in history:
            u, w = history["residual_u"][-1], history["residual_w"][-1]
            said += f" Primal residuals at the end: {u:.3g} and {w:.3g}."
    return Picture(
        slug,
        title,
        said,
        f"Line charts over {steps:,} iterations: {', '.join(panel.title for panel in panels)}.",
        partial(drawing.draw_convergence, panels=panels),
        height=0.8 + 1.1 * max(len(panels), 2),
    )


def _panels(result: Result) -> list[Panel]:
    """Chart what the solver noted at each iteration."""
    history, panels = result.history, []
    if "objective" in history:
        lines = [("objective", history["objective"], ACCENT)]
        optimum = float(result.attrs["optimum"])
        panels.append(Panel("objective (dotted: optimum)", lines, optimum))
    elif "solver_objective" in history:
        lines = [("", history["solver_objective"], ACCENT)]
        panels.append(Panel("what the solver maximises", lines))
    if "residual_u" in history:
        lines = [
            ("V \N{MINUS SIGN} U", history["residual_u"], ACCENT),
            ("V \N{MINUS SIGN} W", history["residual_w"], SECOND),
        ]
        panels.append(Panel("primal residuals", lines, logarithmic=True))
    if "rows_changed" in history:
        lines = [("", history["rows_changed"], MUTED)]
        panels.append(Panel("features exchanged per iteration", lines))
    return panels


def of_results(results: list[Result]) -> list[Picture]:
    """The figures that compare results of tables with equally many features."""
    p = len(results[0].every_score)
    if any(len(result.every_score) != p for result in results):
        return []
    return [
        Picture(
            "places",
            "Where the choices lie",
            f"Each mark is a chosen feature, at its place among the {p:,} of the table.",
            f"One row of marks for each of {len(results)} results.",
            partial(drawing.draw_places, results=results),
            height=1.0 + 0.3 * len(results),
        )
    ]


def of_trials(trials: Trials) -> list[Picture]:
    pictures = []
    for column, (title, caption) in SWEPT.items():
        ends = "; ".join(
            f"k = {k}, {solver}: {curve[column].iat[-1]:.3f} at h = {curve['h'].iat[-1]}"
            for (k, solver), curve in trials.curves.items()
        )
        pictures.append(
            Picture(
                f"sweep-{column.replace('_', '-')}",
                title,
                caption,
                f"Line chart over h, a curve for each k and solver, which ends at {ends}.",
                partial(drawing.draw_curves, trials=trials, column=column),
                height=3.3,
            )
        )
    return pictures

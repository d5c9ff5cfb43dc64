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


@dataclass(frozen=True)
class Picture:
    """A figure of a report.

    Attributes
    ----------
    slug : its kind, for names of files and styles.
    caption : what it shows, and what to see in it; or why it cannot be drawn.
    alt : the same for whoever cannot see it.
    draw : draws it on an empty figure; None where there is nothing to draw.
    height : in inches; all are ``WIDTH`` wide.
    """

    slug: str
    title: str
    caption: str
    alt: str
    draw: Callable[[FigureBase], None] | None
    height: float = 2.9


def of_result(result: Result) -> list[Picture]:
    """The figures of one result."""
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
    said = (
        f"The leading k = {k} components hold {share:.1%} of the variance of "
        f"{result.usable:,} standardised features; {known}{above:,} stand above the noise edge "
        f"{result.edge:.3g}, where independent features would end."
    )
    return Picture(
        "spectrum",
        "Spectrum",
        said,
        f"Eigenvalues of the correlation matrix from {values[0]:.3g} down to "
        f"{values[-1]:.3g}, the first {k} marked. {said}",
        partial(drawing.draw_spectrum, result=result, k=k),
    )


def _scores(result: Result) -> Picture:
    scores, h = result.every_score, len(result.selected)
    falling = np.sort(scores[~np.isnan(scores)])[::-1]
    cutoff = falling[h - 1]
    best = int((result.scores >= cutoff).sum())
    said = (
        f"Score: the share of a feature's variance that the {result.attrs['k']} components "
        f"explain. Chosen: {result.scores.min():.3f} to {result.scores.max():.3f}; {best:,} of "
        f"{h:,} are among the {h:,} highest of all (above the line at {cutoff:.3f})."
    )
    return Picture(
        "scores",
        "Score of every feature",
        said,
        f"Scores of {len(falling):,} features by their place in the table, the {h:,} chosen ones "
        f"marked. {said}",
        partial(drawing.draw_scores, result=result, cutoff=float(cutoff)),
    )


def _redundancy(found: Redundancy | None) -> Picture:
    if found is None:
        return Picture(
            "redundancy",
            "Redundancy",
            "Not drawn: this result was written by a version that did not keep the correlations of "
            "the chosen features. Select again to have them.",
            "",
            None,
        )
    shown = len(found.correlation)
    best = f"the best {shown:,}" if shown < found.of else "the chosen"
    said = (
        f"Correlations of {best} features, similar ones side by side. Mean absolute correlation "
        f"{found.mean:.3f}; {found.of:,} features are worth {found.effective_rank:.1f} "
        f"uncorrelated ones; {found.copies:,} pairs correlate by more than {COPIES:g}."
    )
    return Picture(
        "redundancy",
        "Redundancy",
        said,
        f"Map of the correlations of {shown:,} chosen features. {said}",
        partial(drawing.draw_redundancy, correlation=found.correlation, names=found.names),
        height=4.0,
    )


def _view(view: View | None, k: int, transforms: str) -> Picture:
    if view is None:
        return Picture(
            "view",
            "Samples on the chosen features",
            "Not drawn: this result holds no data, or too few. A selection that was written "
            "with its columns holds them.",
            "",
            None,
        )
    shown = len(view.points)
    which = f"{shown:,} of {view.of:,} samples" if shown < view.of else f"All {shown:,} samples"
    stored = f", as stored (before {transforms})" if transforms else ""
    said = (
        f"{which} on the two leading components of the chosen features, standardised{stored}: "
        f"{sum(view.shares):.0%} of their variance. Colours and numbers: K-means with k = {k} on "
        "all of the chosen features."
    )
    return Picture(
        "view",
        "Samples on the chosen features",
        said,
        f"Scatter plot. {said} The largest cluster holds "
        f"{np.bincount(view.clusters).max() / shown:.0%} of these samples.",
        partial(drawing.draw_view, view=view),
        height=4.0,
    )


def _convergence(result: Result) -> Picture:
    attrs, history = result.attrs, result.history
    if not history:
        return Picture(
            "convergence",
            "Convergence",
            f"Nothing to draw: solver {attrs['solver']} has a closed form and takes no iterations.",
            "",
            None,
        )
    steps = len(next(iter(history.values())))
    how = (
        "The chosen set came to rest"
        if attrs["converged"]
        else "NOT CONVERGED: the chosen set was still changing"
    )
    if result.greedy:
        said = (
            f"{steps:,} steps, a feature each; what the solver maximises ends at "
            f"{attrs['solver_objective']:.4g}."
        )
    else:
        said = (
            f"{how} after {attrs['iterations']:,} iterations, at {result.of_optimum:.2%} of the "
            "model's optimum."
        )
        if "residual_u" in history:
            said += (
                f" Primal residuals at the end: {history['residual_u'][-1]:.3g} and "
                f"{history['residual_w'][-1]:.3g}."
            )
    panels = _panels(result)
    names = ", ".join(title for title, *_ in panels)
    return Picture(
        "convergence",
        "Convergence",
        said,
        f"Line charts over {steps:,} iterations: {names}. {said}",
        partial(drawing.draw_convergence, panels=panels),
        height=0.8 + 1.1 * max(len(panels), 2),
    )


def _panels(result: Result) -> list[Panel]:
    """What there is to see of the solver's path."""
    history, attrs = result.history, result.attrs
    panels: list[Panel] = []
    if "objective" in history:
        lines = [("objective", history["objective"], ACCENT)]
        panels.append(("objective (dotted: optimum)", lines, float(attrs["optimum"]), False))
    elif "solver_objective" in history:
        lines = [("", history["solver_objective"], ACCENT)]
        panels.append(("what the solver maximises", lines, None, False))
    if "residual_u" in history:
        lines = [
            ("V \N{MINUS SIGN} U", history["residual_u"], ACCENT),
            ("V \N{MINUS SIGN} W", history["residual_w"], SECOND),
        ]
        panels.append(("primal residuals", lines, None, True))
    if "rows_changed" in history:
        lines = [("", history["rows_changed"], MUTED)]
        panels.append(("features exchanged per iteration", lines, None, False))
    return panels


def of_results(results: list[Result]) -> list[Picture]:
    """The figures that compare results."""
    if len({len(result.every_score) for result in results}) > 1:
        return []
    said = (
        f"Each mark is a chosen feature, at its place among the "
        f"{len(results[0].every_score):,} of the table."
    )
    return [
        Picture(
            "places",
            "Where the choices lie",
            said,
            f"One row of marks for each of {len(results)} results. {said}",
            partial(drawing.draw_places, results=results),
            height=1.0 + 0.3 * len(results),
        )
    ]


def of_trials(trials: Trials) -> list[Picture]:
    """The figures of a sweep."""
    kinds = {
        "explained": ("Explained", "How much of the k leading components, the relaxed cluster "
                      "indicators, the h chosen features span. k clusters make k - 1 of them and "
                      "leave the k-th to noise: about 1/k less than 1 is then no loss. To be "
                      "compared along h: each k has its own components, and css maximises it. "
                      "Rings: the knee of a curve."),
        "of_optimum": ("Objective", "The objective as a share of the largest that any h features "
                       "have."),
        "mean_correlation": ("Redundancy", "Mean absolute correlation of two chosen features: "
                             "lower is less repetition."),
    }  # fmt: skip
    return [
        Picture(
            f"sweep-{column.replace('_', '-')}",
            title,
            caption,
            f"Line chart over h, a curve for each k and solver. {caption} "
            + "; ".join(
                f"k = {k}, {solver}: {curve[column].iat[-1]:.3f} at h = {curve['h'].iat[-1]}"
                for (k, solver), curve in trials.curves.items()
            ),
            partial(drawing.draw_curves, trials=trials, column=column),
            height=3.3,
        )
        for column, (title, caption) in kinds.items()
    ]

"""The figures of a report: in words what each shows, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.ticker import MaxNLocator

from kmufs_stream.reporting.content import Redundancy, Result, Trials, View
from kmufs_stream.results.measures import COPIES

POINTS = 1500  # more are drawn as an image
NAMED, NAME = 40, 28  # features of a map that are named, at most, and letters of a name
CURVES = 24  # of a sweep that have a legend, at most
STEPS = 50  # of a solver that are marked, at most
DASHES, MARKERS = ("-", "--", ":", "-."), "osD^vP*X"
ABOVE: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1)}  # where a legend stands
OTHERS = "0.6"  # grey of what is not chosen
HISTORY = {
    "objective": "objective (dotted: optimum)",
    "solver_objective": "what the solver maximises",
    "residual_u": "primal residual V \N{MINUS SIGN} U",
    "residual_w": "primal residual V \N{MINUS SIGN} W",
    "rows_changed": "features exchanged per iteration",
}
"""What solvers note at each iteration."""
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
    slug: str  # its kind, for names of files
    title: str
    caption: str
    draw: Callable[[FigureBase], None]


def of_result(result: Result) -> list[Picture]:
    """The figures of a result, as far as it holds what they show."""
    pictures = [_spectrum(result), _scores(result)]
    if result.redundancy is not None:
        pictures.append(_redundancy(result.redundancy))
    if result.view is not None:
        pictures.append(_view(result.view, result.attrs["k"], result.attrs["transforms"]))
    if result.history:
        pictures.append(_convergence(result))
    return pictures


def _spectrum(result: Result) -> Picture:
    values, edge, k = result.eigenvalues, result.edge, int(result.attrs["k"])
    share = values[:k].sum() / result.usable
    above = int((values > edge).sum())
    known = "at least " if above == len(values) else ""

    def draw(figure: FigureBase) -> None:
        axes, place = figure.subplots(), np.arange(1, len(values) + 1)
        axes.plot(place, values, ".-", color=OTHERS)
        axes.plot(place[:k], values[:k], "o", ms=4.5)
        axes.axvline(k + 0.5, ls="--", label=f"k = {k}")
        axes.axhline(edge, color="C1", ls=":", label="noise edge")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set(xlabel="component", ylabel="eigenvalue")
        if values[0] > 30 * values[-1]:
            _logarithmic(axes)
        axes.legend()

    return Picture(
        "spectrum",
        "Spectrum",
        f"Eigenvalues of the correlation matrix, from {values[0]:.3g} down to {values[-1]:.3g}. "
        f"The leading k = {k} components hold {share:.1%} of the variance of "
        f"{result.usable:,} standardised features; {known}{above:,} stand above the noise edge "
        f"{edge:.3g}, where independent features would end.",
        draw,
    )


def _scores(result: Result) -> Picture:
    scores, h = result.every_score, len(result.selected)
    falling = np.sort(scores[~np.isnan(scores)])[::-1]
    cutoff = falling[h - 1]
    best = int((result.scores >= cutoff).sum())

    def draw(figure: FigureBase) -> None:
        axes, image = figure.subplots(), len(scores) > POINTS
        axes.plot(scores, ".", color=OTHERS, label="not chosen", rasterized=image)
        axes.plot(result.selected, result.scores, "o", ms=4, label="chosen", rasterized=image)
        axes.axhline(cutoff, color="C1", ls=":")
        axes.set(xlabel="feature, by its place in the table", ylabel="score")
        axes.set_ylim(bottom=0)
        axes.legend(**ABOVE, ncols=2)

    return Picture(
        "scores",
        "Score of every feature",
        f"Score: the share of a feature's variance that the {result.attrs['k']} components "
        f"explain. Chosen: {result.scores.min():.3f} to {result.scores.max():.3f}; {best:,} of "
        f"{h:,} are among the {h:,} highest of all (above the line at {cutoff:.3f}).",
        draw,
    )


def _redundancy(found: Redundancy) -> Picture:
    shown = len(found.correlation)

    def draw(figure: FigureBase) -> None:
        axes = figure.subplots()
        image = axes.imshow(found.correlation, "RdBu", vmin=-1, vmax=1, interpolation="none")
        axes.grid(visible=False)
        axes.set(xticks=[], yticks=[])
        if shown <= NAMED:
            names = [shortened(name, NAME) for name in found.names]
            axes.set_yticks(range(shown), names, fontsize=min(7.5, 200 / shown))
        figure.colorbar(image, ax=axes, label="r", ticks=[-1, 0, 1], shrink=0.6)

    best = f"the best {shown:,}" if shown < found.of else "the chosen"
    return Picture(
        "redundancy",
        "Redundancy",
        f"Correlations of {best} features, similar ones side by side. Mean absolute correlation "
        f"{found.mean:.3f}; {found.of:,} features are worth {found.effective_rank:.1f} "
        f"uncorrelated ones; {found.copies:,} pairs correlate by more than {COPIES:g}.",
        draw,
    )


def _view(view: View, k: int, transforms: str) -> Picture:
    def draw(figure: FigureBase) -> None:
        axes = figure.subplots()
        for cluster in range(view.clusters.max() + 1):
            points = view.points[view.clusters == cluster]
            marker = MARKERS[cluster // 10 % len(MARKERS)]
            axes.plot(*points.T, marker, ms=2.5, alpha=0.7, rasterized=True)
            place = np.median(points, axis=0)
            frame = {"boxstyle": "circle", "facecolor": "white", "edgecolor": OTHERS}
            axes.annotate(str(cluster + 1), place, ha="center", va="center", bbox=frame)
        first, second = view.shares
        axes.set(xlabel=f"component 1 ({first:.0%})", ylabel=f"component 2 ({second:.0%})")

    shown = len(view.points)
    which = f"{shown:,} of {view.of:,} samples" if shown < view.of else f"All {shown:,} samples"
    stored = f", as stored (before {transforms})" if transforms else ""
    largest = np.bincount(view.clusters).max() / shown
    return Picture(
        "view",
        "Samples on the chosen features",
        f"{which} on the two leading components of the chosen features, standardised{stored}: "
        f"{sum(view.shares):.0%} of their variance. Colours and numbers: K-means with k = {k} on "
        f"all of the chosen features; the largest cluster holds {largest:.0%} of these samples.",
        draw,
    )


def _convergence(result: Result) -> Picture:
    attrs, history = result.attrs, result.history

    def draw(figure: FigureBase) -> None:
        every = figure.subplots(len(history), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, values) in zip(every, history.items(), strict=True):
            axes.plot(np.arange(1, len(values) + 1), values, ".-" if len(values) < STEPS else "-")
            axes.set_title(HISTORY.get(name, name))
            if name == "objective":
                axes.axhline(float(attrs["optimum"]), color="C1", ls=":")
            if name.startswith("residual") and (values > 0).all():
                _logarithmic(axes)
        every[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        every[-1].set_xlabel("iteration")

    said = (
        f"{'Came' if attrs['converged'] else 'NOT CONVERGED: had not come'} to rest after "
        f"{attrs['iterations']:,} iterations, at {result.of_optimum:.2%} of the model's optimum."
    )
    if result.greedy:
        said = (
            f"{attrs['iterations']:,} steps, a feature each; what the solver maximises ends at "
            f"{attrs['solver_objective']:.4g}."
        )
    if "residual_u" in history:
        u, w = history["residual_u"][-1], history["residual_w"][-1]
        said += f" Primal residuals at the end: {u:.3g} and {w:.3g}."
    return Picture("convergence", "Convergence", said, draw)


def of_results(results: list[Result]) -> list[Picture]:
    """The figures that compare results of tables with equally many features."""
    p = len(results[0].every_score)
    if any(len(result.every_score) != p for result in results):
        return []

    def draw(figure: FigureBase) -> None:
        axes = figure.subplots()
        axes.eventplot([result.selected for result in results], linelengths=0.7, linewidths=0.9)
        axes.set_yticks(range(len(results)), [shortened(result.name, NAME) for result in results])
        axes.set(xlim=(-1, p), xlabel="feature, by its place in the table")
        axes.invert_yaxis()

    caption = f"Each mark is a chosen feature, at its place among the {p:,} of the table."
    return [Picture("places", "Where the choices lie", caption, draw)]


def of_trials(trials: Trials) -> list[Picture]:
    """The figures of a sweep: curves over h, with a hue per solver and dashes per k."""
    solvers = list(dict.fromkeys(solver for _, solver in trials.curves))
    ks = sorted({k for k, _ in trials.curves})

    def draw(figure: FigureBase, column: str) -> None:
        axes = figure.subplots()
        for (k, solver), curve in trials.curves.items():
            hue, dash = f"C{solvers.index(solver) % 10}", DASHES[ks.index(k) % len(DASHES)]
            x, y = curve["h"].to_numpy(), curve[column].to_numpy()
            axes.plot(x, y, color=hue, ls=dash, marker=".", label=f"{solver}, k = {k}")
            knee = trials.knees[k, solver]
            if column == "explained" and knee is not None:
                axes.plot(knee, y[x == knee][0], "o", ms=9, mfc="none", mec=hue)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set(xlabel="h, chosen features", ylabel=column.replace("_", " "))
        if len(trials.curves) <= CURVES:
            axes.legend(**ABOVE, ncols=2, handlelength=4)  # shows how lines are dashed

    return [
        Picture(f"sweep-{column.replace('_', '-')}", *words, partial(draw, column=column))
        for column, words in SWEPT.items()
    ]


def _logarithmic(axes: Axes) -> None:
    """Use a logarithmic scale, with numbers that are no formulas."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")


def shortened(text: str, letters: int) -> str:
    """Leave out the middle of a long text."""
    half = (letters - 1) // 2
    return text if len(text) <= letters else f"{text[:half]}\N{HORIZONTAL ELLIPSIS}{text[-half:]}"

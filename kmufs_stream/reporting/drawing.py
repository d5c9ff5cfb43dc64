"""Draw the figures of a report with matplotlib."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import FigureBase
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from kmufs_stream.reporting.content import Redundancy, Result, Trials, View
from kmufs_stream.typing import Array, Float, Int

INK, MUTED, LINE, PAPER = "#1d2733", "#64707f", "#d9dee5", "#ffffff"
ACCENT, SECOND = "#0b7a8f", "#c4571f"
HUES = (ACCENT, SECOND, "#6a5acd", "#5b8a1e", "#b83a72", "#3f7fd1", "#a8812a", "#2f9e77")
MARKERS = "osD^vP*X"
DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
# Hue by sign, opacity by strength: legible on light and on dark.
SIGNED = [(0.0, SECOND), (0.5, f"{SECOND}00"), (0.5, f"{ACCENT}00"), (1.0, ACCENT)]
WIDTH = 4.4  # inches of a figure
POINTS = 1500  # more are drawn as an image
BADGE = (0.05, 0.06)  # share of the width and height that a cluster's number takes
NAMED, NAME = 40, 28  # features of a map that are named, at most, and letters of a name
STEMS = 60  # components drawn one by one, at most
SETTINGS: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": MUTED,
    "axes.titlelocation": "left",
    "axes.titlesize": 8.5,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "font.size": 8.5,
    "grid.alpha": 0.6,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "legend.borderaxespad": 0,
    "legend.frameon": False,
    "text.color": INK,
    "text.parse_math": False,  # a label may hold a $
    "xtick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.color": LINE,
    "ytick.labelcolor": MUTED,
}


class Panel(NamedTuple):
    """One of the charts over the iterations."""

    title: str
    lines: list[tuple[str, Array, str]]  # name, values, colour
    across: float | None = None  # where a dotted line lies
    logarithmic: bool = False


def draw_spectrum(figure: FigureBase, *, result: Result, k: int) -> None:
    axes, values = figure.subplots(), result.eigenvalues
    place = np.arange(1, len(values) + 1)
    for part, colour in ((slice(0, k), ACCENT), (slice(k, None), MUTED)):
        if len(values) <= STEMS:
            axes.plot(place[part], values[part], "o", color=colour, ms=4.5)
        elif len(values[part]):
            axes.plot(place[part], values[part], color=colour, lw=2)
    axes.plot(place, values, color=LINE, lw=1, zorder=0)
    positive = values[values > 0]
    if len(positive) and positive[0] > 30 * positive[-1]:
        _logarithmic(axes)
    axes.axvline(k + 0.5, color=ACCENT, lw=1, ls=(0, (4, 3)))
    axes.annotate(
        f"k = {k}", (k + 0.5, 1), (4, -2), xycoords=("data", "axes fraction"),
        textcoords="offset points", va="top", color=ACCENT, weight="bold",
    )  # fmt: skip
    axes.axhline(result.edge, color=SECOND, lw=1, ls=":")
    axes.annotate(
        "noise edge", (1, result.edge), (0, 2), xycoords=("axes fraction", "data"),
        textcoords="offset points", ha="right", va="bottom", color=SECOND,
    )  # fmt: skip
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(0.4, len(values) + 0.6)
    _name_axes(axes, "component", "eigenvalue")


def draw_scores(figure: FigureBase, *, result: Result, cutoff: float) -> None:
    axes, scores = figure.subplots(), result.every_score
    others = ~np.isnan(scores)
    others[result.selected] = False
    size = 7 if len(scores) <= POINTS else 2.5
    for where, colour, area, label in (
        (np.flatnonzero(others), f"{MUTED}73", size, "not chosen"),
        (result.selected, ACCENT, 7, "chosen"),
    ):
        many = len(where) > POINTS
        axes.scatter(where, scores[where], area, colour, linewidths=0, rasterized=many, label=label)
    axes.axhline(cutoff, color=SECOND, lw=1, ls=":")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.01)
    _name_axes(axes, "feature, by its place in the table", "score")
    _add_legend(axes, 2)


def draw_redundancy(figure: FigureBase, *, found: Redundancy) -> None:
    """Draw a map of correlations, with the features' names if there is room."""
    axes, h = figure.subplots(), len(found.correlation)
    colours = LinearSegmentedColormap.from_list("signed", SIGNED)
    image = axes.imshow(found.correlation, colours, vmin=-1, vmax=1, interpolation="none")
    axes.set_xticks([])
    axes.set_yticks([])
    if h <= NAMED:
        axes.set_yticks(range(h), told_apart(found.names), fontsize=min(7.5, 200 / h))
        axes.tick_params(axis="y", length=0)
    bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.02, aspect=30, ticks=[-1, 0, 1])
    bar.ax.set_title("r", loc="center")
    axes.spines[:].set_visible(True)


def draw_view(figure: FigureBase, *, view: View) -> None:
    """Draw rows on two components, coloured by cluster, with the clusters' numbers."""
    axes = figure.subplots()
    for cluster in range(view.clusters.max() + 1):
        x, y = view.points[view.clusters == cluster].T
        hue, marker = HUES[cluster % len(HUES)], MARKERS[cluster // len(HUES) % len(MARKERS)]
        axes.scatter(x, y, s=9, color=hue, marker=marker, alpha=0.7, linewidths=0, rasterized=True)
    for cluster, place in enumerate(apart(view.points, view.clusters)):
        axes.annotate(
            str(cluster + 1), place, ha="center", va="center", weight="bold", color=INK,
            bbox={"boxstyle": "circle,pad=0.25", "facecolor": PAPER, "edgecolor": LINE},
        )  # fmt: skip
    first, second = view.shares
    _name_axes(axes, f"component 1 ({first:.0%})", f"component 2 ({second:.0%})")


def apart(points: Float, clusters: Int) -> list[tuple[float, float]]:
    """Place each cluster's number near the cluster's middle, where no other number stands."""
    room = BADGE * np.ptp(points, axis=0)
    placed: list[tuple[float, float]] = []
    for cluster in range(clusters.max() + 1):
        own = points[clusters == cluster]
        middle = np.median(own, axis=0)
        nearest = own[np.argsort(((own - middle) ** 2).sum(axis=1), kind="stable")]
        free = [
            place
            for place in (middle, *nearest[: len(nearest) // 2])
            if all((np.abs(place - other) > room).any() for other in placed)
        ]
        x, y = free[0] if free else middle
        placed.append((float(x), float(y)))
    return placed


def draw_convergence(figure: FigureBase, *, panels: list[Panel]) -> None:
    """Draw panels over the iterations, one below the other."""
    every = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, panel in zip(every, panels, strict=True):
        for name, values, colour in panel.lines:
            axes.plot(np.arange(1, len(values) + 1), values, color=colour, lw=1.4, label=name)
        if panel.across is not None:
            axes.axhline(panel.across, color=SECOND, lw=1, ls=":")
        axes.yaxis.set_major_locator(MaxNLocator(4))
        if panel.logarithmic and all((values > 0).all() for _, values, _ in panel.lines):
            _logarithmic(axes, most=4)
        if len(panel.lines) > 1:
            axes.legend(
                loc="lower right", bbox_to_anchor=(1, 0.98), ncols=2, labelcolor="linecolor",
                handlelength=1,
            )  # fmt: skip
        axes.set_title(panel.title)
        axes.margins(x=0.01)
        _name_axes(axes)
    every[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    every[-1].set_xlabel("iteration")


def draw_places(figure: FigureBase, *, results: list[Result]) -> None:
    """Draw a row of marks per result, where its features stand."""
    axes = figure.subplots()
    for row, result in enumerate(results):
        hue = HUES[row % len(HUES)]
        axes.vlines(result.selected, row - 0.36, row + 0.36, color=hue, lw=0.9)
    axes.set_yticks(range(len(results)), [shortened(result.name, 22) for result in results])
    axes.set_ylim(len(results) - 0.4, -0.6)
    axes.set_xlim(-1, len(results[0].every_score))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("feature, by its place in the table")


def draw_curves(figure: FigureBase, *, trials: Trials, column: str) -> None:
    """Draw a column of a sweep over h: a hue per solver, dashes per k."""
    axes = figure.subplots()
    solvers = list(dict.fromkeys(solver for _, solver in trials.curves))
    ks = sorted({k for k, _ in trials.curves})
    for (k, solver), curve in trials.curves.items():
        hue, dash = HUES[solvers.index(solver) % len(HUES)], DASHES[ks.index(k) % len(DASHES)]
        x, y = curve["h"].to_numpy(), curve[column].to_numpy()
        axes.plot(x, y, color=hue, ls=dash, lw=1.5, marker=".", ms=4, label=f"{solver}, k = {k}")
        knee = trials.knees[k, solver]
        if column == "explained" and knee is not None:
            axes.plot(knee, y[x == knee][0], "o", ms=9, mfc="none", mec=hue)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _name_axes(axes, "h, chosen features", column.replace("_", " "))
    if len(trials.curves) <= 3 * len(HUES):
        _add_legend(axes, 3)


def _logarithmic(axes: Axes, most: int = 8) -> None:
    """Use a logarithmic scale with about ``most`` numbers: two a decade if there is room."""
    axes.set_yscale("log")
    low, high = np.log10(axes.get_ylim())
    subs = (1.0, 3.0) if 2 * (high - low) <= most else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=most))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _name_axes(axes: Axes, x: str = "", y: str = "") -> None:
    axes.set(xlabel=x, ylabel=y)
    axes.grid(axis="y")


def _add_legend(axes: Axes, columns: int) -> None:
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=columns, labelcolor=MUTED,
        handlelength=1.4, columnspacing=1.2, handletextpad=0.5,
    )  # fmt: skip


def told_apart(names: list[str]) -> list[str]:
    """Shorten long names in the middle, but keep them distinct."""
    for letters in range(NAME, max(map(len, names), default=0)):
        short = [shortened(name, letters) for name in names]
        if len(set(short)) == len(set(names)):
            return short
    return names


def shortened(text: str, letters: int) -> str:
    """Leave out the middle of a long text."""
    half = (letters - 1) // 2
    return text if len(text) <= letters else f"{text[:half]}\N{HORIZONTAL ELLIPSIS}{text[-half:]}"

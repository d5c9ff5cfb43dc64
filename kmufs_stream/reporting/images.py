"""Figures as images: SVG that takes its colours and fonts from the page, and PNG."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import matplotlib as mpl
from matplotlib.figure import Figure

from kmufs_stream.reporting.drawing import (
    HUES,
    INK,
    LINE,
    MUTED,
    PAPER,
    SETTINGS,
    WIDTH,
    shortened,
)
from kmufs_stream.reporting.figures import Picture

ROLES = {INK: "ink", MUTED: "muted", LINE: "line", PAPER: "card"} | {
    hue: f"hue-{i}" for i, hue in enumerate(HUES)
}
"""The page's name of each colour; what is drawn as an image keeps the colour itself."""
PNG_DPI = 160
SVG_DPI = 150  # of the parts that are images
WORDLESS = re.compile(r"<metadata>.*?</metadata>|<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->", re.S)
COLOUR = re.compile("|".join(ROLES))


@contextmanager
def _settings() -> Iterator[None]:
    """Drawing by these settings alone, quietly: fonts lack letters that a label may hold."""
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)
        yield


def as_svg(picture: Picture, name: str) -> str:
    """An SVG element for a page; ``name`` keeps its ids apart from those of others."""
    assert picture.draw is not None
    with _settings(), mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure = Figure(figsize=(WIDTH, picture.height), layout="constrained")
        picture.draw(figure)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None}, dpi=SVG_DPI)
    svg = WORDLESS.sub("", stream.getvalue()).strip()
    # Within tags alone: what stands between them is what a figure says.
    return re.sub(r"<[^/][^>]*>", lambda tag: _for_page(tag[0], name), svg)


def _for_page(tag: str, name: str) -> str:
    """A tag with the page's colours, ids of its own, and numbers no longer than needed."""
    if tag.startswith("<svg"):
        return re.sub(r'.*(viewBox="[^"]*").*', r"<svg \1>", tag, flags=re.S)
    tag = re.sub(r'\bid="', f'id="{name}-', tag).replace("xlink:href", "href")
    tag = re.sub(r'(url\(|href=")#', rf"\1#{name}-", tag)
    if tag.startswith(("<path", "<use")):
        tag = re.sub(r"(\.\d\d)\d+", r"\1", tag)
    return COLOUR.sub(lambda colour: f"var(--{ROLES[colour[0]]})", tag)


def as_png(groups: Sequence[tuple[str, Sequence[Picture]]]) -> bytes:
    """One image of some figures, two side by side, each under its title; a group begins a row."""
    rows: list[list[tuple[str, Picture]]] = []
    for heading, pictures in groups:
        drawn = [(heading, picture) for picture in pictures if picture.draw is not None]
        rows += [drawn[i : i + 2] for i in range(0, len(drawn), 2)]
    columns = max(map(len, rows))
    heights = [max(picture.height for _, picture in row) + 0.35 for row in rows]
    with _settings():
        size = (WIDTH * columns, sum(heights))
        figure = Figure(figsize=size, facecolor=PAPER, layout="constrained")
        places = figure.subfigures(len(rows), columns, height_ratios=heights, squeeze=False)
        for i, row in enumerate(rows):
            for place, (heading, picture) in zip(places[i], row, strict=False):
                title = f"{picture.title} \N{MIDDLE DOT} {shortened(heading, 28)}"
                place.suptitle(title, x=0.02, ha="left", weight="bold", size=9.5)
                assert picture.draw is not None
                picture.draw(place)
        stream = io.BytesIO()
        figure.savefig(stream, format="png", dpi=PNG_DPI, metadata={"Software": None})
    return stream.getvalue()

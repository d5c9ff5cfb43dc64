"""Figures as images: SVG that takes its colours and fonts from the page, and PNG."""

from __future__ import annotations

import io
import re
import textwrap
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
LETTERS, LINE_HEIGHT = 80, 0.14  # of a line of a caption in a PNG: how many, and in inches
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
    """One image of some figures, two side by side, each between its title and its caption.

    A group begins a row. What they show is the image's description, for those who cannot see it.
    """
    rows: list[list[tuple[str, Picture]]] = []
    for heading, pictures in groups:
        drawn = [(heading, picture) for picture in pictures if picture.draw is not None]
        rows += [drawn[i : i + 2] for i in range(0, len(drawn), 2)]
    columns = max(map(len, rows))
    captions = {id(p): textwrap.wrap(p.caption, LETTERS) for row in rows for _, p in row}
    heights = [
        max(p.height + LINE_HEIGHT * len(captions[id(p)]) for _, p in row) + 0.45 for row in rows
    ]
    with _settings():
        size = (WIDTH * columns, sum(heights))
        figure = Figure(figsize=size, facecolor=PAPER, layout="constrained")
        places = figure.subfigures(len(rows), columns, height_ratios=heights, squeeze=False)
        for i, row in enumerate(rows):
            for place, (heading, picture) in zip(places[i], row, strict=False):
                title = f"{picture.title} \N{MIDDLE DOT} {shortened(heading, 28)}"
                place.suptitle(title, x=0.02, ha="left", weight="bold", size=9.5)
                caption = "\n".join(captions[id(picture)])
                place.supxlabel(caption, x=0.02, ha="left", fontsize=7, color=MUTED)
                assert picture.draw is not None
                picture.draw(place)
        stream = io.BytesIO()
        said = " ".join(f"{picture.title}: {picture.alt}" for row in rows for _, picture in row)
        metadata = {"Software": None, "Description": said}
        figure.savefig(stream, format="png", dpi=PNG_DPI, metadata=metadata)
    return stream.getvalue()

"""Render figures: as SVG that takes its colours and fonts from the page, and as PNG."""

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
"""The page's name of each colour; the parts of a figure that are images keep their colours."""
PNG_DPI = 160
LETTERS, LINE_HEIGHT = 80, 0.14  # of a line of a caption in a PNG: how many, and in inches
SVG_DPI = 150  # of the parts that are images
WORDLESS = re.compile(r"<metadata>.*?</metadata>|<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->", re.S)
COLOUR = re.compile("|".join(ROLES))


@contextmanager
def _settings() -> Iterator[None]:
    """Ignore the user's settings, and warnings of fonts that lack letters of a label."""
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)
        yield


def as_svg(picture: Picture, name: str) -> str:
    """Return an SVG element for a page, with ids that begin with ``name``."""
    assert picture.draw is not None
    with _settings(), mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure = Figure(figsize=(WIDTH, picture.height), layout="constrained")
        picture.draw(figure)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None}, dpi=SVG_DPI)
    svg = WORDLESS.sub("", stream.getvalue()).strip()
    # Only within tags: the text of the figure stands between them.
    return re.sub(r"<[^/][^>]*>", lambda tag: _for_page(tag[0], name), svg)


def _for_page(tag: str, name: str) -> str:
    """Rewrite a tag with the page's colours, ids of its own, and numbers with two decimals."""
    if tag.startswith("<svg"):
        return re.sub(r'.*(viewBox="[^"]*").*', r"<svg \1>", tag, flags=re.S)
    tag = re.sub(r'\bid="', f'id="{name}-', tag).replace("xlink:href", "href")
    tag = re.sub(r'(url\(|href=")#', rf"\1#{name}-", tag)
    if tag.startswith(("<path", "<use")):
        tag = re.sub(r"(\.\d\d)\d+", r"\1", tag)
    return COLOUR.sub(lambda colour: f"var(--{ROLES[colour[0]]})", tag)


def as_png(groups: Sequence[tuple[str, Sequence[Picture]]]) -> bytes:
    """Return one image of some figures, two side by side, each between its title and caption.

    Each group begins a row. The image's description tells what they show.
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
        said = " ".join(f"{p.title}: {p.description}" for row in rows for _, p in row)
        metadata = {"Software": None, "Description": said}
        figure.savefig(stream, format="png", dpi=PNG_DPI, metadata=metadata)
    return stream.getvalue()

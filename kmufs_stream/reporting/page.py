"""The page that a template is filled with, and its figures as SVG and PNG."""

from __future__ import annotations

import base64
import io
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jinja2
import matplotlib as mpl
from matplotlib.figure import Figure

from kmufs_stream.errors import counted
from kmufs_stream.events import Advanced, Progress
from kmufs_stream.reporting import figures
from kmufs_stream.reporting.content import Result, Trials, overlap
from kmufs_stream.reporting.figures import Picture, shortened
from kmufs_stream.storage.provenance import TRUTHS, described
from kmufs_stream.version import __version__

SIZE = (4.6, 3.8)  # inches of a figure
CAPTION = 0.9  # inches of its title and caption in a PNG
LETTERS, HEADING = 80, 28  # of a line of a caption, and of a result's name in a PNG
PNG_DPI, SVG_DPI = 160, 150  # of the images, and of those within an SVG
SETTINGS: Any = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": "medium",
    "figure.constrained_layout.use": True,
    "font.size": 8.5,
    "grid.alpha": 0.3,
    "legend.fontsize": "small",
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "kmufs-stream",  # the same figure is the same bit for bit
    "text.parse_math": False,  # a label may hold a $
}
TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("kmufs_stream.reporting"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


class Page:
    """What a report shows: figures in groups, each with a heading; nothing is drawn yet."""

    def __init__(self, contents: Sequence[Result | Trials]) -> None:
        results = [content for content in contents if isinstance(content, Result)]
        sweeps = [content for content in contents if isinstance(content, Trials)]
        several = len(results) > 1
        self.compared = figures.of_results(results) if several else []
        self.agreement = overlap(results) if several else None
        self.results = [(result, figures.of_result(result)) for result in results]
        self.sweeps = [(trials, figures.of_trials(trials)) for trials in sweeps]

    @property
    def pictures(self) -> list[tuple[str, Picture]]:
        """All figures in order, each with its heading."""
        each: list[tuple[Result | Trials, list[Picture]]] = [*self.results, *self.sweeps]
        named = [("side by side", self.compared), *((of.name, pictures) for of, pictures in each)]
        return [(heading, picture) for heading, pictures in named for picture in pictures]

    def html(self, command: str | None, progress: Progress) -> str:
        """Return the page as one document without outside references."""

        def svg(picture: Picture) -> str:
            progress(Advanced(1))
            return _svg(picture)

        return TEMPLATES.get_template("page.html").render(
            **vars(self),
            title=self._title(),
            command=command,
            version=__version__,
            svg=svg,
            facts=_facts,
        )

    def images(self, out: Path) -> dict[Path, bytes]:
        """Return all figures as one PNG file, or as one each in a folder, which is made."""
        if out.suffix.lower() == ".png":
            return {out: _png(self.pictures)}
        out.mkdir(parents=True, exist_ok=True)
        return {
            out / f"{number:02d}-{picture.slug}.png": _png([(heading, picture)])
            for number, (heading, picture) in enumerate(self.pictures, 1)
        }

    def _title(self) -> str:
        if len(self.results) == 1 and not self.sweeps:
            return self.results[0][0].name
        numbers = {"selections": len(self.results), "sweeps": len(self.sweeps)}
        return " and ".join(counted(number, things) for things, number in numbers.items() if number)


def _facts(result: Result) -> list[tuple[str, str]]:
    """Provenance: what the result was made from, with which options, and the outcome."""
    attrs, every = dict(result.attrs), list(result.attrs)
    attrs |= {name: bool(attrs[name]) for name in TRUTHS & attrs.keys()}
    ours = every[every.index("k") :]
    return described({name: attrs[name] for name in ours if name != "command"})


@contextmanager
def _settings() -> Iterator[None]:
    """Ignore the user's settings, and warnings of fonts that lack letters of a label."""
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)
        yield


def _svg(picture: Picture) -> str:
    """Draw a figure as SVG, in base64."""
    stream = io.BytesIO()
    with _settings():
        figure = Figure(figsize=SIZE)
        picture.draw(figure)
        figure.savefig(stream, format="svg", metadata={"Date": None}, dpi=SVG_DPI)
    return base64.b64encode(stream.getvalue()).decode()


def _png(pictures: Sequence[tuple[str, Picture]]) -> bytes:
    """Draw figures as one image, two side by side, each between its title and its caption.

    The image's description tells what they show.
    """
    columns = min(len(pictures), 2)
    rows = -(-len(pictures) // columns)
    width, height = SIZE
    stream = io.BytesIO()
    with _settings():
        figure = Figure(figsize=(width * columns, (height + CAPTION) * rows))
        places = figure.subfigures(rows, columns, squeeze=False).flat
        for place, (heading, picture) in zip(places, pictures, strict=False):
            title = f"{picture.title} \N{MIDDLE DOT} {shortened(heading, HEADING)}"
            place.suptitle(title, x=0.02, ha="left", weight="bold")
            place.supxlabel(textwrap.fill(picture.caption, LETTERS), x=0.02, ha="left", size=7)
            picture.draw(place)
        said = " ".join(f"{picture.title}: {picture.caption}" for _, picture in pictures)
        metadata = {"Software": None, "Description": said}
        figure.savefig(stream, format="png", dpi=PNG_DPI, metadata=metadata)
    return stream.getvalue()

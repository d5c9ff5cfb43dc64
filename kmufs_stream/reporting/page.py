"""The page: what its template is filled with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup

from kmufs_stream.errors import counted
from kmufs_stream.events import Advanced, Progress
from kmufs_stream.reporting import figures, images
from kmufs_stream.reporting.content import Result, Trials, overlap
from kmufs_stream.reporting.figures import Picture
from kmufs_stream.storage.provenance import TRUTHS, described
from kmufs_stream.version import __version__

AT_ONCE = 12  # chosen features that are listed before one asks for more
LISTED = 300  # at most
IDENTITY = ("source", "variable", "fingerprint", "created", "version", "format", "format_version")
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
        self.results = [content for content in contents if isinstance(content, Result)]
        self.sweeps = [content for content in contents if isinstance(content, Trials)]
        self.several = len(self.results) > 1
        self.groups: list[tuple[str, list[Picture]]] = [
            ("side by side", figures.of_results(self.results) if self.several else []),
            *((result.name, figures.of_result(result)) for result in self.results),
            *((trials.name, figures.of_trials(trials)) for trials in self.sweeps),
        ]

    @property
    def pictures(self) -> list[tuple[str, str, Picture]]:
        """All figures in order, each with a name of its own and its heading."""
        every = [(heading, picture) for heading, group in self.groups for picture in group]
        return [(f"{i:02d}-{p.slug}", heading, p) for i, (heading, p) in enumerate(every, 1)]

    def html(self, command: str | None, progress: Progress) -> str:
        """Return the page as one document without outside references."""
        names = {id(picture): name for name, _, picture in self.pictures}

        def svg(picture: Picture) -> Markup | None:
            drawn = None
            if picture.draw is not None:
                drawn = Markup(images.as_svg(picture, f"f{names[id(picture)]}"))
            progress(Advanced(1))
            return drawn

        compared, *each = [pictures for _, pictures in self.groups]
        r = len(self.results)
        return TEMPLATES.get_template("page.html").render(
            title=self._title(),
            command=command,
            version=__version__,
            compared=compared,
            agreement=overlap(self.results) if self.several else None,
            results=list(zip(self.results, each[:r], strict=True)),
            sweeps=list(zip(self.sweeps, each[r:], strict=True)),
            svg=svg,
            facts=_facts,
            at_once=AT_ONCE,
            listed=LISTED,
        )

    def images(self, out: Path) -> dict[Path, bytes]:
        """Return all figures as one PNG file, or as one each in a folder, which is made."""
        if out.suffix.lower() == ".png":
            return {out: images.as_png(self.groups)}
        out.mkdir(parents=True, exist_ok=True)
        return {
            out / f"{name}.png": images.as_png([(heading, [picture])])
            for name, heading, picture in self.pictures
            if picture.draw is not None
        }

    def _title(self) -> str:
        if len(self.results) == 1 and not self.sweeps:
            return self.results[0].name
        numbers = {"selections": len(self.results), "sweeps": len(self.sweeps)}
        return " and ".join(counted(number, things) for things, number in numbers.items() if number)


def _facts(result: Result) -> dict[str, list[tuple[str, str]]]:
    """Provenance: what the result was made from, with which options, and the outcome."""
    attrs, every = dict(result.attrs), list(result.attrs)
    attrs |= {name: bool(attrs[name]) for name in TRUTHS & attrs.keys()}
    ours = [name for name in every[every.index("k") :] if name not in (*IDENTITY, "command")]
    return {
        "Origin": described({name: attrs.get(name) for name in IDENTITY}),
        "Options and outcome": described({name: attrs[name] for name in ours}),
    }

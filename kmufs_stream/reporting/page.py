"""The page: what its template is filled with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
import numpy as np

from kmufs_stream.events import Advanced, Progress
from kmufs_stream.reporting import figures, images
from kmufs_stream.reporting.content import Overlap, Result, Trials, overlap
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


@dataclass(frozen=True)
class Page:
    """All that a report shows.

    Attributes
    ----------
    compared, of_results, of_sweeps : figures of the comparison, of each result, of each sweep.
    agreement : overlap of the results, or None.
    """

    results: list[Result]
    sweeps: list[Trials]
    compared: list[Picture]
    of_results: list[list[Picture]]
    of_sweeps: list[list[Picture]]
    agreement: Overlap | None

    @property
    def groups(self) -> list[tuple[str, list[Picture]]]:
        """All figures in order, under what they are about."""
        contents: list[Result | Trials] = [*self.results, *self.sweeps]
        names = [content.name for content in contents]
        each = zip(names, [*self.of_results, *self.of_sweeps], strict=True)
        return [("side by side", self.compared), *each]

    @property
    def pictures(self) -> list[tuple[str, str, Picture]]:
        """All figures in order, each with a name of its own and what it is about."""
        every = [(heading, picture) for heading, group in self.groups for picture in group]
        return [(f"{i:02d}-{p.slug}", heading, p) for i, (heading, p) in enumerate(every, 1)]

    def html(self, command: str | None, progress: Progress) -> str:
        """The page as one document without outside references."""
        names = {id(picture): name for name, _, picture in self.pictures}

        def drawn(picture: Picture) -> str | None:
            svg = None
            if picture.draw is not None:
                svg = images.as_svg(picture, f"f{names[id(picture)]}")
            progress(Advanced(1))
            return svg

        def shown(pictures: list[Picture]) -> list[dict[str, Any]]:
            return [
                {"picture": picture, "name": names[id(picture)], "svg": drawn(picture)}
                for picture in pictures
            ]

        return TEMPLATES.get_template("page.html").render(
            title=self._title(),
            command=command,
            version=__version__,
            compared=shown(self.compared),
            agreement=self.agreement,
            results=[
                {
                    "result": result,
                    "figures": shown(pictures),
                    "features": _features(result),
                    "facts": _facts(result),
                }
                for result, pictures in zip(self.results, self.of_results, strict=True)
            ],
            sweeps=[
                {"trials": trials, "figures": shown(pictures), "rows": _rows(trials)}
                for trials, pictures in zip(self.sweeps, self.of_sweeps, strict=True)
            ],
            at_once=AT_ONCE,
            listed=LISTED,
        )

    def _title(self) -> str:
        if len(self.results) == 1 and not self.sweeps:
            return self.results[0].name
        parts = [
            f"{number} {word}{'s' if number > 1 else ''}"
            for number, word in ((len(self.results), "selection"), (len(self.sweeps), "sweep"))
            if number
        ]
        return " and ".join(parts)


def assemble(contents: Sequence[Result | Trials]) -> Page:
    """Lay out what is to be shown; nothing is drawn yet."""
    results = [content for content in contents if isinstance(content, Result)]
    sweeps = [content for content in contents if isinstance(content, Trials)]
    several = len(results) > 1
    return Page(
        results=results,
        sweeps=sweeps,
        compared=figures.of_results(results) if several else [],
        of_results=[figures.of_result(result) for result in results],
        of_sweeps=[figures.of_trials(trials) for trials in sweeps],
        agreement=overlap(results) if several else None,
    )


def _features(result: Result) -> list[dict[str, Any]]:
    """The chosen features by rank, up to ``LISTED``."""
    return [
        {
            "rank": int(result.ranks[i]),
            "label": None if result.labels is None else result.labels[i],
            "index": int(result.selected[i]),
            "score": float(result.scores[i]),
        }
        for i in np.argsort(result.ranks)[:LISTED]
    ]


def _facts(result: Result) -> dict[str, list[tuple[str, str]]]:
    """Provenance: where the result comes from, and with which options it was made."""
    attrs = dict(result.attrs)
    origin = {name: attrs.pop(name, None) for name in IDENTITY}
    attrs.pop("command", None)
    ours = {
        name: bool(value) if name in TRUTHS else value
        for name, value in list(attrs.items())[list(attrs).index("k") :]
    }
    return {"Origin": described(origin), "Options and outcome": described(ours)}


def _rows(trials: Trials) -> list[dict[str, Any]]:
    return [
        {"k": k, "solver": solver, "knee": trials.knees[k, solver]}
        | {name: curve[name].iloc[-1] for name in ("h", "objective", "optimum", "explained")}
        for (k, solver), curve in trials.curves.items()
    ]

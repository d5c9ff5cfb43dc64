"""A report of selections and sweeps: one HTML page that needs nothing else, and PNG images.

Data go one way: ``content`` reads and sums up, ``figures`` draws, and ``page`` fills the template.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from upath import UPath
from zarr.abc.store import Store

from kmufs_stream.errors import RequestError, missing_library
from kmufs_stream.events import SILENT, Progress, Started
from kmufs_stream.storage.output import check_output, check_two_outputs, new_output
from kmufs_stream.storage.places import PlaceLike, place_of
from kmufs_stream.system.memory import peak_memory
from kmufs_stream.version import __version__

NEEDED = ("matplotlib", "jinja2")


@dataclass(frozen=True)
class Report:
    """What :func:`kmufs_stream.report` wrote.

    Attributes
    ----------
    output : path
        The page.
    images : tuple of path
        The PNG files, in the order of the page.
    results, sweeps : int
        How many of each it shows.
    seconds : float
        Wall-clock seconds.
    peak : int
        Peak resident bytes of the process until all was written.
    """

    output: Path
    images: tuple[Path, ...]
    results: int
    sweeps: int
    seconds: float
    peak: int

    @staticmethod
    def lacking() -> list[str]:
        """Packages that a report needs and that are not installed."""
        return [name for name in NEEDED if find_spec(name) is None]

    def summary(self) -> dict[str, Any]:
        """Return the same in plain JSON types."""
        return {
            "output": str(self.output),
            "bytes": self.output.stat().st_size,
            "images": [str(image) for image in self.images],
            "results": self.results,
            "sweeps": self.sweeps,
            "seconds": {"total": self.seconds},
            "peak_rss_bytes": self.peak,
            "version": __version__,
        }


def report(
    results: PlaceLike | Sequence[PlaceLike],
    *,
    out: str | os.PathLike[str],
    png: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    command: str | None = None,
    progress: Progress = SILENT,
) -> Report:
    """Write a page that shows selections and sweeps, and compares several selections.

    Parameters
    ----------
    results : path, address or Zarr store, or a sequence of these
        What :func:`kmufs_stream.select` wrote, and tables of sweeps (.csv, .json).
    out : path
        HTML file to write; it loads nothing from elsewhere.
    png : path, optional
        A name that ends in .png takes all figures as one image; any other is a folder with an image
        for each, made if it is not there.
    overwrite : bool, default False
        Replace files that exist.
    storage_options : mapping, optional
        Options of fsspec for addresses.
    command : str, optional
        A command line to show.
    progress : callable, optional
        See :func:`kmufs_stream.select`.

    Returns
    -------
    Report
        What was written.

    Raises
    ------
    RequestError
        Not a selection or sweep, files that exist, Matplotlib or Jinja2 missing.
    BrokenError
        Writing failed.

    Notes
    -----
    At most 2000 rows of each result are read, whatever it holds.
    """
    began = time.perf_counter()
    if missing := Report.lacking():
        raise missing_library("A report", *missing)
    several = [results] if isinstance(results, str | os.PathLike | UPath | Store) else results
    places = [place_of(result, storage_options) for result in several]
    if not places:
        raise RequestError("bad_option", "No result is given.", "Give one or more.")
    page_file, image_file = Path(out), None if png is None else Path(png)
    check_output(page_file, places, overwrite=overwrite, parameter="out", file=True)
    if image_file is not None:
        if page_file.resolve() == image_file.resolve():
            check_two_outputs(image_file, page_file, "png")
        if image_file.is_file():  # those in a folder are checked once they have names
            check_output(image_file, places, overwrite=overwrite, parameter="png", file=True)

    # Half a second, only for those who draw.
    from kmufs_stream.reporting.content import read_all
    from kmufs_stream.reporting.page import Page

    progress(Started("reading"))
    whole = Page(read_all(places))
    progress(Started("drawing", total=len(whole.pictures), unit="figures"))
    files = {page_file: whole.html(command, progress).encode()}
    if image_file is not None:
        progress(Started("drawing images"))
        images = whole.images(image_file)
        for file in images:
            check_output(file, places, overwrite=overwrite, parameter="png", file=True)
        files |= images
    for file, content in files.items():
        with new_output(file, overwrite=overwrite) as partial:
            partial.write_bytes(content)
    return Report(
        output=page_file,
        images=tuple(list(files)[1:]),
        results=len(whole.results),
        sweeps=len(whole.sweeps),
        seconds=time.perf_counter() - began,
        peak=peak_memory(),
    )

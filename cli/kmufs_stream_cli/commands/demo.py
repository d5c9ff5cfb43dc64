"""kmufs-stream demo"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kmufs_stream import RequestError
from kmufs_stream_cli import options, show
from kmufs_stream_cli.commands.select import run_select, show_selection

if TYPE_CHECKING:
    from kmufs_stream import Selection

K, H = 10, 20
COPIES = 20  # of each image
SIDE = 8  # pixels


def demo(
    *,
    folder: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Where to put the data and the result; made if it is not there.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = "kmufs-demo",
    screen: options.Showing,
) -> None:
    """Write a small Zarr store of hand-written digits, and choose the pixels that tell them apart.

    Can be run again: the result is written anew, and the data where they are not there already.
    """
    from kmufs_stream import open_matrix

    place = Path(folder)
    data, out = place / "digits.zarr", place / "digits.selected.zarr"
    try:
        place.mkdir(exist_ok=True)
    except OSError as error:
        raise RequestError(
            "not_writable",
            f"The folder {folder} cannot be made: {error.strerror}.",
            "Choose another --folder.",
        ) from error
    wrote = "Wrote" if write_digits(data) else "Found"
    result = run_select(open_matrix(data), K, H, screen, out=str(out), overwrite=True)
    if screen.printed(result.summary()):
        return
    show.line(f"{wrote} {data}: scikit-learn's digits, {COPIES} times each.")
    show.line(f"Ran: kmufs-stream select {data} --k {K} --h {H} --out {out} --overwrite")
    show.line()
    show_selection(result)
    show.line()
    show.line(f"The {H} chosen of 8 x 8 pixels, by rank (x: never inked, excluded):")
    for row in _picture(result):
        show.line(f"  {row}")


def write_digits(path: Path) -> bool:
    """Write scikit-learn's digits as images x pixels, every image ``COPIES`` times.

    Names of pixels label the features. The digit that an image shows is stored beside it: the
    selection never sees it, but can be judged by it. Returns False if the store is there already;
    it is then left as it is, and factors made of it remain valid.
    """
    import numpy as np
    import xarray as xr
    from sklearn.datasets import load_digits

    from kmufs_stream import rechunk

    digits = load_digits()
    pixels = np.tile(digits.data.astype(np.uint8), (COPIES, 1))
    images = xr.DataArray(
        pixels,
        dims=("image", "pixel"),
        coords={
            "image": np.arange(len(pixels)),
            "pixel": digits.feature_names,
            "digit": ("image", np.tile(digits.target.astype(np.int8), COPIES)),
        },
        attrs={"long_name": "ink", "source": "sklearn.datasets.load_digits"},
        name="pixels",
    )
    # If nothing is there, or it is damaged, it is written.
    with contextlib.suppress(Exception), xr.open_zarr(path) as stored:
        if stored.equals(images.to_dataset()):
            return False
    rechunk(images, path, overwrite=True)
    return True


def _picture(result: Selection) -> list[str]:
    """Draw the pixels as lines of text: the rank of those chosen, an x for those excluded."""
    marks = dict.fromkeys(range(SIDE**2), ".")
    for index in result.factor.features.excluded.values():
        marks |= dict.fromkeys(index.tolist(), "x")
    marks |= {int(i): str(rank) for i, rank in zip(result.selected, result.ranks, strict=True)}
    cells = [mark.rjust(3) for mark in marks.values()]
    return ["".join(cells[i : i + SIDE]) for i in range(0, len(cells), SIDE)]

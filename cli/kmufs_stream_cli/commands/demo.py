"""kmufs-stream demo"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kmufs_stream_cli import options, show
from kmufs_stream_cli.commands.select import run_select, show_selection
from kmufs_stream_cli.typed import shell_line

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

    Can be run again: the result is then written anew.
    """
    from kmufs_stream import open_matrix

    data, out = Path(folder, "digits.zarr"), Path(folder, "digits.selected.zarr")
    with contextlib.suppress(OSError):  # writing says what is wrong with the folder
        data.parent.mkdir(exist_ok=True)
    if not data.exists():
        write_digits(data)
    result = run_select(open_matrix(data), K, H, screen, out=str(out), overwrite=True)
    if screen.printed(result.summary()):
        return
    show.line(f"Data: {data}, scikit-learn's digits, {COPIES} times each.")
    where = shell_line([str(data), "--k", str(K), "--h", str(H), "--out", str(out)])
    show.line(f"Ran: kmufs-stream select {where} --overwrite")
    show.line()
    show_selection(result)
    show.line()
    show.line(f"The {H} chosen of 8 x 8 pixels, by rank (x: never inked, excluded):")
    for row in _picture(result):
        show.line(f"  {row}")


def write_digits(path: Path) -> None:
    """Write scikit-learn's digits as images x pixels, every image ``COPIES`` times.

    Names of pixels label the features. The digit that an image shows is stored beside it: the
    selection never sees it, but can be judged by it.
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
    rechunk(images, path, overwrite=True)


def _picture(result: Selection) -> list[str]:
    """Draw the pixels as lines of text: the rank of those chosen, an x for those excluded."""
    marks = ["."] * SIDE**2
    for excluded in result.factor.features.excluded.values():
        for index in excluded:
            marks[index] = "x"
    for index, rank in zip(result.selected, result.ranks, strict=True):
        marks[index] = str(rank)
    rows = (marks[i : i + SIDE] for i in range(0, SIDE**2, SIDE))
    return ["".join(f"{mark:>3}" for mark in row) for row in rows]

"""kmufs-stream demo"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kmufs_stream.errors import RequestError
from kmufs_stream_cli import demo_data, options, show
from kmufs_stream_cli.commands.select import run_select, show_selection

if TYPE_CHECKING:
    from kmufs_stream import Selection

K, H = 10, 20


def demo(
    folder: Annotated[
        str,
        typer.Option(
            "--folder",
            metavar="PATH",
            help="Where to put the data and the result; made if it is not there.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = "kmufs-demo",
    json: options.Json = False,
    log: options.Log = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Write a small Zarr store of hand-written digits, and choose the pixels that tell them apart.

    Can be run again: the result is written anew, and the data where they are not there already.
    """
    from kmufs_stream import open_matrix
    from kmufs_stream.storage.output import check_output

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
    for made in (data, out):
        check_output(made, [], overwrite=True, parameter="folder")
    wrote = "Wrote" if demo_data.write_digits(data) else "Found"
    result = run_select(open_matrix(data), K, H, out=str(out), overwrite=True, log=log, quiet=quiet)
    if json:
        show.as_json(result.summary())
        return
    screen = show.console()
    show.line(screen, f"{wrote} {data}: scikit-learn's digits, {demo_data.COPIES} times each.")
    show.line(screen, f"Ran: kmufs-stream select {data} --k {K} --h {H} --out {out} --overwrite")
    show.line(screen)
    show_selection(result)
    show.line(screen)
    show.line(screen, f"The {H} chosen of 8 x 8 pixels, by rank (x: never inked, excluded):")
    for row in demo_data.picture(_marks(result)):
        show.line(screen, f"  {row}")


def _marks(result: Selection) -> dict[int, str]:
    marks = {int(i): str(rank) for i, rank in zip(result.selected, result.ranks, strict=True)}
    for index in result.factor.features.excluded.values():
        marks |= {int(i): "x" for i in index}
    return marks

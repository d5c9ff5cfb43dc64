"""The application, and what every run ends with: an exit code, and an error told once."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Annotated

import typer

from kmufs_stream.allocator import share_one_heap
from kmufs_stream.errors import RequestError
from kmufs_stream.version import __version__
from kmufs_stream_cli import interrupt
from kmufs_stream_cli.commands.apply import apply
from kmufs_stream_cli.commands.convert import convert
from kmufs_stream_cli.commands.decompose import decompose
from kmufs_stream_cli.commands.demo import demo
from kmufs_stream_cli.commands.evaluate import evaluate
from kmufs_stream_cli.commands.info import info
from kmufs_stream_cli.commands.plan import plan
from kmufs_stream_cli.commands.rechunk import rechunk
from kmufs_stream_cli.commands.report import report
from kmufs_stream_cli.commands.select import select
from kmufs_stream_cli.commands.sweep import sweep
from kmufs_stream_cli.commands.update import update
from kmufs_stream_cli.failure import explain, tell
from kmufs_stream_cli.typed import NAME, remember

ONE_DASH = re.compile(r"-([kh])(?: |=|(?=\d))(\d.*)")

app = typer.Typer(
    name=NAME,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="To see it work: kmufs-stream demo",
)


def _version(asked: bool) -> None:
    if asked:
        print(f"{NAME} {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Choose, without labels, the h original features that best separate k clusters.

    The table (samples x features) is a Zarr store and may be far larger than memory.
    """


def _examples(*commands: str) -> str:
    """What stands below a command's help, a line each."""
    return "\n\n".join(("Examples:", *(f"{NAME} {command}" for command in commands)))


COMMANDS: dict[Callable[..., None], tuple[str, ...]] = {
    select: (
        "select data.zarr --k 10 --h 100",
        "select cells.h5ad --layer counts --transform log1p --k 20 --h 200",
        "select data.zarr --k 10 --h 100 --workers 4 --log 2> run.log",
    ),
    plan: ("plan data.zarr --k 10 --h 100 --memory 2GB",),
    decompose: (
        "decompose data.zarr --k 20",
        "decompose s3://bucket/data.zarr --k 20 --out s3://bucket/factor.zarr",
    ),
    update: (
        "update data.factor.zarr --with new.zarr --overwrite",
        "update data.factor.zarr --with new.zarr --out updated.zarr",
    ),
    evaluate: (
        "evaluate data.selected.zarr",
        "evaluate data.selected.zarr --labels cell_type --data data.zarr",
    ),
    sweep: (
        "sweep data.factor.zarr --k 5,10,20 --h 20:200:20 --suggest-h",
        "sweep data.zarr --suggest-k --suggest-h --solver css,consensus --csv trials.csv",
    ),
    report: (
        "report data.selected.zarr",
        "report a.selected.zarr b.selected.zarr sweep.csv --png figures",
    ),
    info: ("info data.selected.zarr", "info data.factor.zarr"),
    apply: ("apply data.selected.zarr new.zarr",),
    convert: (
        "convert table.csv --index-column id",
        "convert data.h5::/counts counts.zarr",
    ),
    rechunk: ("rechunk wide.zarr --memory 2GB",),
    demo: ("demo",),
}
"""All commands, each with the examples of its help."""
for command, examples in COMMANDS.items():
    app.command(epilog=_examples(*examples))(command)
program = typer.main.get_command(app)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 done, 2 the request cannot be met, 1 something broke, 130 interrupted.
    """
    share_one_heap()
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    remember([NAME, *arguments])
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a label must not break a terminal that lacks a letter
            stream.reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings(), interrupt.raised(last=argv is None):
            if not debug:
                warnings.simplefilter("ignore")  # nothing in them that a user can act on
                # zarr leaves tasks behind when one fails; asyncio prints their tracebacks, and
                # gcsfs that of each failure that is then raised.
                for library in ("asyncio", "gcsfs"):
                    logging.getLogger(library).setLevel(logging.CRITICAL)
            _refuse_one_dash(arguments)
            done = program.main(arguments or ["--help"], prog_name=NAME, standalone_mode=False)
        code = done if isinstance(done, int) else 0
        sys.stdout.flush()
    except BrokenPipeError:
        code = 1  # whoever was reading has gone; there is nobody to tell
    except (Exception, KeyboardInterrupt, interrupt.Interrupted) as error:
        failure = explain(error, [NAME, *arguments])
        code = failure.exit_code
        _quietly(partial(tell, failure, error, json="--json" in arguments, debug=debug))
    _drop_unwritten()
    return code


def _refuse_one_dash(words: Sequence[str]) -> None:
    """Numbers after -k and -h, of which the latter would show the help instead of an error."""
    for typed in [*words, *map(" ".join, pairwise(words))]:
        if found := ONE_DASH.fullmatch(typed):
            option, number = found.groups()
            raise RequestError(
                "usage", f"No such option: {typed}.", f"Type two dashes: --{option} {number}"
            )


def _quietly(say: Callable[[], None]) -> None:
    """Say it, unless there is nowhere to."""
    with contextlib.suppress(OSError):
        say()
        sys.stdout.flush()


def _drop_unwritten() -> None:
    """Where stdout cannot be written, keep the interpreter from failing at its last flush."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

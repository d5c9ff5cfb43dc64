"""The program: its commands, and the exit code and error message that a run ends with."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kmufs_stream import RequestError, __version__
from kmufs_stream.system.allocator import share_one_heap
from kmufs_stream_cli import interrupt
from kmufs_stream_cli.failure import explain
from kmufs_stream_cli.groups import ungrouped
from kmufs_stream_cli.help import Command, examples, write_parameters, write_section
from kmufs_stream_cli.typed import NAME, remember

WIDEST = 100  # letters of a line of help
SHARED: dict[str, Any] = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": WIDEST},
}

COMMANDS: dict[str, tuple[str, ...]] = {
    "select": (
        "select data.zarr --k 10 --h 100",
        "select cells.h5ad --layer counts --transform log1p --k 20 --h 200",
        "select data.zarr --k 10 --h 100 --workers 4 --log 2> run.log",
    ),
    "plan": ("plan data.zarr --k 10 --h 100 --memory 2GB",),
    "decompose": (
        "decompose data.zarr --k 20",
        "decompose s3://bucket/data.zarr --k 20 --out s3://bucket/factor.zarr",
    ),
    "update": (
        "update data.factor.zarr --with new.zarr --overwrite",
        "update data.factor.zarr --with new.zarr --out updated.zarr",
    ),
    "evaluate": (
        "evaluate data.selected.zarr",
        "evaluate data.selected.zarr --labels cell_type --data data.zarr",
    ),
    "sweep": (
        "sweep data.factor.zarr --k 5,10,20 --h 20:200:20 --suggest-h",
        "sweep data.zarr --suggest-k --suggest-h --solver css,consensus --csv trials.csv",
    ),
    "report": (
        "report data.selected.zarr",
        "report a.selected.zarr b.selected.zarr sweep.csv --png figures",
    ),
    "info": ("info data.selected.zarr", "info data.factor.zarr"),
    "apply": ("apply data.selected.zarr new.zarr",),
    "convert": (
        "convert table.csv --index-column id",
        "convert data.h5::/counts counts.zarr",
    ),
    "rechunk": ("rechunk wide.zarr --memory 2GB",),
    "demo": ("demo",),
}
"""All commands, each in a module of its name, with examples for its help."""


class Commands(TyperGroup):
    """The commands; only the one typed is loaded, so that help is quick."""

    def get_params(self, ctx: Any) -> list[Any]:
        flags = super().get_params(ctx)
        for flag in flags:
            flag.default = False  # for a default of None, Typer would load pydantic
        return flags

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        alone = typer.Typer(add_completion=False, **SHARED)
        shown = examples([f"{NAME} {words}" for words in COMMANDS[cmd_name]])
        alone.command(cmd_name, cls=Command, epilog=shown)(ungrouped(_loaded(_function(cmd_name))))
        return typer.main.get_command(alone)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_parameters(self.get_params(ctx), ctx, formatter)
        said = {name: str(_function(name).__doc__).partition("\n\n")[0] for name in COMMANDS}
        write_section(formatter, "Commands", list(said.items()))


def _function(name: str) -> Callable[..., None]:
    """Load the function of a command."""
    run: Callable[..., None] = getattr(import_module(f"{__package__}.commands.{name}"), name)
    return run


def _loaded(command: Callable[..., None]) -> Callable[..., None]:
    """Load the scientific stack before a command runs, in one go.

    What is loaded is no garbage: to look for some among it again and again would take a fifth of
    the time.
    """

    @functools.wraps(command)
    def run(**given: Any) -> None:
        import_module("kmufs_stream.sources")
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        command(**given)

    return run


app = typer.Typer(name=NAME, cls=Commands, epilog="To see it work: kmufs-stream demo", **SHARED)


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


program = typer.main.get_command(app)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 done, 2 the request cannot be met, 1 something broke, 130 interrupted.
    """
    share_one_heap()
    if argv is None:  # a process of its own
        gc.disable()
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    remember([NAME, *arguments])
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # for labels with letters that a terminal lacks
            stream.reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings(), interrupt.raised(last=argv is None):
            if not debug:
                warnings.simplefilter("ignore")  # users cannot act on them
                # zarr leaves tasks behind when one fails: asyncio prints their tracebacks, and
                # gcsfs that of each failure that is raised anyway.
                for library in ("asyncio", "gcsfs"):
                    logging.getLogger(library).setLevel(logging.CRITICAL)
            _refuse_h_as_help(arguments)
            done = program.main(arguments or ["--help"], prog_name=NAME, standalone_mode=False)
        code = done if isinstance(done, int) else 0
        sys.stdout.flush()
    except BrokenPipeError:
        code = 1  # nobody reads any more
    except (Exception, KeyboardInterrupt, interrupt.Interrupted) as error:
        failure = explain(error, [NAME, *arguments])
        code = failure.exit_code
        with contextlib.suppress(OSError):
            if debug:
                traceback.print_exception(error)
            failure.tell(json="--json" in arguments)
            sys.stdout.flush()
    _drop_unwritten()
    return code


def _refuse_h_as_help(words: Sequence[str]) -> None:
    for option, value in pairwise(words):
        if option == "-h" and value.isdecimal():
            raise RequestError("usage", "-h shows help.", f"Type two dashes: --h {value}")


def _drop_unwritten() -> None:
    """Keep the interpreter from failing at its last flush if stdout cannot be written."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

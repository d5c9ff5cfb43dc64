"""kmufs-stream sweep"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from kmufs_stream import RequestError, SolverName
from kmufs_stream.errors import counted
from kmufs_stream_cli import next_commands, options, show
from kmufs_stream_cli.groups import Group, completed, section

if TYPE_CHECKING:
    from kmufs_stream import Sweep

BAR = 10  # letters of a full one
ROWS = 40  # of the table on the screen; of more trials it shows one of each k and solver
MOST = 10_000  # numbers of a grid
GRID = "N,N,... or FIRST:LAST:STEP"

in_options = section("Options")


@dataclass(frozen=True)
class Grid(Group):
    """What is tried, and where it is written."""

    k: str | None = in_options(None, "Numbers of clusters, such as 5,10,20 or 2:20:2.", GRID)
    h: str | None = in_options(None, "Numbers of features to choose, such as 20:200:20.", GRID)
    suggest_k: bool = in_options(
        False, "Show which k the spectrum speaks for; --k and --h may be left out."
    )
    suggest_h: bool = in_options(
        False, "Show where what is explained stops growing fast; --h may be left out."
    )
    solver: str = options.in_solver(
        "admm",
        f"Solvers, as of select: {', '.join(options.SOLVERS)}.",
        "NAME,NAME,...",
        autocompletion=completed(options.SOLVERS),
    )
    csv: str | None = options.in_output(
        None, "Write the table, with the chosen features, here.", "FILE"
    )


def sweep(
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help="What decompose wrote, or else whatever it takes."),
    ],
    table: options.Table,
    grid: Grid,
    *,
    overwrite: options.Overwrite = False,
    factoring: options.Factoring,
    resources: options.Reading,
    screen: options.Showing,
) -> None:
    """Choose features for many K, H and solvers from one factor, and show what each explains.

    DATA may be what decompose wrote, of which nothing is read; other data are read once.
    """
    from kmufs_stream import is_factor, load_factor
    from kmufs_stream import sweep as run

    ks = _numbers("--k", grid.k, grid.suggest_k)
    # The k that the spectrum suggests does not depend on h: it is shown with a ladder of them.
    hs = _numbers("--h", grid.h, grid.suggest_h or grid.suggest_k)
    factor, stores = None, table.storage_options()
    if is_factor(data, storage_options=stores):
        if resources.scheduler is not None or resources.workers is not None:
            raise RequestError(
                "bad_option",
                f"{data} is a factor, of which a cluster has nothing to read.",
                "Leave out --scheduler and --workers.",
            )
        factor = load_factor(data, storage_options=stores)
    matrix = screen.opened(table, data) if factor is None else factor
    with resources.connected() as used, screen.progress() as progress:
        found = run(
            matrix,
            ks,
            hs,
            solvers=cast(list[SolverName], [name.strip() for name in grid.solver.split(",")]),
            **factoring.keywords(),
            **used,
            screening=table.screening(),
            csv=grid.csv,
            overwrite=overwrite,
            progress=progress,
        )
    if screen.printed(found.summary()):
        return
    _show_trials(found, grid.csv)
    facts = show.took(found.summary())
    if grid.suggest_k:
        facts += _suggested_k(found)
    if grid.suggest_h:
        for (k, solver), h in found.suggested_h.items():
            facts.append(("knee", f"k = {k}, {solver}: " + ("none" if h is None else f"h = {h}")))
    if grid.csv is not None:
        facts.append(("output", grid.csv))
    if (proposal := found.proposal) is None:
        show.facts(facts)
        return
    again = table.typed() | factoring.typed() | resources.typed()
    if factor is not None:
        again = {"factor": data, "storage_option": table.storage_option}
        data = factor.origin.get("source", "")
        if factor.added_to or not ("://" in data or Path(data).exists()):
            facts.append(("data", f"DATA has to hold the rows of {data or 'the factor'}"))
            data = "DATA"
    show.facts(facts)
    trial = {"k": proposal.k, "h": proposal.h, "solver": proposal.solver}
    next_commands.show_next(next_commands.command("select", data, **trial, **again))


def _numbers(option: str, text: str | None, suggested: bool) -> list[int] | None:
    """Parse numbers such as 5,10,20 or 10:50:10; None where they are to be suggested."""
    if text is None and suggested:
        return None
    try:
        ranges = [_range(*map(int, part.split(":"))) for part in str(text or "").split(",")]
    except (TypeError, ValueError):
        raise RequestError(
            "bad_option",
            f"{option} is not given." if text is None else f"{option} {text!r} is no such list.",
            f"Give {option} {GRID}, or --suggest-{option[2:]}.",
        ) from None
    numbers = list(islice(chain(*ranges), MOST + 1))
    if len(numbers) > MOST:
        raise RequestError(
            "bad_option",
            f"{option} {text} asks for more than {MOST:,} numbers.",
            "Give a larger STEP, or fewer numbers.",
        )
    return numbers


def _range(first: int, last: int | None = None, step: int = 1) -> range:
    last = first if last is None else last
    if step < 1 or last < first:
        raise ValueError
    return range(first, last + 1, step)


def _show_trials(found: Sweep, csv: str | None) -> None:
    trials = found.proposals if len(found.trials) > ROWS else found.trials
    bars = ["#" * round(BAR * t.explained) + " not converged" * (not t.converged) for t in trials]
    columns: list[tuple[str, Any]] = [
        ("k", [t.k for t in trials]),
        ("solver", [t.solver for t in trials]),
        ("h", [t.h for t in trials]),
        ("of optimum", [f"{t.objective / t.optimum:.2%}" for t in trials]),
        ("|correlation|", [f"{t.mean_correlation:.4f}" for t in trials]),
        ("at noise", [t.at_noise for t in trials]),
        ("explained", [f"{t.explained:.2%}" for t in trials]),
        ("", bars),
    ]
    selections, reads = counted(len(found.trials), "selections"), found.passes or "none"
    show.line(f"{selections}; reads of the data: {reads}.", "bold")
    show.line()
    show.table(columns)
    if len(trials) < len(found.trials):
        fewer = f"  one h of each k and solver, of {len(found.trials):,} selections; all of them: "
        show.line(fewer + (csv or "--csv FILE or --json"))
    show.line()


def _suggested_k(found: Sweep) -> list[tuple[str, str]]:
    """Say which k the spectrum suggests, and by which two signs."""
    k = found.suggested_k
    said = "none: no component stands above noise, so there may be no clusters"
    if k.k is not None:
        said = f"k = {k.k}, by the {k.by}; often wrong, so try others too"
    return [
        ("suggested", said),
        (
            "noise edge",
            f"{k.above_noise:,} of {k.components:,} components are above {k.noise_edge:.4g}",
        ),
        ("widest gap", f"k = {k.widest_gap}"),
    ]

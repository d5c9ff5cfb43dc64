"""kmufs-stream sweep"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, cast

import typer

from kmufs_stream import RequestError, SolverName
from kmufs_stream.errors import counted
from kmufs_stream_cli import next_commands, options, show
from kmufs_stream_cli.groups import Group, completed, section
from kmufs_stream_cli.typed import read_by

if TYPE_CHECKING:
    from kmufs_stream import Sweep

BAR = 10  # letters of a full one
ROWS = 40  # of the table on the screen; of more trials it shows one of each k and solver
EXPLAINED = (
    "of optimum     sum of the scores, over the most that any h have: not how good",
    "               the clusters are",
    "|correlation|  mean, of two of the h; 1 if all say the same",
    "at noise       of the h, how many tell no more than independent noise would",
    "explained      share of the k leading components that the h span: compare h",
    "               with h, not k with k, nor solvers. Of k clear clusters the k-th",
    "               component is noise: 100% less 1/k is then all there is",
)
RIGHT = {  # as tests/benchmarks/suggested.py finds
    "agree": "mostly right on planted tables, seldom on real ones",
    "differ": "seldom right, on planted tables or on real ones",
    "gap only": "right on half of the planted tables, seldom on real ones",
}
BEGIN = (
    "To begin with: the k next to the one that the spectrum suggests, or the smallest; consensus, "
    "which usually finds clusters best, or the first solver; h at the knee, or the largest that "
    "leaves features out, with none at noise if possible. "
)
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
    if grid.suggest_k:
        show.line()
        show.line("Suggestion only: k from the spectrum")
        show.facts(_suggested_k(found))
    if grid.suggest_h:
        show.line()
        show.line("Suggestion only: h at the knee of what is explained")
        for line in _suggested_h(found):
            show.line(f"  {line}")
    show.line()
    written = [] if grid.csv is None else [("output", grid.csv)]
    show.facts([*show.took(found.summary()), *written])
    if found.proposal is None:
        return
    if factor is None:
        again = table.typed() | factoring.typed() | resources.typed()
    else:
        again = {"factor": data, "storage_option": table.storage_option}
        again |= read_by(factor.origin.get("command", ""))
        data = factor.origin.get("source", "")
    added_to = factor is not None and factor.added_to
    there = next_commands.can_be_typed(data) and not added_to
    _show_next(found, data, again, grid.csv, there=there)


def _numbers(option: str, text: str | None, suggested: bool) -> list[int] | None:
    """Parse numbers such as 5,10,20 or 10:50:10; None where they are to be suggested."""
    if text is None:
        if suggested:
            return None
        raise RequestError(
            "bad_option",
            f"{option} is not given.",
            f"Give {option} {GRID}, or --suggest-{option[2:]}.",
        )
    ranges: list[range] = []
    try:
        for part in text.split(","):
            first, *rest = (int(word) for word in part.split(":"))
            last, step = [*rest, 1][:2] if rest else (first, 1)
            if len(rest) > 2 or step < 1 or last < first:
                raise ValueError
            ranges.append(range(first, last + 1, step))
    except ValueError:
        raise RequestError(
            "bad_option", f"{option} {text!r} is no list of whole numbers.", f"Write it {GRID}."
        ) from None
    many = sum((numbers.stop - numbers.start - 1) // numbers.step + 1 for numbers in ranges)
    if many > MOST:
        raise RequestError(
            "bad_option",
            f"{option} {text} asks for {many:,} numbers; {MOST:,} are the most.",
            "Give a larger STEP, or fewer numbers.",
        )
    return [number for numbers in ranges for number in numbers]


def _show_trials(found: Sweep, csv: str | None) -> None:
    selections, reads = counted(len(found.trials), "selections"), found.passes or "none"
    show.line(f"{selections} in {found.seconds:.2f} s; reads of the data: {reads}.", "bold")
    show.line()
    columns = [("k", True), ("solver", False), ("h", True), ("of optimum", True)]
    columns += [("|correlation|", True), ("at noise", True), ("explained", True), ("", False)]
    trials = found.proposals if len(found.trials) > ROWS else found.trials
    rows = [
        (
            str(t.k),
            t.solver,
            str(t.h),
            f"{t.objective / t.optimum:.2%}",
            f"{t.mean_correlation:.4f}",
            str(t.at_noise),
            f"{t.explained:.2%}",
            "#" * round(BAR * t.explained) + ("" if t.converged else " not converged"),
        )
        for t in trials
    ]
    show.table(columns, rows)
    if len(trials) < len(found.trials):
        fewer = f"  one h of each k and solver, of {len(found.trials):,} selections; all of them: "
        show.line(fewer + (csv or "--csv FILE or --json"))
    show.line()
    for said in EXPLAINED:
        show.line(f"  {said}")


def _suggested_k(found: Sweep) -> list[tuple[str, str]]:
    """Say which k is suggested, by which two signs, and how often such a suggestion is right."""
    k = found.suggested_k
    above = (
        f"{k.above_noise:,} of {k.components:,} components are above {k.noise_edge:.4g}, where "
        "independent features end"
    )
    if k.k is None:
        none = "none: no component stands above noise, so there may be no clusters"
        return [("suggested", none), ("noise edge", above)]
    if k.by == "widest gap":
        return [
            ("suggested", f"k = {k.k}, one more than the components before the widest gap"),
            ("noise edge", f"{above}: too many to tell clusters from the rest"),
            ("widest gap", f"k = {k.widest_gap}, the only sign there is"),
            ("how sure", RIGHT["gap only"]),
        ]
    agreed = k.k == k.widest_gap
    other = "agrees" if agreed else "does not agree: try both, and those between"
    return [
        ("suggested", f"k = {k.k}, one more than the components above the noise edge"),
        ("noise edge", above),
        ("widest gap", f"k = {k.widest_gap}: {other}"),
        ("how sure", RIGHT["agree" if agreed else "differ"]),
    ]


def _suggested_h(found: Sweep) -> list[str]:
    """Say for each k and solver which h is at the knee."""
    at_noise = {(t.k, t.solver, t.h): t.at_noise for t in found.trials}
    lines = []
    for (k, solver), h in found.suggested_h.items():
        said = "no knee" if h is None else f"h = {h}"
        if h is not None and at_noise[k, solver, h]:
            said += f", of which {at_noise[k, solver, h]:,} at noise"
        lines.append(f"k = {k}, {solver}: {said}")
    return lines


def _show_next(
    found: Sweep, data: str, more: dict[str, object], csv: str | None, *, there: bool
) -> None:
    """Show how to write a trial from data, if they are ``there`` still, with ``more`` options."""
    proposal = found.proposal
    assert proposal is not None
    why = BEGIN if len(found.trials) > 1 else ""
    if found.suggested_k.k is None:
        why = f"No component stands above noise, so there may be no clusters. {why}"
    trial = {"k": proposal.k, "h": proposal.h, "solver": proposal.solver}
    show.line()
    if there:
        show.prose(why.strip() or "The next command writes it.")
        drawn = [] if csv is None else next_commands.report(csv)
        again = next_commands.command("select", data, **trial, **more)
        next_commands.show_next(again, *drawn)
        return
    held = f"the rows of {data}" if data else "the rows that it was made of"
    asked = next_commands.command("select", "", **trial, **more).partition(" '' ")[2]
    show.prose(f"{why}Give select a store that holds {held}: {asked}")

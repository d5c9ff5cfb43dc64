"""kmufs-stream sweep"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from kmufs_stream.errors import RequestError, counted
from kmufs_stream.options import SolverName
from kmufs_stream_cli import options, show
from kmufs_stream_cli.progress import opened, shown
from kmufs_stream_cli.table import TableOptions, on_table
from kmufs_stream_cli.typed import read_by

if TYPE_CHECKING:
    from kmufs_stream import Factor, Sweep
    from kmufs_stream.results.trials import Proposal

BAR = 10  # letters of a full one
ROWS = 40  # of the table on the screen, at most where each k and solver can do with one
EXPLAINED = (
    "of optimum     sum of the scores, over the most that any h have: not how good",
    "               the clusters are",
    "|correlation|  mean, of two of the h; 1 if all say the same",
    "at noise       of the h, how many tell no more than independent noise would",
    "explained      share of the k leading components that the h span: compare h",
    "               with h, not k with k, nor solvers. Of k clear clusters the k-th",
    "               component is noise: 100% less 1/k is then all there is",
)
# As tests/benchmarks/suggested.py finds.
RIGHT = {
    "agree": "mostly right on planted tables, seldom on real ones",
    "differ": "seldom right, on planted tables or on real ones",
    "gap only": "right on half of the planted tables, seldom on real ones",
}
MOST = 10_000  # numbers of a grid
GRID = "N,N,... or FIRST:LAST:STEP"


@on_table
def sweep(
    table: Annotated[
        TableOptions,
        typer.Argument(metavar="DATA", help="What decompose wrote, or else whatever it takes."),
    ],
    k: Annotated[
        str | None,
        typer.Option("--k", metavar=GRID, help="Numbers of clusters, such as 5,10,20 or 2:20:2."),
    ] = None,
    h: Annotated[
        str | None,
        typer.Option("--h", metavar=GRID, help="Numbers of features to choose, such as 20:200:20."),
    ] = None,
    solver: Annotated[
        str,
        typer.Option(
            "--solver",
            metavar="NAME,NAME,...",
            help="Solvers, as of select: " + ", ".join(options.SOLVERS) + ".",
            autocompletion=options.completed(options.SOLVERS),
            rich_help_panel=options.SOLVER,
        ),
    ] = "admm",
    suggest_k: Annotated[
        bool,
        typer.Option(
            "--suggest-k", help="Show which k the spectrum speaks for; --k and --h may be left out."
        ),
    ] = False,
    suggest_h: Annotated[
        bool,
        typer.Option(
            "--suggest-h",
            help="Show where what is explained stops growing fast; --h may be left out.",
        ),
    ] = False,
    csv: Annotated[
        str | None,
        typer.Option(
            "--csv",
            metavar="FILE",
            help="Write the table, with the chosen features, here.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    method: options.Method = "auto",
    tol: options.Tol = options.TOL,
    max_passes: options.MaxPasses = options.MAX_PASSES,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    memory: options.Memory = None,
    scheduler: options.Scheduler = None,
    workers: options.Workers = None,
    precision: options.Precision = "auto",
    json: options.Json = False,
    log: options.Log = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Choose features for many K, H and solvers from one factor, and show what each explains.

    DATA may be what decompose wrote, of which nothing is read; other data are read once.
    """
    from kmufs_stream import LanczosOptions
    from kmufs_stream import sweep as run
    from kmufs_stream.factors.store import load_factor
    from kmufs_stream.results.trials import write_csv
    from kmufs_stream.sources.written import is_factor
    from kmufs_stream.storage.output import check_file
    from kmufs_stream.storage.places import place_of
    from kmufs_stream.streaming.cluster import connected

    began = time.perf_counter()
    ks = _grid("--k", k, suggest_k)
    # Which k the spectrum speaks for does not depend on h: a ladder of them is shown with it.
    hs = _grid("--h", h, suggest_h or suggest_k)
    place = place_of(table.data, table.storage_options())
    if csv is not None:
        check_file(Path(csv), "csv", [place], overwrite=overwrite)
    factor = load_factor(place) if is_factor(place) else None
    if factor is not None and (scheduler is not None or workers is not None):
        raise RequestError(
            "bad_option",
            f"{table.data} is a factor, of which a cluster has nothing to read.",
            "Leave out --scheduler and --workers.",
        )
    data = opened(table, log=log, quiet=quiet) if factor is None else factor
    with (
        connected(scheduler, workers, threads=threads, memory=memory) as share,
        shown(log=log, quiet=quiet) as progress,
    ):
        found = run(
            data,
            ks,
            hs,
            solvers=cast(list[SolverName], [name.strip() for name in solver.split(",")]),
            method=method,
            lanczos=LanczosOptions(tol, max_passes, seed),
            screening=table.screening(),
            memory=share,
            threads=threads,
            precision=precision,
            progress=progress,
        )
    found = replace(found, seconds=time.perf_counter() - began)
    if csv is not None:
        write_csv(found, csv, overwrite=overwrite)
    if json:
        show.as_json(found.summary())
    else:
        _show(found, suggest_k=suggest_k, suggest_h=suggest_h, csv=csv)
        proposal = found.proposal
        if proposal is not None:
            reading = {
                "method": method,
                "tol": tol,
                "max_passes": max_passes,
                "seed": seed,
                "threads": threads,
                "memory": memory,
                "scheduler": scheduler,
                "workers": workers,
                "precision": precision,
            }
            _show_next(found, proposal, table, factor, reading, csv)


def _grid(option: str, text: str | None, suggested: bool) -> list[int] | None:
    """Numbers such as 5,10,20 or 10:50:10; None where they are to be suggested."""
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


def _show(found: Sweep, *, suggest_k: bool, suggest_h: bool, csv: str | None) -> None:
    from kmufs_stream.results.trials import one_each

    out = show.console()
    read = f"reads of the data: {found.passes or 'none'}"
    show.line(
        out, f"{counted(len(found.trials), 'selections')} in {found.seconds:.2f} s; {read}.", "bold"
    )
    show.line(out)
    columns = [("k", True), ("solver", False), ("h", True), ("of optimum", True)]
    columns += [("|correlation|", True), ("at noise", True), ("explained", True), ("", False)]
    trials = one_each(found) if len(found.trials) > ROWS else list(found.trials)
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
    show.table(out, columns, rows)
    if len(trials) < len(found.trials):
        fewer = f"  one h of each k and solver, of {len(found.trials):,} selections; all of them: "
        show.line(out, fewer + (csv or "--csv FILE or --json"))
    show.line(out)
    for said in EXPLAINED:
        show.line(out, f"  {said}")
    if suggest_k:
        show.line(out)
        _show_k(out, found)
    if suggest_h:
        show.line(out)
        show.line(out, "Suggestion only: h at the knee of what is explained")
        at_noise = {(t.k, t.solver, t.h): t.at_noise for t in found.trials}
        for (k, solver), h in found.suggested_h.items():
            said = "no knee" if h is None else f"h = {h}"
            if h is not None and at_noise[k, solver, h]:
                said += f", of which {at_noise[k, solver, h]:,} at noise"
            show.line(out, f"  k = {k}, {solver}: {said}")
    show.line(out)
    written = [] if csv is None else [("output", csv)]
    show.facts(out, [*show.took(found.summary()), *written])


def _show_next(
    found: Sweep,
    proposal: Proposal,
    table: TableOptions,
    factor: Factor | None,
    reading: dict[str, Any],
    csv: str | None,
) -> None:
    """What writes one of the trials; ``reading`` are options for whoever reads the data again."""
    out = show.console()
    reasons = "; ".join(proposal.why)
    why = f"To write one of them: {reasons}. " if reasons else ""
    if found.suggested_k.k is None:
        why = f"No component stands above noise, so there may be no clusters. {why}"
    trial = {"k": proposal.k, "h": proposal.h, "solver": proposal.solver}
    show.line(out)
    if factor is None:
        data, more = table.data, {**table.typed(), **options.unusual(**reading)}
    else:
        data, more = factor.origin.get("source", ""), read_by(factor.origin.get("command", ""))
        more = {"factor": table.data, **{"storage_option": table.storage_option, **more}}
    if show.can_be_typed(data) and not (factor and factor.added_to):
        show.prose(out, why.strip() or "The next command writes it.")
        drawn = [] if csv is None else show.report(csv)
        show.next_commands(out, show.command("select", data, **trial, **more), *drawn)
        return
    held = f"the rows of {data}" if data else "the rows that it was made of"
    asked = show.command("select", "", **trial, **more).partition(" '' ")[2]
    show.prose(out, f"{why}Give select a store that holds {held}: {asked}")


def _show_k(out: Any, found: Sweep) -> None:
    """The suggested k, the two signs it goes by, and how often it is right."""
    k = found.suggested_k
    rows = [("suggested", "none: no component stands above noise, so there may be no clusters")]
    above = (
        f"{k.above_noise:,} of {k.components:,} components are above {k.noise_edge:.4g}, where "
        "independent features end"
    )
    if k.k is None:
        rows.append(("noise edge", above))
    elif k.by == "widest gap":
        rows = [
            ("suggested", f"k = {k.k}, one more than the components before the widest gap"),
            ("noise edge", f"{above}: too many to tell clusters from the rest"),
            ("widest gap", f"k = {k.widest_gap}, the only sign there is"),
            ("how sure", RIGHT["gap only"]),
        ]
    else:
        agreed = k.k == k.widest_gap
        other = "agrees" if agreed else "does not agree: try both, and those between"
        rows = [
            ("suggested", f"k = {k.k}, one more than the components above the noise edge"),
            ("noise edge", above),
            ("widest gap", f"k = {k.widest_gap}: {other}"),
            ("how sure", RIGHT["agree" if agreed else "differ"]),
        ]
    show.line(out, "Suggestion only: k from the spectrum")
    show.facts(out, rows)

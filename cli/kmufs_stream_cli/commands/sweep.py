"""kmufs-stream sweep"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kmufs_stream.errors import RequestError, counted
from kmufs_stream_cli import options, show
from kmufs_stream_cli.progress import opened, shown
from kmufs_stream_cli.table import TableOptions, on_table
from kmufs_stream_cli.typed import read_by

if TYPE_CHECKING:
    from kmufs_stream import Factor, Sweep
    from kmufs_stream.trials import Trial

RECOMMENDED = "consensus"
BAR = 10  # letters of a full one
EXPLAINED = (
    "at noise: of the h, how many vary with the k leading components no more than",
    "independent noise would. explained: how much of these components, the relaxed",
    "cluster indicators, the h span. Compare it along h, not k (each has its own),",
    "nor solvers (css maximises it). k clusters make k - 1 of them; the k-th is",
    "noise then, which few features span: about 1/k less than 100% is no loss",
)
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
    from kmufs_stream.factor_store import is_factor, load_factor
    from kmufs_stream.output import check_file
    from kmufs_stream.places import place_of
    from kmufs_stream.streaming.cluster import connected
    from kmufs_stream.trials import write_csv

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
            solvers=[name.strip() for name in solver.split(",")],
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
        if any(trial.h < found.usable for trial in found.trials):
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
            _show_next(found, table, factor, reading, csv)


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
    out = show.console()
    read = f"reads of the data: {found.passes or 'none'}"
    show.line(
        out, f"{counted(len(found.trials), 'selections')} in {found.seconds:.2f} s; {read}.", "bold"
    )
    show.line(out)
    columns = [("k", True), ("solver", False), ("h", True), ("of optimum", True)]
    columns += [("|correlation|", True), ("at noise", True), ("explained", True), ("", False)]
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
        for t in found.trials
    ]
    out.print(show.table(columns, rows))
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


def _choice(found: Sweep) -> tuple[str, dict[str, Any]]:
    """Why one of the trials to begin with, and its options.

    All features explain most, and to choose them is no choice.
    """
    choices = [trial for trial in found.trials if trial.h < found.usable]
    k, why_k = _one_k(found, sorted({trial.k for trial in choices}))
    solvers = list(dict.fromkeys(trial.solver for trial in choices))
    solver, chosen = solvers[0], [why_k] if why_k else []
    if len(solvers) > 1:
        solver = RECOMMENDED if RECOMMENDED in solvers else solver
        usual = ", which usually finds clusters best" if solver == RECOMMENDED else ", the first"
        chosen.append(solver + usual)
    curve = [trial for trial in choices if (trial.k, trial.solver) == (k, solver)]
    h, why_h = _one_h(curve, found.suggested_h.get((k, solver)))
    if len({trial.h for trial in found.trials}) > 1:
        chosen.append(why_h)
    why = f"To write one of them: {'; '.join(chosen)}." if chosen else "To write it."
    if found.suggested_k.k is None:
        why = f"No component stands above noise, so there may be no clusters. {why}"
    return why, {"k": k, "h": h, "solver": solver}


def _show_next(
    found: Sweep,
    table: TableOptions,
    factor: Factor | None,
    reading: dict[str, Any],
    csv: str | None,
) -> None:
    """What writes one of the trials; ``reading`` are options for whoever reads the data again."""
    out = show.console()
    why, trial = _choice(found)
    show.line(out)
    if factor is None:
        data, more = table.data, {**table.typed(), **options.unusual(**reading)}
    else:
        data, more = factor.origin.get("source", ""), read_by(factor.origin.get("command", ""))
        more = {"factor": table.data, **{"storage_option": table.storage_option, **more}}
    if show.can_be_typed(data) and not (factor and factor.added_to):
        show.line(out, why)
        drawn = [] if csv is None else show.report(csv)
        show.next_commands(out, show.command("select", data, **trial, **more), *drawn)
        return
    held = f"the rows of {data}" if data else "the rows that it was made of"
    asked = show.command("select", "", **trial, **more).partition(" '' ")[2]
    show.line(out, f"{why} Give select a store that holds {held}: {asked}")


def _one_k(found: Sweep, ks: list[int]) -> tuple[int, str]:
    """A k and why; what is explained of the components of one k says nothing of another k."""
    wanted = found.suggested_k.k
    if wanted is None:
        return ks[0], f"k = {ks[0]}, the smallest" * (len(ks) > 1)
    if wanted in ks:
        return wanted, f"k = {wanted}, for which the spectrum speaks"
    nearest = min(ks, key=lambda k: abs(k - wanted))
    spoken = f"k = {nearest}, the nearest to k = {wanted}, for which the spectrum speaks"
    return nearest, spoken * (len(ks) > 1)


def _one_h(curve: list[Trial], knee: int | None) -> tuple[int, str]:
    """An h and why: the knee where there is one, without what is mere noise where that can be."""
    at_noise = {trial.h: trial.at_noise for trial in curve}
    telling = [h for h, some in at_noise.items() if not some]
    if knee in telling or (knee in at_noise and not telling):
        some = f", with {at_noise[knee]:,} of them at noise" if at_noise[knee] else ""
        return knee, f"h = {knee}, the knee of its curve{some}"
    if len(telling) == len(curve):
        return telling[-1], f"h = {telling[-1]}, the most that leaves any out (there is no knee)"
    if telling:
        return telling[-1], f"h = {telling[-1]}, the most with none at noise"
    return curve[0].h, f"h = {curve[0].h}, the fewest (all have some at noise)"


def _show_k(out: Any, found: Sweep) -> None:
    k = found.suggested_k
    suggested = "none: no component stands above noise"
    if k.k is not None:
        suggested = f"k = {k.k}, one more than the components "
        suggested += "above the noise edge" if k.by == "noise edge" else "before the widest gap"
    above = (
        f"{k.above_noise:,} of {k.components:,} components are above {k.noise_edge:.4g}, where "
        "independent features end"
    )
    if k.by == "widest gap":
        above += ": too many to tell clusters from the rest"
    show.line(out, "Suggestion only: k from the spectrum")
    show.facts(out, [("suggested", suggested), ("noise edge", above)])

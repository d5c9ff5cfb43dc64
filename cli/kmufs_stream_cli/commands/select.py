"""kmufs-stream select"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kmufs_stream.errors import counted
from kmufs_stream.events import Event, Planned
from kmufs_stream_cli import options, outputs, show
from kmufs_stream_cli.commands.plan import plan_facts
from kmufs_stream_cli.notices import say
from kmufs_stream_cli.progress import opened, shown
from kmufs_stream_cli.table import TableOptions, on_table, storage_options
from kmufs_stream_cli.typed import typed
from kmufs_stream_cli.wording import as_typed

if TYPE_CHECKING:
    from rich.console import Console

    from kmufs_stream import Matrix, Selection

BEST = 10
WELL_KNOWN = 0.01  # an error of a score


@on_table
def select(
    table: TableOptions,
    k: options.K,
    h: options.H,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="PATH",
            callback=outputs.lasting,
            help="Zarr store to write, a path or address; DATA's name + .selected.zarr in this "
            "folder by default.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    anndata_out: Annotated[
        str | None,
        typer.Option(
            "--anndata-out",
            metavar="PATH",
            callback=outputs.lasting,
            help="AnnData: copy of the store, with kmufs_selected, kmufs_score and kmufs_rank in "
            "its var.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    selection_only: options.SelectionOnly = False,
    factor: options.FactorPath = None,
    method: options.Method = "auto",
    tol: options.Tol = options.TOL,
    max_passes: options.MaxPasses = options.MAX_PASSES,
    seed: options.Seed = 0,
    keep: options.Keep = None,
    solver: options.SolverName = "admm",
    mu0: Annotated[
        float | None,
        typer.Option(
            "--mu0",
            help="admm: first penalty; 1e-6 times the largest eigenvalue by default.",
            rich_help_panel=options.SOLVER,
        ),
    ] = None,
    mu_max: Annotated[
        float | None,
        typer.Option(
            "--mu-max",
            help="admm: last penalty; 1e3 times the largest eigenvalue by default.",
            rich_help_panel=options.SOLVER,
        ),
    ] = None,
    rho: Annotated[
        float,
        typer.Option(
            "--rho",
            help="admm: factor by which the penalty grows in each iteration.",
            rich_help_panel=options.SOLVER,
        ),
    ] = 1.05,
    max_iter: Annotated[
        int,
        typer.Option("--max-iter", help="admm: most iterations.", rich_help_panel=options.SOLVER),
    ] = 3000,
    patience: Annotated[
        int,
        typer.Option(
            "--patience",
            help="admm: iterations without a change of the chosen set that end it.",
            rich_help_panel=options.SOLVER,
        ),
    ] = 30,
    threads: options.Threads = None,
    memory: options.Memory = None,
    scheduler: options.Scheduler = None,
    workers: options.Workers = None,
    checkpoint: options.Checkpoint = None,
    resume: options.Resume = False,
    precision: options.Precision = "auto",
    json: options.Json = False,
    log: options.Log = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Choose the H features of DATA that best separate K clusters, and write them to a Zarr store.

    The data are read once (wide data a few times), block by block, whatever their size.
    """
    from kmufs_stream import AdmmOptions, LanczosOptions
    from kmufs_stream.streaming.cluster import connected

    matrix = opened(table, log=log, quiet=quiet, like=factor)
    with connected(scheduler, workers, threads=threads, memory=memory) as share:
        result = run_select(
            matrix,
            k,
            h,
            out=outputs.default_output("select", table.data) if out is None else out,
            log=log,
            quiet=quiet,
            keep=keep or None,
            screening=table.screening() if factor is None else table.asked_screening(),
            solver=solver,
            options=AdmmOptions(mu0, mu_max, rho, max_iter, patience),
            factor=factor,
            anndata_out=anndata_out,
            overwrite=overwrite,
            selection_only=selection_only,
            method=method,
            lanczos=LanczosOptions(tol, max_passes, seed),
            memory=share,
            threads=threads,
            checkpoint=checkpoint,
            resume=resume,
            precision=precision,
            storage_options=table.storage_options(),
        )
    if json:
        show.as_json(result.summary())
    else:
        show_selection(result, table.storage_option)


def run_select(
    matrix: Matrix, k: int, h: int, *, out: str, log: bool, quiet: bool, **asked: Any
) -> Selection:
    """Select with the progress shown; ``asked`` are the keywords of kmufs_stream.select."""
    from kmufs_stream import Plan
    from kmufs_stream import select as run

    with shown(log=log, quiet=quiet) as progress:

        def told(event: Event) -> None:
            if log and isinstance(event, Planned) and isinstance(event.plan, Plan):
                for name, value in plan_facts(matrix, event.plan):
                    say(f"{name}: {value}")
            progress(event)

        return run(matrix, k, h, out=out, command=typed(), progress=told, **asked)


def show_selection(result: Selection, stores: list[str] | None = None) -> None:
    """What was chosen, how well, what it took, and what to do with it.

    ``stores`` are the words of --storage-option.
    """
    out = show.console()
    summary = result.summary()
    show.line(
        out,
        f"Chose {summary['h']:,} of {summary['features']:,} features for k = {summary['k']} "
        f"from {summary['samples']:,} samples.",
        "bold",
    )
    show.line(out)
    _show_best(out, result)
    if summary["h"] > BEST:
        show.line(out, f"  and {summary['h'] - BEST:,} more")
    show.line(out)
    show.line(out, f"  score: the share of its variance in the {summary['k']} leading components")
    show.line(out)
    show.facts(out, _outcome(result, summary))
    output = summary["output"]
    if output is not None:
        from kmufs_stream.sources.labels import likely_classes
        from kmufs_stream.sources.transforms import by_row

        alone = result.plan.output_bytes > 0 and not by_row(result.matrix.transforms)
        data = None if alone else result.matrix.source
        classes = likely_classes(result.matrix, result.k)
        labels, others = classes[0] if classes else None, ", ".join(classes[1:])
        evaluate = show.command("evaluate", output, labels=labels, data=data, storage_option=stores)
        show.next_commands(
            out,
            evaluate,
            *show.report(output, stores),
            show.opened(output, storage_options(stores)),
            note=f"{labels} looks like classes; so may {others}" if others else "",
        )


def _show_best(out: Console, result: Selection) -> None:
    labels = result.labels
    columns = [("rank", True), ("feature", True), ("score", True)]
    if labels is not None:
        columns.append(("label", False))
    rows = []
    for i in result.ranks.argsort()[:BEST]:
        row = [str(result.ranks[i]), str(result.selected[i]), f"{result.scores[i]:.4f}"]
        rows.append(row if labels is None else [*row, str(labels[i])])
    show.table(out, columns, rows)


def _outcome(result: Selection, summary: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [
        (
            "objective",
            f"{summary['objective']:.6g}, the sum of the scores: "
            f"{summary['objective'] / summary['optimum']:.2%} of the optimum "
            f"{summary['optimum']:.6g}; more is not better clusters",
        ),
        ("solver", _ending(summary)),
        *_doubts(summary),
        ("excluded", show.excluded(summary["excluded"], show.names(result.factor))),
    ]
    if result.matrix.hint is not None:
        rows.append(("shape", as_typed(result.matrix.hint)))
    rows += [("note", as_typed(note)) for note in summary["notes"]]
    if summary["missing_values"] or summary["samples_dropped"]:
        rows.append(("missing", _missing(summary)))
    if summary["kept"]:
        rows.append(("kept", f"{counted(len(summary['kept']), 'features')}, whatever their scores"))
    if summary["transforms"]:
        rows.append(("values", "transformed by " + ", then ".join(summary["transforms"])))
    if summary["concessions"]:
        rows.append(("to fit", "; ".join(summary["concessions"])))
    reads = summary["passes"]
    rows += [
        ("reads", f"{reads} for the factor" if reads else "none for the factor: it was given"),
        *show.took(summary),
    ]
    outputs = [("output", summary["output"]), ("anndata", summary["anndata_output"])]
    return rows + [(what, path) for what, path in outputs if path is not None]


def _doubts(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Why not to trust the choice as it is, the gravest first."""
    from kmufs_stream.factors.solving import is_greedy

    rows = []
    if not summary["settled"]:
        rows.append(("scores", show.not_settled(summary)))
    unasked = set(summary["at_noise"]).difference(summary["kept"])
    # Before all scores have come to rest those are well known that stand above noise, if any do.
    known = bool(summary["beyond_noise"]) and summary["score_error"] < WELL_KNOWN
    if unasked and (summary["settled"] or known) and summary["h"] < summary["usable"]:
        rows.append(("noise", _at_noise(summary)))
    if summary["near_copies"] and not is_greedy(summary["solver"]):
        rows.append(("copies", _copies(summary)))
    if summary["tied_components"] is not None and summary["settled"]:
        rows.append(_tied(summary["k"], summary["tied_components"]))
    if summary["ambiguous"]:
        rows.append(
            (
                "ambiguous",
                f"{len(summary['ambiguous']):,} features score the same at the cutoff, to within "
                f"{summary['score_error']:.1g}; which of them are chosen is arbitrary",
            )
        )
    return rows


def _at_noise(summary: dict[str, Any]) -> str:
    """Chosen features that tell nothing, and what chooses others."""
    h, without, others = summary["h"], len(summary["at_noise"]), summary["beyond_noise"]
    if not others:
        return (
            f"none of the {summary['k']} components stands above what independent features show, "
            "so neither does any feature: there may be no clusters; see sweep --suggest-k"
        )
    said = (
        f"{without:,} of the {h:,} {'varies' if without == 1 else 'vary'} with the leading "
        "components no more than independent noise would"
    )
    remedy, solver = "", summary["solver"]
    if others < h:
        said += f"; only {counted(others, 'features')} of {summary['usable']:,} vary more"
        remedy = f" --h {others}"
    if without > h - min(others, h) and solver != "exact":
        said += f"; {solver} left out some that do"
        remedy = " --solver exact" + remedy
    # What consensus leaves out it may leave out for good: it does not maximise the objective.
    begin = ": compare with" if solver == "consensus" else ": try"
    return said + begin + remedy if remedy else said


def _copies(summary: dict[str, Any]) -> str:
    """Chosen features that say nearly the same, and what chooses fewer of them."""
    copies, h = len(summary["near_copies"]), summary["h"]
    said = f"{copies:,} of the {h:,} are near copies of others of them"
    if summary["solver"] == "admm":
        said += "; which, and how many, can hang on the last bits (order of rows, precision)"
    return f"{said}: compare with --solver consensus, which usually takes fewer"


def _tied(k: int, tied: dict[str, Any]) -> tuple[str, str]:
    """That components cannot be told apart, and what follows from it."""
    instead = " or ".join(map(str, tied["try_k"]))
    which = f"eigenvalues {tied['first']} to {tied['last']}"
    if tied["noise"]:
        usual = ", as the k-th of k separate clusters does" if tied["first"] > 1 else ""
        return "components", (
            f"{which} cannot be told apart; they lie in the noise{usual}"
            + (f". Those above it speak for --k {instead}" if instead else "")
        )
    return "not unique", (
        f"{which} differ by less than {tied['within']:.1g} from one to the next: the leading {k} "
        "components, and so the scores, are not unique"
        + (f"; try --k {instead}" if instead else "")
    )


def _missing(summary: dict[str, Any]) -> str:
    if summary["samples_dropped"]:
        return f"{summary['samples_dropped']:,} samples left out"
    return f"the mean stands in for {summary['missing_values']:,} values"


def _ending(summary: dict[str, Any]) -> str:
    from kmufs_stream.factors.solving import is_greedy

    if summary["h"] == summary["usable"] and summary["iterations"] == 0:
        return f"{summary['solver']}: nothing to choose, all usable features are taken"
    if summary["iterations"] == 0:
        return f"{summary['solver']}: closed form"
    if is_greedy(summary["solver"]):
        return f"{summary['solver']}: one feature after another"
    if summary["converged"]:
        return f"{summary['solver']}: converged after {summary['iterations']} iterations"
    more = f"; give --max-iter {2 * summary['iterations']}, say"
    return (
        f"{summary['solver']}: NOT CONVERGED after {summary['iterations']} iterations, the chosen "
        "set was still changing" + (more if summary["solver"] == "admm" else "")
    )

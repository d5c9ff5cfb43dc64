"""kmufs-stream select"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kmufs_stream.errors import counted
from kmufs_stream_cli import next_commands, options, show
from kmufs_stream_cli.commands.plan import plan_facts
from kmufs_stream_cli.storage_options import parsed
from kmufs_stream_cli.typed import typed
from kmufs_stream_cli.wording import as_typed

if TYPE_CHECKING:
    from kmufs_stream import Event, Matrix, Selection

BEST = 10
WELL_KNOWN = 0.01  # an error of a score


def select(
    data: options.Data,
    table: options.Table,
    k: options.K,
    h: options.H,
    *,
    out: Annotated[
        str | None, options.output("DATA's name + .selected.zarr in this folder")
    ] = None,
    anndata_out: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            callback=options.lasting,
            help="AnnData: copy of the store, with kmufs_selected, kmufs_score and kmufs_rank in "
            "its var.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    choosing: options.Choosing,
    factoring: options.Factoring,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Features that are always chosen, in place of the lowest scores; may be repeated.",
            rich_help_panel=options.SOLVER,
        ),
    ] = None,
    admm: options.Admm,
    resources: options.LongReading,
    screen: options.Showing,
) -> None:
    """Choose the H features of DATA that best separate K clusters, and write them to a Zarr store.

    The data are read once (wide data a few times), block by block, whatever their size.
    """
    matrix = screen.opened(table, data, like=choosing.factor)
    with resources.connected() as used:
        result = run_select(
            matrix,
            k,
            h,
            screen,
            out=next_commands.default_output("select", data) if out is None else out,
            anndata_out=anndata_out,
            overwrite=overwrite,
            keep=keep or None,
            screening=table.screening() if choosing.factor is None else table.asked_screening(),
            options=admm.options(),
            storage_options=table.storage_options(),
            **vars(choosing),
            **factoring.keywords(),
            **used,
        )
    if not screen.printed(result.summary()):
        show_selection(result, table.storage_option)


def run_select(matrix: Matrix, k: int, h: int, screen: options.Showing, **asked: Any) -> Selection:
    """Select with progress shown; ``asked`` are keywords of kmufs_stream.select."""
    from kmufs_stream import Plan, Planned
    from kmufs_stream import select as run

    with screen.progress() as progress:

        def told(event: Event) -> None:
            if screen.log and isinstance(event, Planned) and isinstance(event.plan, Plan):
                for name, value in plan_facts(matrix, event.plan, matrix.transforms):
                    show.say(f"{name}: {value}")
            progress(event)

        return run(matrix, k, h, command=typed(), progress=told, **asked)


def show_selection(result: Selection, stores: list[str] | None = None) -> None:
    """Show what was chosen, how well, what it took, and what to do with it.

    ``stores`` are the words of --storage-option.
    """
    summary = result.summary()
    show.line(
        f"Chose {result.h:,} of {summary['features']:,} features for k = {result.k} from "
        f"{summary['samples']:,} samples.",
        "bold",
    )
    show.line()
    best = result.ranks.argsort()[:BEST]
    columns = [
        ("rank", result.ranks[best]),
        ("feature", result.selected[best]),
        ("score", [f"{score:.4f}" for score in result.scores[best]]),
    ]
    show.features(columns, result.labels, best, result.h)
    show.line()
    show.line(f"  score: the share of its variance in the {result.k} leading components")
    show.line()
    show.facts(_outcome(result, summary))
    if summary["output"] is not None:
        _show_next(result, summary["output"], stores)


def _show_next(result: Selection, output: str, stores: list[str] | None) -> None:
    likely, others = result.likely_classes[:1], result.likely_classes[1:]
    evaluate = next_commands.command(
        "evaluate",
        output,
        labels=likely,
        data=None if result.self_contained else result.matrix.source,
        storage_option=stores,
    )
    note = f"{likely[0]} looks like classes; so may {', '.join(others)}" if others else ""
    in_python = next_commands.open_in_python(output, parsed(stores or []))
    next_commands.show_next(evaluate, *next_commands.report(output, stores), in_python, note=note)


def _outcome(result: Selection, summary: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [
        (
            "objective",
            f"{result.objective:.6g}, the sum of the scores: "
            f"{result.objective / result.optimum:.2%} of the optimum "
            f"{result.optimum:.6g}; more is not better clusters",
        ),
        ("solver", f"{result.solver}: {_ending(result)}"),
        *show.unsettled(result.factor),
        *_doubts(result, summary),
        ("excluded", show.excluded(result.factor)),
    ]
    if result.matrix.hint is not None:
        rows.append(("shape", as_typed(result.matrix.hint)))
    rows += [("note", as_typed(note)) for note in result.notes]
    if summary["samples_dropped"]:
        rows.append(("missing", f"{summary['samples_dropped']:,} samples left out"))
    elif summary["missing_values"]:
        rows.append(("missing", f"the mean stands in for {summary['missing_values']:,} values"))
    if len(result.kept):
        rows.append(("kept", f"{counted(len(result.kept), 'features')}, whatever their scores"))
    if result.matrix.transforms:
        rows.append(("values", "transformed by " + ", then ".join(result.matrix.transforms)))
    if result.plan.concessions:
        rows.append(("to fit", "; ".join(result.plan.concessions)))
    reads = result.passes
    rows.append(
        ("reads", f"{reads} for the factor" if reads else "none for the factor: it was given")
    )
    outputs = [("output", summary["output"]), ("anndata", summary["anndata_output"])]
    return [*rows, *show.took(summary), *((what, path) for what, path in outputs if path)]


def _ending(result: Selection) -> str:
    """Say how the solver came to its choice."""
    solution = result.solution
    if result.h == result.usable and solution.iterations == 0:
        return "nothing to choose, all usable features are taken"
    if solution.iterations == 0:
        return "closed form"
    if result.greedy:
        return "one feature after another"
    if solution.converged:
        return f"converged after {solution.iterations} iterations"
    more = f"; give --max-iter {2 * solution.iterations}, say"
    return (
        f"NOT CONVERGED after {solution.iterations} iterations, the chosen set was still changing"
        + (more if result.solver == "admm" else "")
    )


def _doubts(result: Selection, summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Say why not to trust the choice as it is, the gravest reason first."""
    rows = []
    factor = result.factor
    unasked = set(summary["at_noise"]).difference(summary["kept"])
    # Before all scores have settled, those above noise, if any, are known well enough.
    known = bool(summary["beyond_noise"]) and factor.score_error < WELL_KNOWN
    if unasked and (factor.settled or known) and result.h < summary["usable"]:
        rows.append(("noise", _at_noise(summary)))
    if summary["near_copies"] and not result.greedy:
        rows.append(("copies", _copies(summary)))
    if result.tied_components is not None and factor.settled:
        rows.append(_tied(result.k, **summary["tied_components"]))
    if len(result.ambiguous):
        rows.append(
            (
                "ambiguous",
                f"{len(result.ambiguous):,} features score the same at the cutoff, to within "
                f"{factor.score_error:.1g}; which of them are chosen is arbitrary",
            )
        )
    return rows


def _at_noise(summary: dict[str, Any]) -> str:
    """Say that chosen features tell nothing, and what chooses others."""
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
    """Say that chosen features are nearly the same, and what chooses fewer such."""
    copies, h = len(summary["near_copies"]), summary["h"]
    said = f"{copies:,} of the {h:,} are near copies of others of them"
    if summary["solver"] == "admm":
        said += "; which, and how many, can hang on the last bits (order of rows, precision)"
    return f"{said}: compare with --solver consensus, which usually takes fewer"


def _tied(
    k: int, *, first: int, last: int, within: float, noise: bool, try_k: list[int]
) -> tuple[str, str]:
    """Say that components cannot be told apart, and what follows from it."""
    instead = " or ".join(map(str, try_k))
    which = f"eigenvalues {first} to {last}"
    if noise:
        usual = ", as the k-th of k separate clusters does" if first > 1 else ""
        return "components", (
            f"{which} cannot be told apart; they lie in the noise{usual}"
            + (f". Those above it speak for --k {instead}" if instead else "")
        )
    return "not unique", (
        f"{which} differ by less than {within:.1g} from one to the next: the leading {k} "
        "components, and so the scores, are not unique"
        + (f"; try --k {instead}" if instead else "")
    )

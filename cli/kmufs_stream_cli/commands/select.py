"""kmufs-stream select"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kmufs_stream.errors import counted
from kmufs_stream_cli import next_commands, options, show
from kmufs_stream_cli.commands.plan import plan_facts
from kmufs_stream_cli.typed import typed
from kmufs_stream_cli.wording import as_typed

if TYPE_CHECKING:
    from kmufs_stream import Event, Matrix, Selection

BEST = 5  # features that are shown
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
    columns: list[tuple[str, Any]] = [
        ("rank", result.ranks[best]),
        ("feature", result.selected[best]),
        ("score", [f"{score:.4f}" for score in result.scores[best]]),
    ]
    if result.labels is not None:
        columns.append(("label", [result.labels[i] for i in best]))
    show.table(columns, result.h - len(best))
    show.line()
    show.facts(_outcome(result, summary))
    if (output := summary["output"]) is not None:
        judge = next_commands.command(
            "evaluate",
            output,
            labels=result.likely_classes[:1],
            data=None if result.self_contained else result.matrix.source,
            storage_option=stores,
        )
        next_commands.show_next(judge)


def _outcome(result: Selection, summary: dict[str, Any]) -> list[tuple[str, str]]:
    share = result.objective / result.optimum
    rows = [
        ("objective", f"{result.objective:.6g}, {share:.2%} of the optimum {result.optimum:.6g}"),
        ("solver", f"{result.solver}: {_ending(result)}"),
        *show.factor_facts(result.factor),
        *_doubts(result, summary),
    ]
    notes = [result.matrix.hint, *result.notes]
    rows += [("note", as_typed(note)) for note in notes if note is not None]
    if summary["samples_dropped"]:
        rows.append(("missing", f"{summary['samples_dropped']:,} samples left out"))
    elif summary["missing_values"]:
        rows.append(("missing", f"{counted(summary['missing_values'], 'values')} set to the mean"))
    if len(result.kept):
        rows.append(("kept", f"{counted(len(result.kept), 'features')}, whatever their scores"))
    if result.matrix.transforms:
        rows.append(("values", "transformed by " + ", then ".join(result.matrix.transforms)))
    rows += [("to fit", concession) for concession in result.plan.concessions]
    rows += [("reads", f"{result.passes} for the factor"), *show.took(summary)]
    outputs = [("output", summary["output"]), ("anndata", summary["anndata_output"])]
    return rows + [(what, path) for what, path in outputs if path]


def _ending(result: Selection) -> str:
    """Say how the solver came to its choice."""
    iterations = result.solution.iterations
    if iterations == 0:
        return "all usable features are taken" if result.h == result.usable else "closed form"
    if result.greedy:
        return "one feature after another"
    if result.solution.converged:
        return f"converged after {iterations} iterations"
    more = f"; give --max-iter {2 * iterations}, say" if result.solver == "admm" else ""
    return f"NOT CONVERGED after {iterations} iterations{more}"


def _doubts(result: Selection, summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Say why not to trust the choice as it is, the gravest reason first."""
    rows = []
    h, factor, tied = result.h, result.factor, summary["tied_components"]
    unasked = set(summary["at_noise"]).difference(summary["kept"])
    # Before all scores have settled, those above noise, if any, are known well enough.
    known = bool(summary["beyond_noise"]) and factor.score_error < WELL_KNOWN
    if unasked and (factor.settled or known) and h < summary["usable"]:
        rows.append(("noise", _at_noise(summary)))
    if summary["near_copies"] and not result.greedy:
        copies = f"{len(summary['near_copies']):,} of the {h:,} are near copies of others of them"
        rows.append(("copies", f"{copies}: compare with --solver consensus"))
    if tied is not None and factor.settled and (tied["try_k"] or not tied["noise"]):
        why = "lie in the noise" if tied["noise"] else f"differ by less than {tied['within']:.1g}"
        said = f"eigenvalues {tied['first']} to {tied['last']} {why}: the scores are not unique"
        instead = " or ".join(map(str, tied["try_k"]))
        rows.append(("components", said + (f"; try --k {instead}" if instead else "")))
    if len(result.ambiguous):
        said = f"{len(result.ambiguous):,} features score the same at the cutoff, to within "
        which = f"{factor.score_error:.1g}; which of them are chosen is arbitrary"
        rows.append(("ambiguous", said + which))
    return rows


def _at_noise(summary: dict[str, Any]) -> str:
    """Say that chosen features tell nothing, and what chooses others."""
    h, without, others = summary["h"], len(summary["at_noise"]), summary["beyond_noise"]
    if not others:
        return "no component stands above it: there may be no clusters; see sweep --suggest-k"
    instead = f" --h {others}" if others < h else ""
    if without > h - min(others, h) and summary["solver"] != "exact":
        instead = " --solver exact" + instead
    return (
        f"{without:,} of the {h:,} vary with the leading components no more than independent "
        f"noise would; {others:,} of {summary['usable']:,} vary more"
        + (f": compare with{instead}" if instead else "")
    )

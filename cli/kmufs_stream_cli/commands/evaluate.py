"""kmufs-stream evaluate"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kmufs_stream.errors import RequestError, counted
from kmufs_stream_cli import options, show
from kmufs_stream_cli.progress import opened, shown
from kmufs_stream_cli.table import StoreOptions, on_table

if TYPE_CHECKING:
    from rich.console import Console

    from kmufs_stream import Evaluation

SHOWN = 10  # features
STARTS = 10
COST_RATIO = "of K-means on the chosen features, counted on all; 1 = as good as K-means on all"

MEASURES = "K-means"
NO_TABLE = StoreOptions("")


@on_table
def evaluate(
    results: Annotated[
        list[str],
        typer.Argument(
            metavar="RESULT...",
            help="What select or apply wrote, a folder or an address; several are compared.",
        ),
    ],
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="VAR",
            help="Variable along the samples, of RESULT or of --data, that holds their classes.",
        ),
    ] = None,
    table: Annotated[
        StoreOptions,
        typer.Option(
            "--data",
            metavar="DATA",
            help="The table that was selected from: for the cost on all features, and for a "
            "RESULT that holds no data. All of it is read and clustered too, which takes most of "
            "the time. Transforms, --where and where in DATA the table is are "
            "known from RESULT.",
        ),
    ] = NO_TABLE,
    k: Annotated[
        int | None,
        typer.Option("--k", help="Clusters; those of RESULT by default.", rich_help_panel=MEASURES),
    ] = None,
    starts: Annotated[
        int,
        typer.Option(
            "--starts",
            help="Random starts of K-means; the best one counts, and fewer are sooner.",
            rich_help_panel=MEASURES,
        ),
    ] = STARTS,
    seed: Annotated[
        int, typer.Option("--seed", help="Seed of the starts.", rich_help_panel=MEASURES)
    ] = 0,
    threads: options.Threads = None,
    memory: options.Memory = None,
    json: options.Json = False,
    log: options.Log = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Cluster the samples by the features in RESULT with K-means, and judge what is found.

    Against labels: accuracy, NMI and ARI. Without any: how much worse than K-means on all features
    the clusters are (cost ratio, with --data), what lies between clusters of each chosen feature,
    and how far the features repeat each other. Several RESULTs, such as those of several solvers,
    make a table with a row each.

    Most of the time goes into K-means, of all --starts; with --data once more, on all features.
    This machine does it all: clusters of machines are for what reads whole tables.
    """
    from kmufs_stream import evaluate as run

    _check_table(table)
    measures = {"k": k, "starts": starts if starts != STARTS else None, "seed": seed or None}
    every: list[Evaluation] = []
    for result in results:
        data = opened(table, log=log, quiet=quiet, like=result) if table.data else None
        with shown(log=log, quiet=quiet) as progress:
            found = run(
                result,
                labels=labels,
                data=data,
                k=k,
                starts=starts,
                seed=seed,
                beside=every[-1] if every else None,
                memory=memory,
                threads=threads,
                storage_options=table.storage_options(),
                progress=progress,
            )
        every.append(found)
    if len(every) > 1:
        summaries = [found.summary() for found in every]
        if json:
            show.as_json({"evaluations": summaries})
        else:
            _compare(results, summaries)
            if labels is None:
                _next_comparison(every, results, table, measures)
    elif json:
        show.as_json(found.summary())
    else:
        _show(found, labels)
        _show_next(found, result, table, {"labels": labels, **measures})


def _check_table(table: StoreOptions) -> None:
    """Refuse options of --data where it is not given: nobody would look at them."""
    unused = set(table.typed()) - {"storage_option"}
    if unused and not table.data:
        option = min(f"--{name.replace('_', '-')}" for name in unused)
        raise RequestError(
            "bad_option",
            f"{option} tells how to open --data, and no --data is given: RESULT is judged by all "
            "its samples.",
            f"Leave {option} out, or give the table that RESULT was made from as --data.",
        )


def _compare(results: list[str], summaries: list[dict[str, Any]]) -> None:
    """One row of each; what none of them has is left out."""
    measures = {
        "accuracy": ("accuracy", "{:.2%}"),
        "NMI": ("nmi", "{:.4f}"),
        "cost ratio": ("cost_ratio", "{:.4f}"),
        "|correlation|": ("mean_correlation", "{:.4f}"),
    }
    shown = {
        name: measure
        for name, measure in measures.items()
        if any(summary[measure[0]] is not None for summary in summaries)
    }
    columns = [("solver", False), ("k", True), ("h", True), *((name, True) for name in shown)]
    rows = [
        [
            summary["solver"] or "-",
            str(summary["k"]),
            str(summary["h"]),
            *(
                "-" if summary[key] is None else text.format(summary[key])
                for key, text in shown.values()
            ),
            result,
        ]
        for result, summary in zip(results, summaries, strict=True)
    ]
    out = show.console()
    show.table(out, [*columns, ("result", False)], rows)
    show.line(out)
    if "accuracy" not in shown:
        whole = "" if "cost ratio" in shown else "; --data DATA with K-means on all features"
        show.line(out, f"  --labels VAR compares with known classes{whole}")
    if "cost ratio" in shown:
        show.line(out, f"  cost ratio: {COST_RATIO}")
    show.line(out, "  |correlation|: mean, of two chosen features; 1 if all say the same")


def _next_comparison(
    every: list[Evaluation], results: list[str], table: StoreOptions, measures: dict[str, Any]
) -> None:
    """What tells results apart that were compared without classes."""
    likely = [
        name
        for name in likely_labels(results[0], table)
        if all(name in found.described_by for found in every)
    ]
    made_of = {found.made_of for found in every}
    asked: dict[str, Any] = {"data": table.data or None, **table.typed(), **measures}
    if likely:
        asked["labels"] = likely[0]
    elif not table.data and len(made_of) == 1 and show.can_be_typed(data := made_of.pop() or ""):
        asked["data"] = data
    else:
        return
    show.next_commands(show.console(), show.command("evaluate", results, **asked))


def likely_labels(result: str, table: StoreOptions) -> list[str]:
    """Coordinates of the samples of a written selection that look like their classes."""
    from kmufs_stream.results.reading import open_selection
    from kmufs_stream.sources.labels import likely_classes
    from kmufs_stream.storage.places import place_of

    stored = open_selection(place_of(result, table.storage_options()))
    return [] if stored.matrix is None else likely_classes(stored.matrix, stored.k)


def _show(found: Evaluation, labels: str | None) -> None:
    out = show.console()
    summary = found.summary()
    show.line(
        out,
        f"K-means with k = {summary['k']} on the {summary['h']:,} chosen features of "
        f"{summary['samples']:,} samples.",
        "bold",
    )
    show.line(out)
    show.facts(out, [_labels(found, labels), *_measures(found, summary)])
    show.line(out)
    show.line(out, "The share of a feature's variance that lies between the clusters:")
    show.line(out)
    _show_features(out, found)
    if summary["h"] > SHOWN:
        show.line(out, f"  and {summary['h'] - SHOWN:,} more")


def _show_next(found: Evaluation, result: str, table: StoreOptions, asked: dict[str, Any]) -> None:
    """What there is to see of a selection, and what its data, where they are, would tell of it."""
    data, stores = found.made_of, table.storage_option
    if data is None:
        return
    commands = show.report(result, stores)
    if not table.data and show.can_be_typed(data):
        again = show.command("evaluate", result, **asked, data=data, storage_option=stores)
        commands.append(again)
    show.next_commands(show.console(), *commands)


def _labels(found: Evaluation, labels: str | None) -> tuple[str, str]:
    """The classes that were compared with, or what could be."""
    if found.agreement is not None:
        classes = counted(found.agreement.classes, "classes")
        return "labels", f"{labels}: {classes} of {counted(found.agreement.samples, 'samples')}"
    said = "none given: --labels VAR compares with known classes"
    if found.described_by:
        said += f"; the samples have {show.few(found.described_by)}"
    return "labels", said


def _measures(found: Evaluation, summary: dict[str, Any]) -> list[tuple[str, str]]:
    rows = []
    if summary["accuracy"] is not None:
        rows += [
            ("accuracy", f"{summary['accuracy']:.2%} under the best matching"),
            ("NMI", f"{summary['nmi']:.4f}"),
            ("ARI", f"{summary['ari']:.4f}"),
        ]
    if summary["cost_ratio"] is None:
        why = f"needs the table that was selected from: --data {found.made_of}"
        applied = "not known of what apply wrote: it has no means of the features left out"
        rows.append(("cost ratio", applied if found.made_of is None else why))
    else:
        ratio = f"{summary['cost_ratio']:.4f}"
        rows.append(
            (
                "cost ratio",
                f"{ratio}, 1 = as good as K-means on all features: of their "
                f"variance {summary['full_cost']:.2%} is within these clusters, "
                f"{summary['best_full_cost']:.2%} within those of K-means on all"
                + ("; that found worse ones" if float(ratio) < 1 else ""),
            )
        )
    rows += [
        ("cost", f"{summary['cost']:.2%} of the chosen features' variance is within clusters"),
        (
            "redundancy",
            f"mean |correlation| {summary['mean_correlation']:.4f}; effective rank "
            f"{summary['effective_rank']:.1f}: the {summary['h']:,} are worth "
            f"{summary['effective_rank']:.1f} uncorrelated ones",
        ),
        ("clusters", ", ".join(f"{size:,}" for size in summary["cluster_sizes"]) + " samples"),
        ("K-means", _ending(summary)),
    ]
    if summary["missing_values"]:
        values = counted(summary["missing_values"], "values")
        rows.append(("missing", f"means stand in for {values}"))
    if summary["concessions"]:
        rows.append(("to fit", "; ".join(summary["concessions"])))
    return rows + show.took(summary)


def _ending(summary: dict[str, Any]) -> str:
    how = {"scikit-learn": "in memory", "lloyd": "by full Lloyd steps, a read each"}
    came = "came to rest" if summary["converged"] else "was STILL MOVING"
    return (
        f"best of {summary['starts']:,} starts, {how[summary['method']]}; it {came} after "
        f"{summary['iterations']:,} iterations"
    )


def _show_features(out: Console, found: Evaluation) -> None:
    columns = [("feature", True), ("between", True)]
    if found.names is not None:
        columns.append(("label", False))
    rows = []
    for i in (-found.between).argsort(kind="stable")[:SHOWN]:
        row = [str(found.selected[i]), f"{found.between[i]:.2%}"]
        rows.append(row if found.names is None else [*row, str(found.names[i])])
    show.table(out, columns, rows)

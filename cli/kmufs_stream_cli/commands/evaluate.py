"""kmufs-stream evaluate"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kmufs_stream import RequestError
from kmufs_stream.errors import counted
from kmufs_stream_cli import next_commands, options, show
from kmufs_stream_cli.groups import Group, section

if TYPE_CHECKING:
    from kmufs_stream import Evaluation

SHOWN = 10  # features
COMPARED = {  # measures of a row of a table, and how they are written
    "accuracy": ("accuracy", "{:.2%}"),
    "NMI": ("nmi", "{:.4f}"),
    "cost ratio": ("cost_ratio", "{:.4f}"),
    "|correlation|": ("mean_correlation", "{:.4f}"),
}
ACCURACY = "of the samples are in the cluster that is matched with their class"
NMI = "0 if the clusters tell nothing of the classes, 1 if they are the same"
COST_RATIO = "of K-means on the chosen features, counted on all; 1 = as good as K-means on all"

kmeans = section("K-means")


@dataclass(frozen=True)
class Measuring(Group):
    """How K-means is run."""

    k: int | None = kmeans(None, "Clusters; those of RESULT by default.")
    starts: int = kmeans(10, "Random starts of K-means; the best one counts, and fewer are sooner.")
    seed: int = kmeans(0, "Seed of the starts.")


def evaluate(
    results: Annotated[
        list[str],
        typer.Argument(
            metavar="RESULT...",
            help="What select or apply wrote, a folder or an address; several are compared.",
        ),
    ],
    *,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="VAR",
            help="Variable along the samples, of RESULT or of --data, that holds their classes.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="The table that was selected from: for the cost on all features, and for a "
            "RESULT that holds no data. All of it is read and clustered too, which takes most of "
            "the time. It is opened with the options recorded in RESULT.",
        ),
    ] = None,
    table: options.Store,
    measuring: Measuring,
    resources: options.Threads,
    screen: options.Showing,
) -> None:
    """Cluster the samples by the features in RESULT with K-means, and judge what is found.

    Against labels: accuracy, NMI and ARI. Without any: how much worse than K-means on all features
    the clusters are (cost ratio, with --data), what share of each chosen feature's variance lies
    between clusters, and how far the features repeat each other. Several RESULTs, such as those of
    several solvers, make a table with a row each.

    Most of the time goes into K-means, of all --starts; with --data once more, on all features.
    All of it runs on this machine: clusters of machines are for commands that read whole tables.
    """
    from kmufs_stream import evaluate as run

    if data is None:
        _refuse_unused(table)
    every: list[Evaluation] = []
    for result in results:
        matrix = None if data is None else screen.opened(table, data, like=result)
        with screen.progress() as progress:
            found = run(
                result,
                labels=labels,
                data=matrix,
                **vars(measuring),
                **vars(resources),
                beside=every[-1] if every else None,
                storage_options=table.storage_options(),
                progress=progress,
            )
        every.append(found)
    summaries = [found.summary() for found in every]
    if screen.printed(summaries[0] if len(every) == 1 else {"evaluations": summaries}):
        return
    asked = {"labels": labels, **measuring.typed(), "data": data, **table.typed()}
    if len(every) == 1:
        _show(every[0], labels)
        next_commands.show_next(*_next(every[0], results[0], asked))
        return
    _compare(results, summaries)
    if labels is None:
        next_commands.show_next(*_next_comparison(every, results, asked))


def _refuse_unused(table: options.Store) -> None:
    """Refuse options of --data where it is not given: nobody would look at them."""
    unused = table.typed().keys() - {"storage_option"}
    if unused:
        option = min(f"--{name.replace('_', '-')}" for name in unused)
        raise RequestError(
            "bad_option",
            f"{option} tells how to open --data, and no --data is given: RESULT is judged by all "
            "its samples.",
            f"Leave {option} out, or give the table that RESULT was made from as --data.",
        )


def _compare(results: list[str], summaries: list[dict[str, Any]]) -> None:
    """Show a row for each result, without measures that none of them has."""
    shown = {
        name: (key, text)
        for name, (key, text) in COMPARED.items()
        if any(summary[key] is not None for summary in summaries)
    }
    columns = [("solver", False), ("k", True), ("h", True), *((name, True) for name in shown)]
    rows = []
    for result, summary in zip(results, summaries, strict=True):
        values = [(summary[key], text) for key, text in shown.values()]
        measures = ["-" if value is None else text.format(value) for value, text in values]
        row = [summary["solver"] or "-", str(summary["k"]), str(summary["h"]), *measures, result]
        rows.append(row)
    show.table([*columns, ("result", False)], rows)
    show.line()
    if "accuracy" in shown:
        show.line(f"  accuracy: share {ACCURACY}")
        show.line(f"  NMI: {NMI}")
    else:
        whole = "" if "cost ratio" in shown else "; --data DATA with K-means on all features"
        show.line(f"  --labels VAR compares with known classes{whole}")
    if "cost ratio" in shown:
        show.line(f"  cost ratio: {COST_RATIO}")
    show.line("  |correlation|: mean, of two chosen features; 1 if all say the same")


def _next_comparison(
    every: list[Evaluation], results: list[str], asked: dict[str, Any]
) -> list[str]:
    """Compare again by classes that the samples seem to have, or else on all features."""
    described = set.intersection(*(set(found.described_by) for found in every))
    likely = [name for name in every[0].likely_classes if name in described]
    made_of, *others = {found.made_of or "" for found in every}
    if likely:
        asked = {**asked, "labels": likely[0]}
    elif asked["data"] is None and not others and next_commands.can_be_typed(made_of):
        asked = {**asked, "data": made_of}
    else:
        return []
    return [next_commands.command("evaluate", results, **asked)]


def _next(found: Evaluation, result: str, asked: dict[str, Any]) -> list[str]:
    """Draw a selection; judge it again with its data, if they are still there."""
    if found.made_of is None:
        return []
    commands = next_commands.report(result, asked.get("storage_option"))
    if asked["data"] is None and next_commands.can_be_typed(found.made_of):
        again = {**asked, "data": found.made_of}
        commands.append(next_commands.command("evaluate", result, **again))
    return commands


def _show(found: Evaluation, labels: str | None) -> None:
    summary = found.summary()
    show.line(
        f"K-means with k = {summary['k']} on the {summary['h']:,} chosen features of "
        f"{summary['samples']:,} samples.",
        "bold",
    )
    show.line()
    show.facts([_labels(found, labels), *_measures(found, summary)])
    show.line()
    show.line("The share of a feature's variance that lies between the clusters:")
    show.line()
    best = (-found.between).argsort(kind="stable")[:SHOWN]
    columns = [
        ("feature", found.selected[best]),
        ("between", [f"{share:.2%}" for share in found.between[best]]),
    ]
    show.features(columns, found.names, best, summary["h"])


def _labels(found: Evaluation, labels: str | None) -> tuple[str, str]:
    """Say which classes were compared with, or which could be."""
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
            ("accuracy", f"{summary['accuracy']:.2%} {ACCURACY}"),
            ("NMI", f"{summary['nmi']:.4f}: {NMI}"),
            ("ARI", f"{summary['ari']:.4f}: 0 as by chance, 1 if they are the same"),
        ]
    rows += [
        ("cost ratio", _cost_ratio(found, summary)),
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
        rows.append(
            ("missing", f"means stand in for {counted(summary['missing_values'], 'values')}")
        )
    if summary["concessions"]:
        rows.append(("to fit", "; ".join(summary["concessions"])))
    return rows + show.took(summary)


def _cost_ratio(found: Evaluation, summary: dict[str, Any]) -> str:
    if summary["cost_ratio"] is not None:
        ratio = f"{summary['cost_ratio']:.4f}"
        return (
            f"{ratio}, 1 = as good as K-means on all features: of their variance "
            f"{summary['full_cost']:.2%} is within these clusters, "
            f"{summary['best_full_cost']:.2%} within those of K-means on all"
            + ("; that found worse ones" if float(ratio) < 1 else "")
        )
    if found.made_of is None:
        return "not known of what apply wrote: it has no means of the features left out"
    return f"needs the table that was selected from: --data {found.made_of}"


def _ending(summary: dict[str, Any]) -> str:
    how = {"scikit-learn": "in memory", "lloyd": "by full Lloyd steps, a read each"}
    converged = "converged" if summary["converged"] else "NOT CONVERGED"
    return (
        f"best of {summary['starts']:,} starts, {how[summary['method']]}; {converged} after "
        f"{summary['iterations']:,} iterations"
    )

"""kmufs-stream evaluate"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kmufs_stream import RequestError
from kmufs_stream.errors import counted, first_few
from kmufs_stream_cli import next_commands, options, show
from kmufs_stream_cli.groups import Group, section

if TYPE_CHECKING:
    from kmufs_stream import Evaluation

SHOWN = 5  # features
COMPARED = {  # measures of a row of a table, and how they are written
    "accuracy": ("accuracy", "{:.2%}"),
    "NMI": ("nmi", "{:.4f}"),
    "cost ratio": ("cost_ratio", "{:.4f}"),
    "|correlation|": ("mean_correlation", "{:.4f}"),
}
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
    if len(every) == 1:
        _show(every[0], labels)
    else:
        _compare(results, summaries)
    if all(found.made_of is not None for found in every):
        next_commands.show_next(next_commands.report(*results, stores=table.storage_option))


def _refuse_unused(table: options.Store) -> None:
    """Refuse options of --data where it is not given: nobody would look at them."""
    unused = [name for name in table.typed() if name != "storage_option"]
    if unused:
        option = f"--{unused[0].replace('_', '-')}"
        raise RequestError(
            "bad_option",
            f"{option} tells how to open --data, and no --data is given.",
            f"Leave {option} out, or give the table that RESULT was made from as --data.",
        )


def _compare(results: list[str], summaries: list[dict[str, Any]]) -> None:
    """Show a row for each result, without measures that none of them has."""
    columns: list[tuple[str, list[Any]]] = [
        ("solver", [summary["solver"] or "-" for summary in summaries]),
        ("k", [summary["k"] for summary in summaries]),
        ("h", [summary["h"] for summary in summaries]),
    ]
    for name, (key, form) in COMPARED.items():
        values = [summary[key] for summary in summaries]
        if any(value is not None for value in values):
            columns.append((name, ["-" if v is None else form.format(v) for v in values]))
    show.table([*columns, ("result", results)])


def _show(found: Evaluation, labels: str | None) -> None:
    summary = found.summary()
    show.line(
        f"K-means with k = {summary['k']} on the {summary['h']:,} chosen features of "
        f"{summary['samples']:,} samples.",
        "bold",
    )
    show.line()
    show.facts([("labels", _labels(found, labels)), *_measures(found, summary)])
    show.line()
    best = (-found.between).argsort(kind="stable")[:SHOWN]
    columns: list[tuple[str, Any]] = [
        ("feature", found.selected[best]),
        ("between", [f"{share:.2%}" for share in found.between[best]]),
    ]
    if found.names is not None:
        columns.append(("label", [found.names[i] for i in best]))
    show.table(columns, summary["h"] - len(best))


def _labels(found: Evaluation, labels: str | None) -> str:
    """Say which classes were compared with, and how well they agree; or which could be."""
    if (agreement := found.agreement) is not None:
        part = f" of {agreement.samples:,} samples" * (agreement.samples < found.samples)
        return (
            f"{labels}, {counted(agreement.classes, 'classes')}{part}: accuracy "
            f"{agreement.accuracy:.2%}, NMI {agreement.nmi:.4f}, ARI {agreement.ari:.4f}"
        )
    said = "none given: --labels VAR compares with known classes"
    if found.described_by:
        said += f"; the samples have {first_few(found.described_by)}"
    return said


def _measures(found: Evaluation, summary: dict[str, Any]) -> list[tuple[str, str]]:
    ratio = "not known of what apply wrote: it has no means of the features left out"
    if summary["cost_ratio"] is not None:
        ratio = f"{summary['cost_ratio']:.4f}, 1 = as good as K-means on all features"
    elif found.made_of is not None:
        ratio = f"needs the table that was selected from: --data {found.made_of}"
    converged = "converged" if summary["converged"] else "NOT CONVERGED"
    rows = [
        ("cost ratio", ratio),
        ("cost", f"{summary['cost']:.2%} of the chosen features' variance is within clusters"),
        (
            "redundancy",
            f"mean |correlation| {summary['mean_correlation']:.4f}; effective rank "
            f"{summary['effective_rank']:.1f}",
        ),
        ("clusters", f"of {found.sizes.min():,} to {found.sizes.max():,} samples"),
        (
            "K-means",
            f"best of {counted(summary['starts'], 'starts')}, {converged} after "
            f"{summary['iterations']:,} iterations",
        ),
    ]
    if missing := summary["missing_values"]:
        rows.append(("missing", f"means stand in for {counted(missing, 'values')}"))
    rows += [("to fit", concession) for concession in summary["concessions"]]
    return rows + show.took(summary)

"""The options that commands share, each said once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_args

import typer

from kmufs_stream import options as choices
from kmufs_stream.options import MethodName, MissingPolicy, PrecisionName
from kmufs_stream_cli.outputs import lasting

STORE = "What the data are"
PART = "What takes part"
RESOURCES = "Resources"
OUTPUT = "Output"
FACTOR = "Factor"
SOLVER = "Solver"

# The library checks names, and says which may have been meant: parser=str.
MISSING = get_args(MissingPolicy)
PRECISIONS = get_args(PrecisionName)
METHODS = get_args(MethodName)
SOLVERS = get_args(choices.SolverName)
TOL, MAX_PASSES = 1e-4, 12
USUAL: dict[str, Any] = {
    "solver": "admm",
    "method": "auto",
    "tol": TOL,
    "max_passes": MAX_PASSES,
    "seed": 0,
    "precision": "auto",
}


def completed(names: Sequence[str]) -> Callable[[str], list[str]]:
    """For the shell: the names that a word, or what follows its last comma, may become."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [before + comma + name for name in names if name.startswith(last)]

    return complete


def unusual(**given: Any) -> dict[str, Any]:
    """Of options those that differ from their defaults, to be typed again."""
    return {name: value for name, value in given.items() if value != USUAL.get(name)}


Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="Zarr store (a folder, zipped, or an address like s3://bucket/data.zarr): array, "
        "group or dataset; AnnData in Zarr or .h5ad.",
    ),
]
K = Annotated[int, typer.Option("--k", help="Number of clusters; sweep --suggest-k tells of one.")]
H = Annotated[int, typer.Option("--h", help="Number of features to choose.")]

Variable = Annotated[
    str | None,
    typer.Option(
        "--variable",
        metavar="NAME",
        help="The variable that is the table; needed where the store holds several.",
        rich_help_panel=STORE,
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group", metavar="PATH", help="Group of the store to look in.", rich_help_panel=STORE
    ),
]
SampleDims = Annotated[
    str | None,
    typer.Option(
        "--sample-dims",
        metavar="NAME,...",
        help="Dimensions that hold the samples, such as time; stacked where several. Of two "
        "dimensions the first by default.",
        rich_help_panel=STORE,
    ),
]
FeatureDims = Annotated[
    str | None,
    typer.Option(
        "--feature-dims",
        metavar="NAME,...",
        help="Dimensions that hold the features; those not in --sample-dims by default.",
        rich_help_panel=STORE,
    ),
]
FeaturesFromVariables = Annotated[
    bool,
    typer.Option(
        "--features-from-variables",
        help="Every variable of the dataset, along the same dimensions, is a feature.",
        rich_help_panel=STORE,
    ),
]
Layer = Annotated[
    str | None,
    typer.Option(
        "--layer",
        metavar="NAME",
        help="AnnData: a layer, instead of X.",
        rich_help_panel=STORE,
    ),
]
Raw = Annotated[
    bool,
    typer.Option("--raw", help="AnnData: the X of raw, instead of X.", rich_help_panel=STORE),
]
FeatureLabels = Annotated[
    str | None,
    typer.Option(
        "--feature-labels",
        metavar="NAME",
        help="Coordinate, or column of an AnnData's var, that names the features.",
        rich_help_panel=STORE,
    ),
]
Transform = Annotated[
    list[str] | None,
    typer.Option(
        "--transform",
        metavar="log1p|normalise-rows[:TOTAL]",
        help="Applied to values as they are read: log(1 + x), or each row scaled to sum to TOTAL "
        "(10000). Give it again for several, in the order of application.",
        rich_help_panel=STORE,
    ),
]
FillMissingChunks = Annotated[
    bool,
    typer.Option(
        "--fill-missing-chunks",
        help="Take chunks that the store does not hold for its fill value, instead of failing.",
        rich_help_panel=STORE,
    ),
]

Retries = Annotated[
    int,
    typer.Option(
        "--retries",
        metavar="N",
        help="How often a chunk whose reading fails is asked for again.",
        rich_help_panel=STORE,
    ),
]

StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="Of fsspec, for every address (s3://...) here, like endpoint_url=https://...; may be "
        "repeated. Credentials are taken from the environment.",
        rich_help_panel=STORE,
    ),
]

Features = Annotated[
    list[str] | None,
    typer.Option(
        "--features",
        metavar="PATTERN",
        help="Only features whose label meets it, like 'MT-*', or is a line of @FILE; may be "
        "repeated.",
        rich_help_panel=PART,
    ),
]
ExcludeFeatures = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude-features",
        metavar="PATTERN",
        help="No features whose label meets it; may be repeated.",
        rich_help_panel=PART,
    ),
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="CONDITION",
        help="Only samples whose coordinates meet it, like \"batch == 'b1' and depth > 10\".",
        rich_help_panel=PART,
    ),
]
Missing = Annotated[
    MissingPolicy,
    typer.Option(
        "--missing",
        parser=str,
        metavar="|".join(MISSING),
        autocompletion=completed(MISSING),
        help="What to do about missing values (NaN): refuse them, leave out the features or the "
        "samples that have any, or let the feature's mean stand in. Features without any value are "
        "left out anyway.",
        rich_help_panel=PART,
    ),
]
MinStd = Annotated[
    float,
    typer.Option(
        "--min-std",
        help="Leave out features of a smaller standard deviation, in the unit of their values.",
        rich_help_panel=PART,
    ),
]
MinNonzero = Annotated[
    float,
    typer.Option(
        "--min-nonzero",
        metavar="FRACTION",
        help="Leave out features that are not 0 in fewer than this share of the samples, 0 to 1.",
        rich_help_panel=PART,
    ),
]

Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS|FILE",
        help="Dask scheduler whose workers read: tcp://host:8786, or its scheduler file.",
        rich_help_panel=RESOURCES,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        help="Start N processes here that read; --memory is shared out among all.",
        rich_help_panel=RESOURCES,
    ),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="PATH",
        callback=lasting,
        help="Keep what has been read there until the run has ended; OUT.checkpoint by default "
        "where more than 50 GB are to be read.",
        rich_help_panel=RESOURCES,
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Go on from the checkpoint, where there is one; else begin anew, and say so.",
        rich_help_panel=RESOURCES,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        help="Blocks read and worked on side by side, in each worker of a cluster; one more than "
        "there are cores by default.",
        rich_help_panel=RESOURCES,
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="Most memory to use, such as 2GB or 2GiB; half of what is free by default.",
        rich_help_panel=RESOURCES,
    ),
]
Precision = Annotated[
    PrecisionName,
    typer.Option(
        "--precision",
        parser=str,
        metavar="|".join(PRECISIONS),
        autocompletion=completed(PRECISIONS),
        help="Precision of products of blocks; auto: float32 where it holds the data's values, "
        "else float64.",
        rich_help_panel=RESOURCES,
    ),
]

Method = Annotated[
    MethodName,
    typer.Option(
        "--method",
        parser=str,
        metavar="|".join(METHODS),
        autocompletion=completed(METHODS),
        help="gram: one read. lanczos: a few reads, for wide data. tsqr: one read, slower, for "
        "ill-conditioned data. auto: gram up to 6000 features, else lanczos.",
        rich_help_panel=FACTOR,
    ),
]
Tol = Annotated[
    float,
    typer.Option(
        "--tol",
        help="lanczos: error that is small enough of a score, which is between 0 and 1.",
        rich_help_panel=FACTOR,
    ),
]
MaxPasses = Annotated[
    int,
    typer.Option(
        "--max-passes", help="lanczos: how often the data are read at most.", rich_help_panel=FACTOR
    ),
]
Seed = Annotated[
    int,
    typer.Option("--seed", help="lanczos: seed of the random start.", rich_help_panel=FACTOR),
]

SolverName = Annotated[
    choices.SolverName,
    typer.Option(
        "--solver",
        parser=str,
        metavar="|".join(SOLVERS),
        autocompletion=completed(SOLVERS),
        help="admm: the paper's algorithm. consensus: best aligned with an ensemble of "
        "clusterings; best at finding known classes, of which it sees nothing. css: spans the "
        "leading components. exact: the optimum of the paper's model. joint: the paper's problem "
        "before its relaxation.",
        rich_help_panel=SOLVER,
    ),
]

FactorPath = Annotated[
    str | None,
    typer.Option(
        "--factor",
        metavar="PATH",
        help="Factor of these data, from decompose, for which they are not read again; it knows "
        "how they were opened, and what of them takes part.",
        rich_help_panel=FACTOR,
    ),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        "--keep",
        metavar="PATTERN",
        help="Features that are always chosen, in place of the lowest scores; may be repeated.",
        rich_help_panel=SOLVER,
    ),
]
SelectionOnly = Annotated[
    bool,
    typer.Option(
        "--selection-only",
        help="Write indices, scores and diagnostics, copy no data.",
        rich_help_panel=OUTPUT,
    ),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Replace an existing output, once the new one is complete.",
        rich_help_panel=OUTPUT,
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Print one JSON object on stdout, nothing else.", rich_help_panel=OUTPUT
    ),
]
Log = Annotated[
    bool,
    typer.Option(
        "--log",
        help="Plain lines on stderr every so often, in place of the live display: for files.",
        rich_help_panel=OUTPUT,
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="Nothing on stderr, unless something fails.", rich_help_panel=OUTPUT
    ),
]
Debug = Annotated[
    bool,
    typer.Option(
        "--debug",
        help="Show warnings, and the traceback of an error.",
        rich_help_panel=OUTPUT,
    ),
]

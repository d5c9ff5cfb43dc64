"""Options that several commands take: each is declared once, in a group that is a dataclass."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from kmufs_stream import MethodName, MissingPolicy, PrecisionName, RequestError, SolverName
from kmufs_stream_cli.groups import Group, section
from kmufs_stream_cli.storage_options import parsed

if TYPE_CHECKING:
    from kmufs_stream import AdmmOptions, Matrix, Progress, Screening

OUTPUT, RESOURCES, SOLVER = "Output", "Resources", "Solver"
SOLVERS = get_args(SolverName)


def lasting(place: str | None) -> str | None:
    """Refuse an output in memory, which would end with this process."""
    if place is not None and "memory" in place.rpartition("://")[0].split("::"):
        raise RequestError(
            "not_lasting",
            "memory:// is memory of this process: what is written there is gone when it ends.",
            "Give a path, or an address like s3://bucket/name.zarr.",
        )
    return place


def output(default: str) -> Any:
    """Declare the option --out for a Zarr store to write."""
    return typer.Option(
        metavar="PATH", callback=lasting, help=_to_write(default), rich_help_panel=OUTPUT
    )


def output_argument(default: str) -> Any:
    """Declare a second argument OUT for a Zarr store to write."""
    return typer.Argument(metavar="OUT", callback=lasting, help=_to_write(default))


def _to_write(default: str) -> str:
    return f"Zarr store to write, a path or address; {default} by default."


Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="Zarr store (a folder, zipped, or an address like s3://bucket/data.zarr): array, "
        "group or dataset; AnnData in Zarr or .h5ad.",
    ),
]
K = Annotated[int, typer.Option("--k", help="Number of clusters; sweep --suggest-k proposes one.")]
H = Annotated[int, typer.Option("--h", help="Number of features to choose.")]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Replace an existing output, once the new one is complete.",
        rich_help_panel=OUTPUT,
    ),
]

in_store = section("What the data are")
in_part = section("What takes part")
in_resources = section(RESOURCES)
in_factor = section("Factor")
in_solver = section(SOLVER)
in_output = section(OUTPUT)


def storage_option() -> Any:
    return in_store(
        None,
        "Passed to fsspec for every address (s3://...) here, like endpoint_url=https://...; may "
        "be repeated. Credentials are taken from the environment.",
        "KEY=VALUE",
    )


@dataclass(frozen=True)
class Addresses(Group):
    """How stores elsewhere are reached."""

    storage_option: list[str] | None = storage_option()

    def storage_options(self) -> dict[str, Any]:
        return parsed(self.storage_option or [])


@dataclass(frozen=True)
class Store(Group):
    """Where in DATA the table is, and how it is read."""

    variable: str | None = in_store(
        None, "The variable that is the table; needed if the store holds several.", "NAME"
    )
    group: str | None = in_store(None, "Group of the store to look in.", "PATH")
    sample_dims: str | None = in_store(
        None,
        "Dimensions of the samples, such as time; several are stacked. The first of two by "
        "default.",
        "NAME,...",
    )
    feature_dims: str | None = in_store(
        None, "Dimensions of the features; those not in --sample-dims by default.", "NAME,..."
    )
    features_from_variables: bool = in_store(
        False, "Each variable of the dataset is a feature; all have the same dimensions."
    )
    layer: str | None = in_store(None, "AnnData: this layer instead of X.", "NAME")
    raw: bool = in_store(False, "AnnData: the X of raw instead of X.")
    feature_labels: str | None = in_store(
        None, "Coordinate, or column of an AnnData's var, that names the features.", "NAME"
    )
    fill_missing_chunks: bool = in_store(
        False, "Read chunks that the store lacks as its fill value, instead of failing."
    )
    retries: int = in_store(5, "How often a chunk is read again after an error.", "N")
    storage_option: list[str] | None = storage_option()
    where: str | None = in_part(
        None,
        "Only samples whose coordinates meet it, like \"batch == 'b1' and depth > 10\".",
        "CONDITION",
    )

    def storage_options(self) -> dict[str, Any]:
        return parsed(self.storage_option or [])

    def open(self, data: str, like: str | None = None) -> Matrix:
        """Open a table with these options, and those recorded in a factor or selection."""
        from kmufs_stream import open_like

        return open_like(like, data, **self._opening())

    def _opening(self) -> dict[str, Any]:
        """Return the keywords of open_matrix."""
        asked = {**vars(self), "storage_options": self.storage_options()}
        del asked["storage_option"]
        for dims in ("sample_dims", "feature_dims"):
            names = asked[dims]
            asked[dims] = None if names is None else [name.strip() for name in names.split(",")]
        return asked


@dataclass(frozen=True)
class Table(Store):
    """The same, and what of the table takes part."""

    transform: list[str] | None = in_store(
        None,
        "Applied to values as they are read: log(1 + x), or each row scaled to sum to TOTAL "
        "(10000). May be repeated; applied in the order given.",
        "log1p|normalise-rows[:TOTAL]",
    )
    features: list[str] | None = in_part(
        None,
        "Only features whose label matches, like 'MT-*', or is a line of @FILE; may be repeated.",
        "PATTERN",
    )
    exclude_features: list[str] | None = in_part(
        None, "No features whose label matches; may be repeated.", "PATTERN"
    )
    missing: MissingPolicy = in_part(
        "raise",
        "What to do about missing values (NaN): refuse them, leave out the features or the "
        "samples that have any, or use the feature's mean instead. Features without any value are "
        "always left out.",
        choices=get_args(MissingPolicy),
    )
    min_std: float = in_part(
        0.0, "Leave out features with a smaller standard deviation, in units of the data."
    )
    min_nonzero: float = in_part(
        0.0,
        "Leave out features that are nonzero in a smaller share of the samples, 0 to 1.",
        "FRACTION",
    )

    def screening(self) -> Screening:
        from kmufs_stream import Screening

        return Screening(**self._screening())

    def asked_screening(self) -> Screening | None:
        """Return the same if any of it is asked for: then a given factor has to agree with it."""
        return self.screening() if self._screening().keys() & self.typed().keys() else None

    def _screening(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("missing", "min_std", "min_nonzero")}

    def _opening(self) -> dict[str, Any]:
        asked = super()._opening()
        for name in self._screening():
            del asked[name]
        return asked | {name: asked[name] or None for name in ("features", "exclude_features")}


@dataclass(frozen=True)
class Factoring(Group):
    """How the factor is computed."""

    method: MethodName = in_factor(
        "auto",
        "gram: one read. lanczos: a few reads, for wide data. tsqr: one read, slower, for "
        "ill-conditioned data. auto: gram up to 6000 features, else lanczos.",
        choices=get_args(MethodName),
    )
    tol: float = in_factor(1e-4, "lanczos: largest error of a score, which is between 0 and 1.")
    max_passes: int = in_factor(12, "lanczos: how often the data are read at most.")
    seed: int = in_factor(0, "lanczos: seed of the random start.")

    def keywords(self) -> dict[str, Any]:
        from kmufs_stream import LanczosOptions

        lanczos = LanczosOptions(self.tol, self.max_passes, self.seed)
        return {"method": self.method, "lanczos": lanczos}


@dataclass(frozen=True)
class Choosing(Group):
    """How features are chosen, and whether their data are written."""

    factor: str | None = in_factor(
        None,
        "Factor of these data, from decompose: they are not read to compute it again, and are "
        "opened with the options recorded in it.",
        "PATH",
    )
    solver: SolverName = in_solver(
        "admm",
        "admm: the paper's algorithm. consensus: best aligned with an ensemble of clusterings; "
        "finds known classes best, without seeing them. css: spans the leading components. exact: "
        "the optimum of the paper's model. joint: the paper's problem before its relaxation.",
        choices=SOLVERS,
    )
    selection_only: bool = in_output(False, "Write indices, scores and diagnostics, but no data.")


@dataclass(frozen=True)
class Admm(Group):
    """Parameters of the solver admm."""

    mu0: float | None = in_solver(
        None, "admm: first penalty; 1e-6 times the largest eigenvalue by default."
    )
    mu_max: float | None = in_solver(
        None, "admm: last penalty; 1e3 times the largest eigenvalue by default."
    )
    rho: float = in_solver(1.05, "admm: factor by which the penalty grows in each iteration.")
    max_iter: int = in_solver(3000, "admm: most iterations.")
    patience: int = in_solver(
        30, "admm: stop after this many iterations without a change of the chosen features."
    )

    def options(self) -> AdmmOptions:
        from kmufs_stream import AdmmOptions

        return AdmmOptions(**vars(self))


@dataclass(frozen=True)
class Memory(Group):
    """How much memory a run may use."""

    memory: str | None = in_resources(
        None, "Most memory to use, such as 2GB or 2GiB; half of what is free by default.", "SIZE"
    )


@dataclass(frozen=True)
class Threads(Memory):
    """What a run on this machine may use."""

    threads: int | None = in_resources(
        None,
        "Blocks processed in parallel, in each worker of a cluster; one more than there are cores "
        "by default.",
        "N",
    )


@dataclass(frozen=True)
class Cluster(Threads):
    """What a run may use, and who reads."""

    scheduler: str | None = in_resources(
        None,
        "Dask scheduler whose workers read: tcp://host:8786, or its scheduler file.",
        "ADDRESS|FILE",
    )
    workers: int | None = in_resources(
        None, "Start N processes here that read; --memory is shared out among all.", "N"
    )

    @contextmanager
    def connected(self) -> Iterator[dict[str, Any]]:
        """Connect to the cluster asked for, if any; yield keywords of what may be used."""
        from kmufs_stream import connected

        used = dict(vars(self))
        scheduler, workers = used.pop("scheduler"), used.pop("workers")
        with connected(scheduler, workers, threads=self.threads, memory=self.memory) as memory:
            yield used | {"memory": memory}


@dataclass(frozen=True)
class Reading(Cluster):
    """The same, and the precision of what is computed as the data are read."""

    precision: PrecisionName = in_resources(
        "auto",
        "Precision of block products; auto: float32 if it holds the data's values, else float64.",
        choices=get_args(PrecisionName),
    )


@dataclass(frozen=True)
class LongReading(Reading):
    """The same, and what is kept of a long run that is interrupted."""

    checkpoint: str | None = in_resources(
        None,
        "Where to keep what has been read, until the run ends; OUT.checkpoint by default if more "
        "than 50 GB are to be read.",
        "PATH",
        callback=lasting,
    )
    resume: bool = in_resources(
        False, "Go on from the checkpoint if there is one; else start anew, and say so."
    )


@dataclass(frozen=True)
class Printing(Group):
    """What is printed."""

    json: bool = in_output(False, "Print one JSON object on stdout, nothing else.")
    debug: bool = in_output(False, "Show warnings, and the traceback of an error.")

    def printed(self, summary: Mapping[str, Any]) -> bool:
        """Print a summary as one strict JSON object if that is asked for."""
        if self.json:
            print(jsonlib.dumps(summary, allow_nan=False))
        return self.json


@dataclass(frozen=True)
class Showing(Printing):
    """The same, and what is shown meanwhile."""

    log: bool = in_output(
        False, "Plain lines on stderr from time to time instead of the live display: for files."
    )
    quiet: bool = in_output(False, "Nothing on stderr unless something fails.", short=["-q"])

    def progress(self) -> AbstractContextManager[Progress]:
        from kmufs_stream_cli.progress import shown

        return shown(log=self.log, quiet=self.quiet)

    def opened(self, table: Store, data: str, like: str | None = None) -> Matrix:
        """Open a table, which takes a while if it is large or far away, and show so."""
        from kmufs_stream import Started

        with self.progress() as progress:
            progress(Started("opening"))
            return table.open(data, like)

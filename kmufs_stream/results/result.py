"""A selection in Python, in plain JSON types, and as xarray datasets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kmufs_stream.factors.factor import Factor, TiedComponents
from kmufs_stream.factors.solving import is_greedy, size_note
from kmufs_stream.results.measures import near_copies
from kmufs_stream.results.writing import column_name, free_dim, lazy_columns, subset_frame
from kmufs_stream.solvers.scores import ranking
from kmufs_stream.solvers.solution import Solution
from kmufs_stream.sources import Matrix
from kmufs_stream.sources.id_columns import note_of_sample
from kmufs_stream.sources.labels import likely_classes
from kmufs_stream.sources.names import plain
from kmufs_stream.sources.transforms import by_row
from kmufs_stream.storage.places import Place, name_of, zarr_root
from kmufs_stream.storage.provenance import SELECTION, stamp
from kmufs_stream.storage.zarr_io import decoded, open_decoded
from kmufs_stream.streaming.planning.plan import Plan
from kmufs_stream.version import __version__

RELATED = 500  # of the selected features, the best, whose correlations are kept


@dataclass(frozen=True)
class Seconds:
    """Wall-clock seconds by stage."""

    read: float = 0.0
    factor: float = 0.0
    solve: float = 0.0
    write: float = 0.0
    total: float = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class Selection:
    """The chosen features, how they were chosen, and where the result is.

    Attributes
    ----------
    k : int
        Number of clusters.
    solver : str
        Its name.
    parameters : dict of str to number
        The solver's parameters, if they were given.
    kept : int64 array
        Source indices of the features that had to be chosen.
    solution : Solution
        What the solver returned; its indices count usable features.
    every_score : float64 array, shape (u,)
        a_i of all usable features.
    beyond_noise : bool array, shape (u,)
        Which usable features vary with the k components more than noise would.
    correlation : float64 array, shape (r, r)
        Of the ``related`` features.
    factor : Factor
        The factor that the features were chosen by.
    passes : int
        Reads of the data for the factor: 0 if one was given.
    matrix : Matrix
        The table that they were chosen from, without dropped samples.
    origin : dict of str to str
        The source, and the command line and its date if there was one.
    plan : Plan
        How it was run, with the budget and the predicted peak memory.
    seconds : Seconds
        Wall-clock seconds by stage: ``read``, ``factor``, ``solve``, ``write``, ``total``.
    peak : int
        Peak resident bytes of the process until the run ended.
    output, anndata_output : path, address, Zarr store or None
        Where the result was written.
    """

    k: int
    solver: str
    parameters: dict[str, float | int]
    kept: NDArray[np.int64]
    solution: Solution
    every_score: NDArray[np.float64]
    beyond_noise: NDArray[np.bool_]
    correlation: NDArray[np.float64]
    factor: Factor
    passes: int
    matrix: Matrix
    origin: dict[str, str]
    plan: Plan
    seconds: Seconds = Seconds()
    peak: int = 0
    output: Place | None = None
    anndata_output: Path | None = None

    def __repr__(self) -> str:
        return (
            f"<Selection: {self.h} of {self.matrix.width} features for k = {self.k} by "
            f"{self.solver}, {self.objective / self.optimum:.1%} of the optimum>"
            + "".join(f"\nnote: {note}" for note in self.notes)
        )

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Possible mistakes: an unlikely k or h, features that describe the samples."""
        matrix, sample = self.matrix, self.factor.sample
        doubt = matrix.doubt
        if doubt is None and matrix.labels is not None:
            usable = self.factor.features.usable
            doubt = note_of_sample(matrix.labels, usable, sample.index, sample.runs)
        return tuple(note for note in (doubt, size_note(self.k, self.h)) if note is not None)

    @property
    def h(self) -> int:
        """Number of features chosen."""
        return len(self.solution.selected)

    @cached_property
    def selected(self) -> NDArray[np.int64]:
        """(h,) source indices, ascending."""
        return self.factor.features.usable[self.solution.selected]

    @cached_property
    def labels(self) -> list[str | int | float | bool] | None:
        """Names of the selected features; None where the source has none."""
        labels = self.matrix.labels
        return None if labels is None else [plain(label) for label in labels[self.selected]]

    @cached_property
    def scores(self) -> NDArray[np.float64]:
        """(h,) a_i: share of a feature's variance that the leading k components explain."""
        return self.every_score[self.solution.selected]

    @cached_property
    def ranks(self) -> NDArray[np.int64]:
        """(h,) 1 = highest score among the selected."""
        return np.argsort(ranking(self.scores, self.factor.tie)) + 1

    @property
    def objective(self) -> float:
        """Tr(S^T A S) of this choice."""
        return float(self.scores.sum())

    @cached_property
    def optimum(self) -> float:
        """The largest Tr(S^T A S) that any choice of h features has."""
        return float(np.sort(self.every_score)[-self.h :].sum())

    @cached_property
    def ambiguous(self) -> NDArray[np.int64]:
        """Source indices of features tied at the cutoff, if ``exact`` chose only some of them.

        Their scores are within ``factor.score_error`` of the h-th highest. Other solvers do not
        choose by score.
        """
        tied = np.empty(0, np.int64)
        if self.solver == "exact":
            cutoff = np.sort(self.every_score)[-self.h]
            tied = np.flatnonzero(np.abs(self.every_score - cutoff) <= self.factor.score_error)
        if np.isin(tied, self.solution.selected).all():
            tied = tied[:0]
        return self.factor.features.usable[tied]

    @property
    def related(self) -> NDArray[np.int64]:
        """(r,) places of the best of the selected, 500 at most, among them; ascending."""
        return np.flatnonzero(self.ranks <= RELATED)

    @property
    def usable(self) -> int:
        """Number of features that could be chosen."""
        return len(self.every_score)

    @property
    def greedy(self) -> bool:
        """Whether the solver chose one feature after another."""
        return is_greedy(self.solver)

    @cached_property
    def likely_classes(self) -> list[str]:
        """Coordinates of the samples that look like their classes, the likeliest first."""
        return likely_classes(self.matrix, self.k)

    @property
    def self_contained(self) -> bool:
        """Whether the written result holds all that evaluate needs: it holds data, of raw rows."""
        return self.plan.output_bytes > 0 and not by_row(self.matrix.transforms)

    @property
    def solver_objective(self) -> float:
        """The value that the solver maximises, at this choice."""
        return self.solution.solver_objective

    @property
    def at_noise(self) -> NDArray[np.int64]:
        """Source indices of selected features that vary with the components no more than noise."""
        return self.selected[~self.beyond_noise[self.solution.selected]]

    @property
    def near_copies(self) -> NDArray[np.int64]:
        """Source indices of ``related`` features that correlate with another by more than 0.95."""
        return self.selected[self.related[near_copies(self.correlation)]]

    @property
    def tied_components(self) -> TiedComponents | None:
        """The tie of the k-th component with the next, which makes scores ambiguous; or None."""
        return self.factor.tied_components(self.k)

    @cached_property
    def dataset(self) -> xr.Dataset:
        """The selected columns, read lazily, with scores and provenance."""
        if self.output is not None:
            return open_decoded(zarr_root(self.output))
        frame = root_of(self, samples=True)
        name = column_name(self.matrix, frame)
        data = lazy_columns(self.matrix, self.selected, self.plan.output_chunk_rows)
        whole = frame.assign({name: data})
        return decoded(whole) if self.matrix.metadata.encoded else whole

    @property
    def _numbers(self) -> dict[str, Any]:
        """Values that are both in the summary and in the store."""
        features = self.factor.features
        return {
            "k": self.k,
            "h": self.h,
            "solver": self.solver,
            "objective": self.objective,
            "optimum": self.optimum,
            "solver_objective": self.solver_objective,
            "iterations": self.solution.iterations,
            "beyond_noise": int(self.beyond_noise.sum()),
            "method": self.factor.method,
            "precision": self.factor.precision,
            "score_error": self.factor.score_error,
            "samples": features.samples,
            "samples_dropped": len(features.dropped),
            "missing_values": int(features.missing[features.usable].sum()),
            "features": self.matrix.shape[1],
        }

    def summary(self) -> dict[str, Any]:
        """Return the result in plain JSON types; the keys are listed in docs/output.md."""
        factor, residuals, tied = self.factor, self.solution.primal_residuals, self.tied_components
        excluded = factor.features.excluded
        return {
            "selected": self.selected.tolist(),
            "labels": self.labels,
            "scores": self.scores.tolist(),
            **self._numbers,
            "converged": self.solution.converged,
            "primal_residuals": None if residuals is None else list(residuals),
            "at_noise": self.at_noise.tolist(),
            "near_copies": self.near_copies.tolist(),
            "ambiguous": self.ambiguous.tolist(),
            "tied_components": None if tied is None else vars(tied) | {"try_k": list(tied.try_k)},
            "notes": list(self.notes),
            "kept": self.kept.tolist(),
            "transforms": list(self.matrix.transforms),
            "passes": self.passes,
            "settled": factor.settled,
            "last_change": factor.last_change if factor.passes > 1 else None,
            "residuals": factor.residuals.tolist(),
            "missing": factor.screening.missing,
            "usable": len(factor.features.usable),
            "excluded": {reason: index.tolist() for reason, index in excluded.items()},
            "output": None if self.output is None else name_of(self.output),
            "anndata_output": None if self.anndata_output is None else str(self.anndata_output),
            "seconds": vars(self.seconds).copy(),
            "concessions": list(self.plan.concessions),
            "peak_rss_bytes": self.peak,
            "predicted_peak_bytes": self.plan.peak,
            "budget_bytes": self.plan.budget,
            "version": __version__,
        }

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of a store: numbers in place of lists, 0 and 1 in place of booleans."""
        factor, matrix, tied = self.factor, self.matrix, self.tied_components
        excluded = factor.features.excluded
        return {
            **self._numbers,
            **{f"solver_{name}": value for name, value in self.parameters.items()},
            "converged": int(self.solution.converged),
            "at_noise": len(self.at_noise),
            "near_copies": len(self.near_copies),
            "ambiguous": len(self.ambiguous),
            "tied_components": 0 if tied is None else tied.last - tied.first + 1,
            "kept": len(self.kept),
            "transforms": ", ".join(matrix.transforms),
            "where": matrix.provenance.where,
            "passes": factor.passes,
            "settled": int(factor.settled),
            **vars(factor.screening),
            **{f"excluded_{reason}": len(index) for reason, index in excluded.items()},
            "variable": matrix.metadata.name,
            "located": json.dumps(matrix.provenance.located),
            "fingerprint": "-".join(factor.fingerprint.values()),
            **stamp(SELECTION),
            **self.origin,
        }


def root_of(result: Selection, *, samples: bool) -> xr.Dataset:
    """Return the root of a result without the data variable, encoded as in the source."""
    scores, ranks, attrs = result.scores, result.ranks, result.attributes
    return subset_frame(result.matrix, result.selected, scores, ranks, attrs, samples=samples)


def groups_of(result: Selection) -> dict[str, xr.Dataset]:
    return {"all_features": _all_features(result), "diagnostics": _diagnostics(result)}


def feature_columns(result: Selection) -> dict[str, NDArray[Any]]:
    """Return columns for a table of all p features: chosen or not, score, and rank by score.

    As in scanpy's highly_variable_genes, a missing value is NaN: the score of an excluded feature,
    the rank of one that is not chosen.
    """
    p = result.matrix.shape[1]
    scores, ranks = np.full(p, np.nan), np.full(p, np.nan)
    scores[result.factor.features.usable] = result.every_score
    chosen = np.zeros(p, bool)
    chosen[result.selected] = True
    ranks[result.selected] = result.ranks
    return {"kmufs_selected": chosen, "kmufs_score": scores, "kmufs_rank": ranks}


def _all_features(result: Selection) -> xr.Dataset:
    features, p = result.factor.features, result.matrix.shape[1]
    columns = feature_columns(result)
    reasons = np.full(p, "", dtype=object)
    for reason, index in features.excluded.items():
        reasons[index] = reason
    dim = free_dim("source_feature", result.matrix)
    every = xr.Dataset(
        {
            "score": (dim, columns["kmufs_score"]),
            "selected": (dim, columns["kmufs_selected"]),
            "excluded": (dim, reasons),
            "mean": (dim, features.mean),
            "std": (dim, features.std),
            "missing": (dim, features.missing),
        }
    )
    labels = result.matrix.labels
    if labels is None:
        return every
    if labels.dtype.kind in "UTSO":
        labels = np.array([str(plain(label)) for label in labels], dtype=object)
    return every.assign_coords({dim: (dim, labels)})


def _diagnostics(result: Selection) -> xr.Dataset:
    factor, dropped = result.factor, result.factor.features.dropped
    dims = ("component", "iteration", "dropped_sample", "related", "related_too")
    component, iteration, sample, *related = (free_dim(dim, result.matrix) for dim in dims)
    variables: dict[str, Any] = {
        "singular_values": (component, factor.singular_values),
        "residuals": (component, factor.residuals),
        **{name: (iteration, values) for name, values in result.solution.history.items()},
        "correlation": (related, result.correlation.astype(np.float32)),
        "related_index": (related[0], result.selected[result.related]),
    }
    return xr.Dataset(variables | ({"dropped": (sample, dropped)} if len(dropped) else {}))

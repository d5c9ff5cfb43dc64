"""The paper's comparison: K-means on the chosen features, best over h and parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
from sklearn.cluster import KMeans

from examples.paper.eufs import eufs
from examples.paper.fit import Fit
from examples.paper.graph import indicators
from examples.paper.laplacian_score import laplacian_scores
from examples.paper.ndfs import ndfs
from examples.paper.rufs import rufs
from examples.paper.sets import Float, Index, Labelled
from examples.paper.sf2sog import sf2sog
from kmufs_stream import AdmmOptions, select
from kmufs_stream.options import SolverName
from kmufs_stream.results.measures import agreement

Choice = Callable[[int], Index]
"""From h to the chosen h columns of Z."""


@dataclass(frozen=True)
class Scale:
    """How much is run.

    Attributes
    ----------
    samples : most samples of a set; None for all of them.
    sizes : numbers of features h.
    runs : K-means starts.
    grid : values of each parameter of NDFS, RUFS, EUFS and SF2SOG.
    """

    samples: int | None
    sizes: tuple[int, ...]
    runs: int
    grid: tuple[float, ...]


PAPER_SIZES, PAPER_GRID = (50, 100, 150, 200, 250, 300), (1e-6, 1e-4, 1e-2, 1.0, 1e2, 1e4, 1e6)
SCALES = {
    "quick": Scale(500, (50, 100), 3, (1e-2, 1e2)),
    "default": Scale(None, PAPER_SIZES, 20, (1e-2, 1e2)),
    "paper": Scale(None, PAPER_SIZES, 20, PAPER_GRID),
}


def paper_options(data: Labelled, mu0: float = 0.1, rho: float = 1.05) -> AdmmOptions:
    """Convert the paper's penalties to the scale of A = P_k S_k^2 P_k^T / n."""
    n = len(data.X)
    return AdmmOptions(mu0=mu0 / n, mu_max=max(mu0, 1e7) / n, rho=rho)


def by_score(scores: Float) -> Choice:
    """Choose the highest scores, ties by index."""
    order = np.argsort(-scores, kind="stable")
    return lambda h: order[:h]


def by_solver(data: Labelled, solver: SolverName, options: AdmmOptions | None = None) -> Choice:
    """Choose by a solver of kmufs_stream."""

    def choose(h: int) -> Index:
        found = select(data.X, data.k, h, solver=solver, options=options, factor=data.factor)
        return np.searchsorted(data.usable, found.selected)

    return choose


def methods(data: Labelled, scale: Scale) -> dict[str, Callable[[], Iterator[Choice]]]:
    """Return by name what yields a choice for every setting of a method's parameters."""
    Z, grid = data.Z, scale.grid

    def every() -> Iterator[Choice]:
        yield lambda h: np.arange(Z.shape[1])

    def laplacian() -> Iterator[Choice]:
        yield by_score(-laplacian_scores(Z, data.graph))

    def fitted(fit: Callable[..., Fit]) -> Callable[[], Iterator[Choice]]:
        def each() -> Iterator[Choice]:
            Y = indicators(data.graph, data.k)
            for alpha, beta in product(grid, grid):
                yield by_score(fit(Z, data.graph, Y, alpha=alpha, beta=beta).scores)

        return each

    def embedded() -> Iterator[Choice]:
        Y = indicators(data.graph, data.k)
        for beta in grid:
            yield by_score(eufs(Z, data.graph, Y, beta=beta).scores)

    def projected(lambda_: float, gamma: float) -> Choice:
        fit = partial(sf2sog, Z, data.graph, data.k, lambda_=lambda_, gamma=gamma)
        return lambda h: fit(h).selected

    def flexible() -> Iterator[Choice]:
        for lambda_, gamma in product(grid, grid):
            yield projected(lambda_, gamma)

    def solver(
        name: SolverName, options: AdmmOptions | None = None
    ) -> Callable[[], Iterator[Choice]]:
        return lambda: iter([by_solver(data, name, options)])

    def variance() -> Iterator[Choice]:
        yield by_score(data.X[:, data.usable].var(axis=0))

    def random() -> Iterator[Choice]:
        yield lambda h: np.random.default_rng(h).permutation(Z.shape[1])[:h]

    return {
        "all features": every,
        "Laplacian score": laplacian,
        "NDFS": fitted(ndfs),
        "RUFS": fitted(rufs),
        "EUFS": embedded,
        "SF2SOG": flexible,
        "K-means UFS (admm)": solver("admm", paper_options(data)),
        "exact": solver("exact"),
        "css": solver("css"),
        "consensus": solver("consensus"),
        "variance": variance,
        "random": random,
    }


@dataclass(frozen=True)
class Best:
    """The best choices of a method, by mean accuracy and by mean NMI.

    Attributes
    ----------
    accuracy, nmi : (runs,) in percent.
    """

    accuracy: Float
    nmi: Float


class Judge:
    """K-means from the same starts on every choice; equal choices are clustered once."""

    def __init__(self, data: Labelled, runs: int) -> None:
        self._data = data
        self._runs = runs
        self._known: dict[bytes, Float] = {}

    def scores(self, chosen: Index) -> Float:
        """Return (runs, 2) accuracy and NMI in percent."""
        chosen = np.sort(chosen).astype(np.int64)
        key = chosen.tobytes()
        if key not in self._known:
            table = np.ascontiguousarray(self._data.Z[:, chosen])
            self._known[key] = np.array([self._run(table, seed) for seed in range(self._runs)])
        return self._known[key]

    def best(self, choices: Iterator[Choice], sizes: tuple[int, ...]) -> Best:
        """Find the best over all choices, and those sizes that leave features out."""
        sizes = tuple(h for h in sizes if h < self._data.Z.shape[1])
        found = [self.scores(choice(h)) for choice in choices for h in sizes]
        accuracy, nmi = (max(found, key=lambda s: s[:, i].mean())[:, i] for i in (0, 1))
        return Best(accuracy, nmi)

    def _run(self, table: Float, seed: int) -> tuple[float, float]:
        k, y = self._data.k, self._data.y
        labels = KMeans(k, n_init=1, random_state=seed).fit(table).labels_
        counts = np.zeros((k, k), dtype=np.int64)
        np.add.at(counts, (labels, y), 1)
        found = agreement(counts)
        return 100 * found.accuracy, 100 * found.nmi

"""Labelled sets, standardised in memory, with their factor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from examples.paper.graph import Graph, neighbour_graph
from kmufs_stream import Factor, decompose

Float = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Labelled:
    """A labelled set.

    Attributes
    ----------
    X : (n, p) float64, not standardised.
    y : (n,) class of each sample, 0, 1, ...; only for evaluation.
    """

    name: str
    X: Float
    y: Index

    @cached_property
    def k(self) -> int:
        """Clusters to look for: the number of classes."""
        return len(np.unique(self.y))

    @cached_property
    def factor(self) -> Factor:
        """The factor that solvers of kmufs_stream need."""
        return decompose(self.X, self.k)

    @property
    def usable(self) -> Index:
        """(u,) features that are not constant."""
        return np.asarray(self.factor.features.usable, dtype=np.int64)

    @cached_property
    def Z(self) -> Float:  # noqa: N802
        """(n, u) the usable features, zero mean and unit variance."""
        X = self.X[:, self.usable]
        return np.asarray((X - X.mean(axis=0)) / X.std(axis=0))

    @cached_property
    def graph(self) -> Graph:
        """The graph of five neighbours that the baselines work on."""
        return neighbour_graph(self.Z)


def load(path: Path, most: int | None = None) -> Labelled:
    """Load X (samples x features) and y from an ``.npz`` file.

    Parameters
    ----------
    most : keep at most so many samples, drawn uniformly with a fixed seed; all by default.

    Raises KeyError without X or y.
    """
    with np.load(path) as stored:
        X, y = stored["X"].astype(np.float64), stored["y"]
    return labelled(path.stem, X, y, most)


def labelled(name: str, X: Any, y: Any, most: int | None = None) -> Labelled:
    """Make a set of arrays; see :func:`load`."""
    if most is not None and most < len(X):
        kept = np.sort(np.random.default_rng(0).choice(len(X), most, replace=False))
        X, y = X[kept], y[kept]
    return Labelled(name, X, np.unique(y, return_inverse=True)[1].astype(np.int64))

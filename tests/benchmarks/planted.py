"""Which solver finds the features that tell planted clusters apart, and how well these cluster.

python tests/benchmarks/planted.py

Tables of 2000 samples in k clusters; the first features tell them apart, all others are
independent noise. In one kind all but k - 1 of the telling features are near copies of the first.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
from limits import show
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from kmufs_stream import decompose, select
from kmufs_stream.factors.solving import SOLVERS

Float = NDArray[np.float64]

SAMPLES = 2000


@dataclass(frozen=True)
class Kind:
    """What is planted: ``separation`` in standard deviations of the noise; h are chosen."""

    k: int
    telling: int
    features: int
    separation: float
    h: int
    copies: bool = False

    def __str__(self) -> str:
        copied = ", copies" if self.copies else ""
        return f"{self.k} clusters, {self.telling} of {self.features}, {self.separation:g}{copied}"

    def table(self, rng: np.random.Generator) -> tuple[Float, NDArray[np.int64]]:
        """A table and the cluster of each sample."""
        clusters = rng.integers(self.k, size=SAMPLES)
        centres = np.zeros((self.k, self.features))
        centres[:, : self.telling] = self.separation * rng.normal(size=(self.k, self.telling))
        table = centres[clusters] + rng.normal(size=(SAMPLES, self.features))
        if self.copies:
            copied = slice(self.k - 1, self.telling)
            noise = 0.1 * rng.normal(size=table[:, copied].shape)
            table[:, copied] = table[:, :1] + noise
        return table, clusters


KINDS = (
    Kind(5, 12, 40, 4, 12),
    Kind(5, 12, 300, 4, 12),
    Kind(3, 12, 300, 2, 12),
    Kind(10, 40, 300, 2, 20),
    Kind(5, 40, 300, 0.7, 20),
    Kind(5, 30, 100, 4, 10, copies=True),
)


def measured(kind: Kind, solver: str, seed: int) -> tuple[float, float]:
    """The share of the chosen that tell clusters apart, and the NMI of K-means on the chosen."""
    table, clusters = kind.table(np.random.default_rng(seed))
    factor = decompose(table, kind.k)
    chosen = select(table, kind.k, kind.h, solver=solver, factor=factor).selected
    rows = (table[:, chosen] - table[:, chosen].mean(axis=0)) / table[:, chosen].std(axis=0)
    labels = KMeans(kind.k, n_init=10, random_state=0).fit_predict(rows)
    share = float((chosen < kind.telling).mean())
    return share, float(normalized_mutual_info_score(clusters, labels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=10, help="of each kind")
    asked = parser.parse_args()
    rows = list[dict[str, object]]()
    for kind in KINDS:
        row: dict[str, object] = {"clusters, telling, apart": kind, "h": kind.h}
        for solver in SOLVERS:
            found = [measured(kind, solver, seed) for seed in range(asked.tables)]
            share, agreement = 100 * np.mean(found, axis=0)
            row[solver] = f"{share:.0f} / {agreement:.0f}"
        rows.append(row)
    show("Telling features of h / NMI, percent", rows)


if __name__ == "__main__":
    main()

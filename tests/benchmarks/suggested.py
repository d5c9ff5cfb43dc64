"""How often the k that sweep suggests is the number of planted clusters.

python tests/benchmarks/suggested.py
python tests/benchmarks/suggested.py FOLDER

Against the widest gap among the components above the noise edge alone, which was the rule once and
is shown beside it: how often what is suggested is right where both agree, where they differ, and
where the edge tells nothing, so that the gap is suggested. Then what both say of scikit-learn's
labelled sets, and of those of FOLDER, as in `quality.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from limits import show
from numpy.typing import NDArray
from quality import Labelled, load
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from kmufs_stream import decompose
from kmufs_stream.factors.structure import MOST_CLUSTERS, suggest_k

Float = NDArray[np.float64]

BUNDLED = (load_breast_cancer, load_digits, load_iris, load_wine)
SEPARATIONS = (0.5, 1, 2, 4)  # standard deviations of the centres, of noise of 1
SHARES = (0.2, 0.5, 1)  # of features that tell clusters apart


def normal(centres: Float, rng: np.random.Generator) -> Float:
    """Normal noise about the centres, the same of every feature."""
    return centres + rng.normal(size=centres.shape)


def scaled(centres: Float, rng: np.random.Generator) -> Float:
    """The same in units that differ from feature to feature."""
    return normal(centres, rng) * np.exp(rng.normal(size=centres.shape[1]))


def counts(centres: Float, rng: np.random.Generator) -> Float:
    """Poisson counts, of which the centres are logarithms."""
    return rng.poisson(np.exp(0.5 * centres + 0.5)).astype(float)


def heavy(centres: Float, rng: np.random.Generator) -> Float:
    """Noise of Student's t with five degrees of freedom."""
    return centres + rng.standard_t(5, size=centres.shape)


def correlated(centres: Float, rng: np.random.Generator) -> Float:
    """Noise of which neighbouring features correlate by one half."""
    noise = rng.normal(size=centres.shape)
    for j in range(1, noise.shape[1]):
        noise[:, j] = 0.5 * noise[:, j - 1] + np.sqrt(0.75) * noise[:, j]
    return centres + noise


KINDS = (normal, scaled, counts, heavy, correlated)


def planted(kind: Callable[..., Float], rng: np.random.Generator) -> tuple[Float, int]:
    """A table of 2 to 12 clusters of unequal sizes, 1000 to 5000 x 30 to 500."""
    k, n = int(rng.integers(2, 13)), int(rng.integers(1000, 5001))
    p = int(np.exp(rng.uniform(np.log(30), np.log(500))))
    telling = max(int(p * rng.choice(SHARES)), k)
    centres = np.zeros((k, p))
    centres[:, :telling] = rng.normal(size=(k, telling)) * rng.choice(SEPARATIONS)
    return kind(centres[rng.choice(k, size=n, p=rng.dirichlet(np.full(k, 5.0)))], rng), k


def answers(table: Float) -> tuple[int, int, bool]:
    """What is suggested, what the gap alone would suggest (1 for nothing), and if they are one."""
    found = suggest_k(decompose(table, min(MOST_CLUSTERS, table.shape[1])))
    return found.k or 1, found.widest_gap or 1, found.by == "widest gap"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--tables", type=int, default=100, help="of each kind of noise")
    parser.add_argument("--labels", default="bulk_labels", help="column of an AnnData's obs")
    asked = parser.parse_args()
    rows, every = list[dict[str, object]](), list[tuple[int, int, bool]]()
    for kind in KINDS:
        rng, errors = np.random.default_rng(0), list[tuple[int, int, bool]]()
        for _ in range(asked.tables):
            table, k = planted(kind, rng)
            suggested, gap, one = answers(table)
            errors.append((suggested - k, gap - k, one))
        every += errors
        rows.append({"noise": kind.__name__, **_rates(errors)})
    rows.append({"noise": "all", **_rates(every)})
    show(f"{len(every)} planted tables", rows)
    sets = [Labelled(read.__name__[5:], *read(return_X_y=True)) for read in BUNDLED]
    sets += load(asked.folder, asked.labels) if asked.folder is not None else []
    names = ("set", "classes", "suggested", "gap")
    said = [(s.name, s.k, *answers(s.X)[:2]) for s in sets]
    show("Labelled sets", [dict(zip(names, row, strict=True)) for row in said])


def _rates(every: list[tuple[int, int, bool]]) -> dict[str, float]:
    """Of all tables; then how many are of each case, and of these how many are right."""
    errors, one = np.array([e[:2] for e in every]), np.array([e[2] for e in every])
    right, same = 100 * (errors == 0), errors[:, 0] == errors[:, 1]
    rates: dict[str, float] = {}
    for i, name in enumerate(("", "gap ")):
        rates[f"{name}right %"] = right[:, i].mean()
        rates[f"{name}mean error"] = np.abs(errors[:, i]).mean()
    for name, case in (("agree", same & ~one), ("differ", ~same), ("gap only", one)):
        rates[f"{name} %"] = 100 * case.mean()
        rates[f"{name}: right %"] = right[case, 0].mean() if case.any() else np.nan
    return rates


if __name__ == "__main__":
    main()

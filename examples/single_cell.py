"""Marker genes of cells that nobody has annotated.

    pip install ".[anndata]" && python examples/single_cell.py

A made-up experiment, as a count matrix looks after quality control: nine entries of ten are 0,
cells were read to different depths, and six cell types raise fifteen genes each among 2,000.
Which 60 genes tell the types apart? Labels take no part in the choice.
"""

import sys
from pathlib import Path

try:
    import anndata
    import numpy as np
    import pandas as pd
    from scipy import sparse
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score

    from kmufs_stream import Screening, open_matrix, select
except ModuleNotFoundError as missing:
    print(f'{missing}: pip install ".[anndata]"', file=sys.stderr)
    sys.exit(2)

TYPES, MARKERS, GENES = 6, 15, 2000


def experiment(cells: int, seed: int = 0) -> anndata.AnnData:
    """Counts of cells x genes, the type of each cell in obs, what each gene marks in var."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(TYPES, size=cells)
    profile = np.tile(rng.lognormal(-3.5, 1.2, GENES), (TYPES, 1))  # counts of a cell, on average
    marks = np.full(GENES, "", object)
    for i, genes in enumerate(rng.permutation(GENES)[: TYPES * MARKERS].reshape(TYPES, MARKERS)):
        marks[genes] = f"type {i}"
        profile[:, genes], profile[i, genes] = 0.05, 1.0
    depth = rng.lognormal(0.0, 0.4, (cells, 1))
    counts = rng.poisson(profile[kind] * depth * rng.gamma(2.0, 0.5, (cells, GENES)))
    return anndata.AnnData(
        sparse.csr_matrix(counts.astype(np.float32)),
        obs=pd.DataFrame({"type": kind.astype(str)}, index=[f"cell{i}" for i in range(cells)]),
        var=pd.DataFrame({"marks": marks}, index=[f"gene{i}" for i in range(GENES)]),
    )


def main(folder: Path, cells: int = 5000) -> dict[str, float]:
    """Choose genes, go on as with scanpy, and compare with the truth."""
    folder.mkdir(parents=True, exist_ok=True)
    experiment(cells).write_h5ad(folder / "cells.h5ad")

    # Counts are made comparable as they are read: each cell is scaled to the same total, then
    # log(1 + x). Genes seen in less than one cell of a hundred say too little to be scaled up.
    matrix = open_matrix(folder / "cells.h5ad", transform=["normalise-rows", "log1p"])
    select(
        matrix,
        k=TYPES,
        h=60,
        solver="consensus",
        screening=Screening(min_nonzero=0.01),
        anndata_out=folder / "chosen.h5ad",
        overwrite=True,
    )

    # The new file is the old one with three columns more in var: go on as after scanpy's
    # highly_variable_genes.
    every = anndata.read_h5ad(folder / "chosen.h5ad")
    few = every[:, every.var.kmufs_selected]
    print(few.var.sort_values("kmufs_rank")[["marks", "kmufs_score"]].head(8))

    markers = float((few.var.marks != "").mean())
    among_all = float((every.var.marks != "").mean())
    print(f"\n{markers:.0%} of the chosen genes are markers, {among_all:.1%} of all genes are.")
    found = {"markers": markers}
    totals = np.asarray(every.X.sum(axis=1))
    for name, part in (("all genes", every), ("the chosen genes", few)):
        values = np.log1p(part.X.toarray() / totals * 1e4)
        clusters = KMeans(TYPES, n_init=3, random_state=0).fit_predict(values)
        found[name] = float(adjusted_rand_score(every.obs.type, clusters))
        print(f"K-means on {name}: adjusted Rand index {found[name]:.2f} with the true types.")
    return found


if __name__ == "__main__":
    main(Path("example-single-cell"))

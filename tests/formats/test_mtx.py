"""10x folders as sparse AnnData."""

from __future__ import annotations

import gzip
from pathlib import Path

import anndata
import numpy as np
import pytest
import scipy.io
from formats.tables import refused
from helpers import no_warnings
from scipy import sparse

from kmufs_stream import convert, open_matrix

HEAD = "%%MatrixMarket matrix coordinate integer general\n"


@pytest.mark.parametrize("packed", [False, True])
def test_a_10x_folder(tmp_path: Path, packed: bool) -> None:
    place = tmp_path / "filtered"
    place.mkdir()
    rng = np.random.default_rng(0)
    cells = rng.poisson(0.3, (90, 11))
    cells[[0, 7, 8, 89]] = 0
    scipy.io.mmwrite(place / "matrix.mtx", sparse.csc_matrix(cells.T), comment=" 10x\n more")
    barcodes = [f"AC{i}-1" for i in range(90)]
    genes = [f"ENSG{i}\tG{i}\tGene Expression" for i in range(11)]
    (place / "barcodes.tsv").write_text("\n".join(barcodes) + "\n")
    (place / "features.tsv").write_text("\n".join(genes) + "\n")
    if packed:
        for path in list(place.iterdir()):
            Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    with no_warnings():
        done = convert(place, tmp_path / "out.zarr")
        matrix = open_matrix(str(tmp_path / "out.zarr"))
    assert done.sizes == {"obs": 90, "var": 11}
    np.testing.assert_array_equal(matrix.rows.take(0, 90, np.arange(11)), cells)
    assert matrix.layout.sparsity is not None
    assert matrix.labels is not None
    assert matrix.labels.tolist() == [f"ENSG{i}" for i in range(11)]
    read = anndata.read_zarr(tmp_path / "out.zarr")
    assert read.obs_names.tolist() == barcodes
    assert read.var["gene_symbols"].tolist() == [f"G{i}" for i in range(11)]
    np.testing.assert_array_equal(read.X.toarray(), cells)


@pytest.mark.parametrize(
    ("head", "content", "said"),
    [
        ("", "", ""),
        (HEAD.replace("integer", "complex"), "2 2 0\n", ""),
        (HEAD, "2 2\n", ""),
        (HEAD, "2 2 1\n3 1 5\n", ""),
        (HEAD, "2 2 1\n1 3 5\n", ""),
        (HEAD, "2 2 2\n1 1 5\n", ""),
        (HEAD, "2 2 1\n1 1 five\n", ""),
        (HEAD, "2 2 2\n1 2 5\n2 1 7\n", "not sorted.*csc_matrix"),
    ],
)
def test_a_10x_folder_that_is_damaged_or_unsorted(
    tmp_path: Path, head: str, content: str, said: str
) -> None:
    (tmp_path / "x").mkdir()
    matrix = tmp_path / "x" / "matrix.mtx"
    matrix.write_text(head + content)
    refused(matrix.parent, said)
    cut = gzip.compress((head + content).encode())[:-9]
    matrix.with_suffix(".mtx.gz").write_bytes(cut)
    matrix.unlink()
    refused(matrix.parent)

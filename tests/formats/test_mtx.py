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


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "filtered").mkdir()
    return tmp_path / "filtered"


@pytest.mark.parametrize("packed", [False, True])
def test_a_10x_folder(place: Path, tmp_path: Path, packed: bool) -> None:
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


def test_a_10x_folder_in_another_order(place: Path) -> None:
    (place / "matrix.mtx").write_text(HEAD + "2 2 2\n1 2 5\n2 1 7\n")
    refused(place, "not sorted.*csc_matrix")


@pytest.mark.parametrize(
    "content",
    [
        "",
        HEAD.replace("integer", "complex") + "2 2 0\n",
        HEAD + "2 2\n",
        HEAD + "2 2 1\n3 1 5\n",
        HEAD + "2 2 1\n1 3 5\n",
        HEAD + "2 2 2\n1 1 5\n",
        HEAD + "2 2 1\n1 1 five\n",
    ],
)
def test_a_damaged_10x_folder_is_refused(place: Path, content: str) -> None:
    (place / "matrix.mtx").write_text(content)
    refused(place)


def test_a_10x_folder_that_is_cut_is_refused(place: Path) -> None:
    (place / "matrix.mtx.gz").write_bytes(gzip.compress(HEAD.encode() + b"2 2 1\n1 1 5\n")[:-9])
    refused(place)

"""10x folders as sparse AnnData."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from helpers import no_warnings
from scipy import sparse

from kmufs_stream import RequestError, convert, open_matrix


@pytest.mark.parametrize("packed", [False, True])
def test_a_10x_folder(tmp_path: Path, packed: bool) -> None:
    pytest.importorskip("anndata")
    rng = np.random.default_rng(0)
    cells = rng.poisson(0.3, (90, 11))
    cells[[0, 7, 8, 89]] = 0
    place = tmp_path / "filtered"
    place.mkdir()
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
    import anndata

    read = anndata.read_zarr(tmp_path / "out.zarr")
    assert read.obs_names.tolist() == barcodes
    assert read.var["gene_symbols"].tolist() == [f"G{i}" for i in range(11)]
    np.testing.assert_array_equal(read.X.toarray(), cells)


def test_a_10x_folder_in_another_order(tmp_path: Path) -> None:
    pytest.importorskip("anndata")
    place = tmp_path / "filtered"
    place.mkdir()
    entries = "2 2 2\n1 2 5\n2 1 7\n"
    head = "%%MatrixMarket matrix coordinate integer general\n"
    (place / "matrix.mtx").write_text(head + entries)
    with pytest.raises(RequestError, match="not sorted") as raised:
        convert(place, tmp_path / "out.zarr")
    assert "csc_matrix" in raised.value.remedy
    assert not (tmp_path / "out.zarr").exists()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "%%MatrixMarket matrix coordinate complex general\n2 2 0\n",
        "%%MatrixMarket matrix coordinate integer general\n2 2\n",
        "%%MatrixMarket matrix coordinate integer general\n2 2 1\n3 1 5\n",
        "%%MatrixMarket matrix coordinate integer general\n2 2 1\n1 3 5\n",
        "%%MatrixMarket matrix coordinate integer general\n2 2 2\n1 1 5\n",
        "%%MatrixMarket matrix coordinate integer general\n2 2 1\n1 1 five\n",
    ],
)
@pytest.mark.parametrize("cut", [False, True])
def test_a_damaged_10x_folder_is_refused(tmp_path: Path, content: str, cut: bool) -> None:
    pytest.importorskip("anndata")
    place = tmp_path / "filtered"
    place.mkdir()
    if cut:
        (place / "matrix.mtx.gz").write_bytes(gzip.compress(content.encode())[:-9])
    else:
        (place / "matrix.mtx").write_text(content)
    with pytest.raises(RequestError):
        convert(place, tmp_path / "out.zarr")
    assert not (tmp_path / "out.zarr").exists()

"""10x folders (matrix.mtx, barcodes.tsv, features.tsv), read by pandas, written by anndata."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.io
import zarr
from scipy.sparse import csr_matrix
from zarr.abc.store import Store

from kmufs_stream.errors import RequestError
from kmufs_stream.events import Advanced, Progress, Started
from kmufs_stream.formats.blocks import OTHER_DTYPE, check_fits, reading, unreadable
from kmufs_stream.formats.dialect import open_text
from kmufs_stream.sources.casting import cast

ENTRIES = 2**20  # in memory at a time
ENTRY_BYTES = 300  # of an entry: parsed, joined, sorted and written
NAME_BYTES = 300  # of a name, and what pandas and zarr make of it
KINDS = ["gene_ids", "gene_symbols", "feature_types"]  # columns that 10x gives genes


def write_mtx(
    folder: Store, path: str, dtype: np.dtype[Any] | None, budget: int, progress: Progress
) -> dict[str, int]:
    """Write genes x cells, sorted by cell as 10x writes them, as an AnnData store of CSR rows.

    Returns the numbers of cells and genes. Holds some blocks of ENTRIES, and the names.
    """
    with reading(path):
        import anndata
    place = Path(path) if Path(path).is_dir() else Path(path).parent
    matrix = _find(place, "matrix.mtx")
    if matrix is None:
        raise RequestError(
            "unreadable",
            f"{path} is no 10x folder: it holds no matrix.mtx.",
            "Give the folder that holds matrix.mtx, barcodes.tsv and features.tsv.",
        )
    with reading(path):
        p, n, entries, form, numbers, symmetry = scipy.io.mminfo(str(matrix))
    if (form, symmetry) != ("coordinate", "general") or numbers not in ("integer", "real"):
        raise unreadable(path, ValueError(f"a matrix in {form} form, {numbers} and {symmetry}"))
    held = min(entries, ENTRIES) + p  # with the rest of the cell before
    check_fits(f"Converting {path}", ENTRY_BYTES * held + NAME_BYTES * (n + 4 * p), budget)
    with reading(path):
        obs = _names(_find(place, "barcodes.tsv"), n)
        var = _names(_find(place, "features.tsv") or _find(place, "genes.tsv"), p)
    progress(Started("converting", total=n, unit="rows"))
    root = zarr.open_group(folder, mode="w", zarr_format=2)
    kind = np.int64 if numbers == "integer" else np.float64
    for number, block in enumerate(_blocks(matrix, (p, n), entries, kind, path)):
        if dtype is not None:
            block.data = cast(block.data, dtype, path, OTHER_DTYPE)
        if number == 0:
            anndata.io.write_elem(root, "X", block)
        else:
            stored: Any = anndata.io.sparse_dataset(root["X"])
            stored.append(block)
        progress(Advanced(block.shape[0]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pandas about anndata: nothing a user can act on
        anndata.io.write_elem(root, "obs", obs)
        anndata.io.write_elem(root, "var", var)
    root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    return {"obs": n, "var": p}


def _find(place: Path, name: str) -> Path | None:
    return next((place / f for f in (name, f"{name}.gz") if (place / f).exists()), None)


def _names(table: Path | None, count: int) -> pd.DataFrame:
    """Read names, and the further columns of genes."""
    if table is None:
        return pd.DataFrame(index=[str(i) for i in range(count)])
    read = pd.read_csv(table, sep="\t", header=None, dtype=str, keep_default_na=False)
    if len(read) != count:
        raise ValueError(f"{table.name} names {len(read)}, not {count}")
    columns = {kind: read[i].to_numpy(object) for i, kind in enumerate(KINDS) if i in read}
    index = pd.Index(read[0].to_numpy(object))
    return pd.DataFrame(columns if read.shape[1] > 1 else {}, index=index)


def _blocks(
    matrix: Path, shape: tuple[int, int], entries: int, dtype: Any, path: str
) -> Iterator[csr_matrix[Any]]:
    """Yield runs of whole cells, as rows of genes; a cell without entries is an empty row."""
    p, n = shape
    kept = pd.DataFrame({"gene": [], "cell": [], "value": []}).astype(
        {"gene": np.int64, "cell": np.int64, "value": dtype}
    )
    done = seen = 0
    with reading(path), open_text(str(matrix)) as lines:
        while next(lines).startswith("%"):
            pass  # what follows the line of sizes are entries
        for frame in pd.read_csv(
            lines, sep=" ", header=None, names=list(kept), dtype=kept.dtypes.to_dict(),
            chunksize=ENTRIES,
        ) if entries else ():  # fmt: skip
            seen += len(frame)
            kept = pd.concat([kept, frame])
            cells = kept["cell"].to_numpy() - 1
            if (np.diff(cells) < 0).any():
                raise RequestError(
                    "not_sorted",
                    f"The entries of {path} are not sorted by cell (its second column).",
                    "Write them so: scipy.io.mmwrite('matrix.mtx', scipy.sparse.csc_matrix(x)).",
                )
            cut = int(np.searchsorted(cells, cells[-1]))  # the last cell may go on
            if cut:
                yield _rows(kept[:cut], done, int(cells[-1]), p)
                kept, done = kept[cut:], int(cells[-1])
        if seen != entries:
            raise ValueError(f"{seen} entries, not {entries}")
        yield _rows(kept, done, n, p)


def _rows(entries: pd.DataFrame, first: int, stop: int, p: int) -> csr_matrix[Any]:
    """Arrange the entries of cells ``first:stop`` as rows."""
    where = entries["cell"].to_numpy() - 1 - first, entries["gene"].to_numpy() - 1
    return csr_matrix((entries["value"].to_numpy(), where), shape=(stop - first, p))

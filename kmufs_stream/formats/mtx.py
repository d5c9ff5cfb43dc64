"""10x folders (matrix.mtx, barcodes.tsv, features.tsv), read by pandas, written by anndata."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
import zarr
from scipy.sparse import csr_matrix
from zarr.abc.store import Store

from kmufs_stream.errors import RequestError, missing_library
from kmufs_stream.events import Advanced, Progress, Started
from kmufs_stream.formats.blocks import OTHER_DTYPE, check_fits, unreadable
from kmufs_stream.sources.casting import cast

ENTRIES = 2**20  # in memory at a time
ENTRY_BYTES = 300  # of an entry, as it is parsed, joined, sorted and written
NAME_BYTES = 300  # of a name, and what pandas and zarr make of it


def write_mtx(
    folder: Store, path: str, dtype: np.dtype[Any] | None, budget: int, progress: Progress
) -> dict[str, int]:
    """Turn genes x cells, sorted by cell as 10x writes them, into an AnnData store of CSR rows.

    Returns the numbers of cells and genes. Holds some blocks of ENTRIES, and the names.
    """
    try:
        import anndata
    except ImportError as error:
        raise missing_library(f"Reading {path}", "anndata") from error
    place = Path(path) if Path(path).is_dir() else Path(path).parent
    matrix = _beside(place, "matrix.mtx")
    if matrix is None:
        raise RequestError(
            "unreadable",
            f"{path} is no 10x folder: it holds no matrix.mtx.",
            "Give the folder that holds matrix.mtx, barcodes.tsv and features.tsv.",
        )
    root = zarr.open_group(folder, mode="w", zarr_format=2)
    with _text(matrix) as lines:
        p, n, entries, whole = _sizes(lines, path)
        held = min(entries, ENTRIES) + p  # with what is left of the cell before
        check_fits(path, ENTRY_BYTES * held + NAME_BYTES * (n + 4 * p), budget)
        obs = _names(_beside(place, "barcodes.tsv"), n, path)
        var = _names(_beside(place, "features.tsv") or _beside(place, "genes.tsv"), p, path)
        progress(Started("converting", total=n, unit="rows"))
        first = True
        for block in _blocks(lines, (p, n), entries, whole, path):
            if dtype is not None:
                block.data = cast(block.data, dtype, path, OTHER_DTYPE)
            if first:
                anndata.io.write_elem(root, "X", block)
                first = False
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


def _beside(place: Path, name: str) -> Path | None:
    return next((place / f for f in (name, f"{name}.gz") if (place / f).exists()), None)


def _text(path: Path) -> IO[str]:
    return gzip.open(path, "rt") if path.suffix == ".gz" else path.open()


def _sizes(lines: IO[str], path: str) -> tuple[int, int, int, bool]:
    """Genes, cells, entries, and whether these are integers: the head of the file."""
    banner = lines.readline().lower().split()
    if banner[:3] != ["%%matrixmarket", "matrix", "coordinate"] or banner[3:] not in (
        ["integer", "general"],
        ["real", "general"],
    ):
        raise unreadable(path, ValueError(f"a head of {' '.join(banner)!r}"))
    line = lines.readline()
    while line.startswith("%"):
        line = lines.readline()
    p, n, entries = map(int, line.split())
    return p, n, entries, banner[3] == "integer"


def _names(table: Path | None, count: int, path: str) -> pd.DataFrame:
    """Names, and the two further columns that 10x gives genes."""
    if table is None:
        return pd.DataFrame(index=[str(i) for i in range(count)])
    read = pd.read_csv(table, sep="\t", header=None, dtype=str, keep_default_na=False)
    if len(read) != count:
        raise unreadable(path, ValueError(f"{table.name} names {len(read)}, not {count}"))
    if read.shape[1] == 1:
        return pd.DataFrame(index=pd.Index(read[0].to_numpy(object)))
    kinds = ["gene_ids", "gene_symbols", "feature_types"]
    columns = {kind: read[i].to_numpy(object) for i, kind in enumerate(kinds) if i in read}
    return pd.DataFrame(columns, index=pd.Index(read[0].to_numpy(object)))


def _blocks(
    lines: IO[str], shape: tuple[int, int], entries: int, whole: bool, path: str
) -> Iterator[csr_matrix[Any]]:
    """Runs of whole cells, as rows of genes; a cell without entries is an empty row."""
    p, n = shape
    dtype = np.int64 if whole else np.float64
    kept = pd.DataFrame({"gene": [], "cell": [], "value": []}).astype(
        {"gene": np.int64, "cell": np.int64, "value": dtype}
    )
    done = seen = 0
    frames = pd.read_csv(
        lines, sep=" ", header=None, names=list(kept), dtype=kept.dtypes.to_dict(),
        chunksize=ENTRIES,
    )  # fmt: skip
    for frame in frames if entries else ():
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
        raise unreadable(path, ValueError(f"{seen} entries, not {entries}"))
    yield _rows(kept, done, n, p)


def _rows(entries: pd.DataFrame, first: int, stop: int, p: int) -> csr_matrix[Any]:
    """Cells ``first:stop`` as rows."""
    where = entries["cell"].to_numpy() - 1 - first, entries["gene"].to_numpy() - 1
    return csr_matrix((entries["value"].to_numpy(), where), shape=(stop - first, p))

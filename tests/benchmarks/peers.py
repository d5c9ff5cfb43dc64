"""The same question to what users would pick instead, each in a process of its own.

The question: the k leading components of the standardised data. Each peer standardises too:
dask covariance, one read: from sums and X^T X, in the data's precision
dask covariance, two reads: mean and std first, then Z^T Z of the lazily standardised Z
svd_compressed: mean and std first, then of the lazily standardised Z, four power iterations
dask_ml PCA: dask_ml's StandardScaler first
IncrementalPCA: scikit-learn's StandardScaler.partial_fit over all batches first
xeofs EOF: its own standardize=True

Dask peers get as many threads as this tool and one BLAS thread in each, the others all cores.

python tests/benchmarks/peers.py
python tests/benchmarks/peers.py --rows 200000 --features 200 --repeats 1
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from limits import (
    Work,
    arguments,
    fresh,
    largest_angle,
    machine,
    median,
    reading,
    reference_eigenpairs,
    show,
    syrk,
)
from numpy.typing import NDArray
from stores import make_store, stored_bytes

Components = NDArray[np.floating[Any]]
BATCH_BYTES = 16_000_000


def kmufs_stream(store: str, k: int) -> Components:
    """This tool."""
    from kmufs_stream import decompose

    return decompose(store, k).components[:, :k]


def dask_covariance_one_read(store: str, k: int) -> Components:
    """X^T X and the sums together; the mean is subtracted afterwards."""
    import dask
    import dask.array as da

    x = da.from_zarr(store)
    products, total = dask.compute(x.T @ x, x.sum(axis=0))
    n = x.shape[0]
    return _leading(products / n - np.outer(total / n, total / n), k)


def dask_covariance_two_reads(store: str, k: int) -> Components:
    """Z^T Z of the standardised data."""
    z = _standardised(store)
    return _leading((z.T @ z).compute(), k)


def svd_compressed(store: str, k: int) -> Components:
    """Random projections, data read again whenever it is needed (compute=True)."""
    import dask.array as da

    _, _, v = da.linalg.svd_compressed(_standardised(store), k, n_power_iter=4, compute=True)
    return np.asarray(v.compute()).T


def svd_compressed_in_one_graph(store: str, k: int) -> Components:
    """Random projections, everything in one graph (compute=False)."""
    import dask.array as da

    _, _, v = da.linalg.svd_compressed(_standardised(store), k, n_power_iter=4, compute=False)
    return np.asarray(v.compute()).T


def dask_ml_pca(store: str, k: int) -> Components:
    """dask_ml's PCA with the solver that it chooses itself."""
    import dask.array as da
    from dask_ml.decomposition import PCA
    from dask_ml.preprocessing import StandardScaler

    x = da.from_zarr(store)
    z = StandardScaler().fit(x).transform(x)
    return np.asarray(PCA(n_components=k).fit(z).components_).T


def incremental_pca(store: str, k: int) -> Components:
    """scikit-learn's IncrementalPCA over batches."""
    import zarr
    from sklearn.decomposition import IncrementalPCA
    from sklearn.preprocessing import StandardScaler

    x = zarr.open_array(store, mode="r")
    rows = max(BATCH_BYTES // (4 * x.shape[1]) // x.chunks[0], 1) * x.chunks[0]
    scaler, pca = StandardScaler(), IncrementalPCA(n_components=k)
    for a in range(0, x.shape[0], rows):
        scaler.partial_fit(x[a : a + rows])
    for a in range(0, x.shape[0], rows):
        batch = x[a : a + rows]
        if len(batch) >= k:  # fewer rows it refuses
            pca.partial_fit(scaler.transform(batch))
    return np.asarray(pca.components_).T


def xeofs_eof(store: str, k: int) -> Components:
    """xeofs' EOF analysis of a lazily opened array."""
    import dask.array as da
    import xarray as xr
    import xeofs

    x = xr.DataArray(da.from_zarr(store), dims=("sample", "feature"))
    x = x.assign_coords(sample=np.arange(x.shape[0]), feature=np.arange(x.shape[1]))
    model = xeofs.single.EOF(n_modes=k, standardize=True, use_coslat=False)
    return model.fit(x, dim="sample").components().transpose("feature", "mode").values


PEERS: dict[str, tuple[Callable[[str, int], Components], str]] = {
    "kmufs-stream": (kmufs_stream, "kmufs_stream.decomposition"),
    "dask covariance, one read": (dask_covariance_one_read, "dask.array"),
    "dask covariance, two reads": (dask_covariance_two_reads, "dask.array"),
    "svd_compressed, compute=True": (svd_compressed, "dask.array"),
    "svd_compressed, compute=False": (svd_compressed_in_one_graph, "dask.array"),
    "dask_ml PCA": (dask_ml_pca, "dask_ml.decomposition"),
    "sklearn IncrementalPCA": (incremental_pca, "sklearn.decomposition"),
    "xeofs EOF": (xeofs_eof, "xeofs"),
}
"""Per name, the peer, and the module whose import is not its work."""

ALL_CORES = ("kmufs-stream", "sklearn IncrementalPCA")


def _standardised(store: str) -> Any:
    import dask
    import dask.array as da

    x = da.from_zarr(store)
    mean, std = dask.compute(x.mean(axis=0), x.std(axis=0))
    return (x - mean) / std


def _leading(products: NDArray[Any], k: int) -> Components:
    import scipy.linalg

    p = len(products)
    scale = 1 / np.sqrt(products.diagonal().astype(np.float64))
    correlation = products * scale * scale[:, None]
    return scipy.linalg.eigh(correlation, subset_by_index=(p - k, p - 1))[1][:, ::-1]


def asked_of(name: str, store: str, k: int, threads: int, found: str) -> dict[str, Any]:
    """Ask one peer; its components go to ``found``."""
    import dask
    import scipy.linalg  # noqa: F401  its BLAS has to be there to be limited
    import zarr  # noqa: F401
    from threadpoolctl import threadpool_limits

    peer, module = PEERS[name]
    import_module(module)
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(scheduler="threads", num_workers=threads))
        if name not in ALL_CORES:
            stack.enter_context(threadpool_limits(1))
        with Work() as work:
            components = peer(store, k)
    np.save(found, components)
    return vars(work)


def reference(store: str, k: int, found: str) -> dict[str, Any]:
    """The components in float64."""
    np.save(found, reference_eigenpairs(store, k)[1])
    return {}


def main() -> None:
    """Print one row per peer."""
    asked = arguments(
        __doc__,
        rows=1_000_000,
        features=500,
        threads=os.cpu_count() or 1,
        gigabytes=8.0,
        minutes=10.0,
        only="",
    )
    store = make_store(asked.folder, asked.rows, asked.features)
    exact, found = (asked.folder / f"peers-{name}.npy" for name in ("exact", "found"))
    fresh(reference, store=store, k=asked.k, found=exact)
    options = {"k": asked.k, "h": asked.k, "threads": asked.threads}
    read, product = (fresh(task, store=store, options=options) for task in (reading, syrk))
    ours, rows = None, []
    for name in PEERS:
        if asked.only not in name:
            continue
        runs = []
        for _ in range(asked.repeats):
            print(name, file=sys.stderr)
            done = fresh(
                asked_of,
                name=name,
                store=store,
                k=asked.k,
                threads=asked.threads,
                found=found,
                memory_limit=int(asked.gigabytes * 1e9),
                time_limit=60 * asked.minutes,
                may_fail=True,
            )
            runs.append(done)
            if done.failure:
                break
        peak = max(run.peak for run in runs) / 1e9
        if runs[-1].failure:
            rows.append([name, *[""] * 3, peak, *[""] * 3, runs[-1].failure[:80]])
            continue
        seconds = median(runs, "seconds")
        ours = ours or seconds
        angles = _angles(exact, found, asked.k)
        reads = median(runs, "read_bytes") / stored_bytes(Path(store))
        rows.append([name, median(runs), seconds, seconds / ours, peak, reads, *angles, ""])
    exact.unlink()
    found.unlink(missing_ok=True)
    speed = f"read {read.result['rate']:.2f} GB/s, BLAS {product.result['rate']:.0f} GF/s"
    versions = machine("scikit-learn", "dask-ml", "xeofs")
    columns = ["peer", "wall s", "work s", "/ ours", "peak GB", "reads"]
    columns += [f"angle of {asked.k}", f"angle of {asked.k - 1}", "failed"]
    show(f"{asked.rows} x {asked.features}, k = {asked.k}, {speed} ({versions})", columns, rows)


def _angles(exact: Path, found: Path, k: int) -> tuple[float, float]:
    """Largest principal angles of the k and of the k - 1 leading components.

    Ten clusters make nine strong components; the tenth lies in the noise.
    """
    right, theirs = np.load(exact), np.load(found).astype(np.float64)
    return largest_angle(right, theirs), largest_angle(right[:, : k - 1], theirs[:, : k - 1])


if __name__ == "__main__":
    main()

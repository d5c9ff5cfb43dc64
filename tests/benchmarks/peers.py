"""The same question to what users would pick instead, each in a process of its own.

The question: the k leading components of the standardised data. Each peer standardises too:
dask covariance, one read: from sums and X^T X, in the data's precision
dask covariance, two reads: mean and std first, then Z^T Z of the lazily standardised Z
svd_compressed: mean and std first, then of the lazily standardised Z, four power iterations;
    the data are read again whenever needed or, with compute=False, all is in one graph
dask_ml PCA: dask_ml's StandardScaler first
IncrementalPCA: scikit-learn's StandardScaler.partial_fit over all batches first
xeofs EOF: its own standardize=True

Dask peers get as many threads as this tool and one BLAS thread in each, the others all cores.

python tests/benchmarks/peers.py
python tests/benchmarks/peers.py --rows 200000 --features 200 --repeats 1
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from limits import (
    Work,
    arguments,
    fresh,
    machine,
    machine_limits,
    planned,
    show,
    side_by_side,
    speed,
)
from numpy.typing import NDArray
from stores import make_store, stored_bytes

Components = NDArray[np.floating[Any]]
BATCH_BYTES = 16_000_000
OURS = "kmufs_stream.decomposition"
COLUMNS = ("peer", "wall s", "work s", "/ the first", "peak GB", "reads", "angle of k", "of k - 1")


def kmufs_stream(store: str, k: int, **options: Any) -> Components:
    from kmufs_stream import decompose

    return decompose(store, k, **options).components[:, :k]


def dask_covariance_one_read(store: str, k: int) -> Components:
    import dask
    import dask.array as da

    x = da.from_zarr(store)
    products, total = dask.compute(x.T @ x, x.sum(axis=0))
    n = x.shape[0]
    return _leading(products / n - np.outer(total / n, total / n), k)


def dask_covariance_two_reads(store: str, k: int) -> Components:
    z = _standardised(store)
    return _leading((z.T @ z).compute(), k)


def svd_compressed(store: str, k: int, compute: bool) -> Components:
    import dask.array as da

    _, _, v = da.linalg.svd_compressed(_standardised(store), k, n_power_iter=4, compute=compute)
    return np.asarray(v.compute()).T


def dask_ml_pca(store: str, k: int) -> Components:
    import dask.array as da
    from dask_ml.decomposition import PCA
    from dask_ml.preprocessing import StandardScaler

    x = da.from_zarr(store)
    z = StandardScaler().fit(x).transform(x)
    return np.asarray(PCA(n_components=k).fit(z).components_).T


def incremental_pca(store: str, k: int) -> Components:
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
    import dask.array as da
    import xarray as xr
    import xeofs

    x = xr.DataArray(da.from_zarr(store), dims=("sample", "feature"))
    x = x.assign_coords(sample=np.arange(x.shape[0]), feature=np.arange(x.shape[1]))
    model = xeofs.single.EOF(n_modes=k, standardize=True, use_coslat=False)
    return model.fit(x, dim="sample").components().transpose("feature", "mode").values


PEERS: dict[str, tuple[Callable[[str, int], Components], str]] = {
    "kmufs-stream": (kmufs_stream, OURS),
    "kmufs-stream, float64": (partial(kmufs_stream, precision="float64"), OURS),
    "kmufs-stream, tsqr": (partial(kmufs_stream, method="tsqr", precision="float64"), OURS),
    "dask covariance, one read": (dask_covariance_one_read, "dask.array"),
    "dask covariance, two reads": (dask_covariance_two_reads, "dask.array"),
    "svd_compressed, compute=True": (partial(svd_compressed, compute=True), "dask.array"),
    "svd_compressed, compute=False": (partial(svd_compressed, compute=False), "dask.array"),
    "dask_ml PCA": (dask_ml_pca, "dask_ml.decomposition"),
    "sklearn IncrementalPCA": (incremental_pca, "sklearn.decomposition"),
    "xeofs EOF": (xeofs_eof, "xeofs"),
}
"""Per name, the peer, and the module whose import is not its work."""


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
        if module not in (OURS, "sklearn.decomposition"):
            stack.enter_context(threadpool_limits(1))
        with Work() as work:
            components = peer(store, k)
    np.save(found, components)
    return vars(work)


def reference(store: str, k: int, found: str) -> dict[str, Any]:
    """The k leading components of the correlation matrix, two passes in float64, p x p memory."""
    matrix, plan = planned(store, {"k": k, "h": 1})
    n, p = matrix.shape
    starts = list(chain.from_iterable(plan.partitions))
    total, scatter = np.zeros(p), np.zeros((p, p))
    for start in starts:
        total += matrix.rows.read(start, min(start + plan.block_rows, n)).sum(axis=0, dtype=float)
    for start in starts:
        block = matrix.rows.read(start, min(start + plan.block_rows, n)) - total / n
        scatter += block.T @ block
    np.save(found, _leading(scatter, k))
    return {}


def main() -> None:
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
    exact = asked.folder / "peers-exact.npy"
    fresh(reference, store=store, k=asked.k, found=exact)
    found = {name: asked.folder / f"peers-{i}.npy" for i, name in enumerate(PEERS)}
    found = {name: place for name, place in found.items() if asked.only in name}
    limited: Any = {"memory_limit": int(asked.gigabytes * 1e9), "time_limit": 60 * asked.minutes}
    limited |= {"store": store, "k": asked.k, "threads": asked.threads, "may_fail": True}
    tasks = {
        name: partial(fresh, asked_of, name=name, found=place, **limited)
        for name, place in found.items()
    }
    options = {"k": asked.k, "h": asked.k, "threads": asked.threads}
    runs = side_by_side(asked.repeats, machine_limits(store, options) | tasks)
    rows = list[dict[str, object]]()
    first = next((name for name in found if not runs[name][-1].failure), "")
    for name, place in found.items():
        done, row = runs[name], dict[str, object](dict.fromkeys(COLUMNS, ""))
        row |= {"peer": name, "peak GB": done.peak, "failed": done[-1].failure[:80]}
        if not done[-1].failure:
            row |= {
                "wall s": done.median(),
                "work s": done.median("seconds"),
                "/ the first": done.median("seconds") / runs[first].median("seconds"),
                "reads": done.median("read_bytes") / stored_bytes(store),
                **_angles(exact, place, asked.k),
            }
            place.unlink()
        rows.append(row)
    exact.unlink()
    versions = machine("scikit-learn", "dask-ml", "xeofs")
    title = f"{asked.rows} x {asked.features}, k = {asked.k}"
    show(f"{title}, {speed(runs)} ({versions})", rows)


def _angles(exact: Path, found: Path, k: int) -> dict[str, object]:
    """Largest principal angles of the k and of the k - 1 leading components.

    Ten clusters make nine strong components; the tenth lies in the noise.
    """
    import scipy.linalg

    right, theirs = np.load(exact), np.load(found).astype(np.float64)
    both = {
        "angle of k": scipy.linalg.subspace_angles(right, theirs)[0],
        "of k - 1": scipy.linalg.subspace_angles(right[:, : k - 1], theirs[:, : k - 1])[0],
    }
    return {name: float(angle) for name, angle in both.items()}


if __name__ == "__main__":
    main()

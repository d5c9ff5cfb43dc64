"""Tables, stores and readers that many tests need."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr
import zarr
from scipy.linalg import hadamard

from kmufs_stream import Factor, Matrix
from kmufs_stream.solvers.scores import feature_scores

SMALL_BLOCK = 4000  # bytes, for tables of many partitions


def slow(*values: Any) -> Any:
    """Arguments of a test that quicker ones guard too; run with -m slow."""
    return pytest.param(*values, marks=pytest.mark.slow)


def planted(
    n: int = 400, p: int = 20, k: int = 3, seed: int = 0, dtype: Any = np.float64
) -> npt.NDArray[Any]:
    """k clusters whose features separate them more and more strongly, in mixed order."""
    rng = np.random.default_rng(seed)
    strength = rng.permutation(np.linspace(0.2, 3.0, p))
    centres = rng.normal(size=(k, p))
    X = centres[rng.integers(k, size=n)] * strength + rng.normal(size=(n, p))
    return np.asarray(X.astype(dtype))


def few_telling(n: int, p: int, k: int, telling: int, *, seed: int = 0) -> npt.NDArray[np.float64]:
    """k clusters well apart in the first features; the others are independent noise."""
    rng = np.random.default_rng(seed)
    centres = np.zeros((k, p))
    centres[:, :telling] = rng.normal(size=(k, telling)) * 4
    return centres[rng.integers(k, size=n)] + rng.normal(size=(n, p))


def labelled(X: npt.NDArray[Any], **attrs: Any) -> xr.DataArray:
    """X with coordinates of all kinds along both dimensions, and beside them."""
    n, p = X.shape
    return xr.DataArray(
        X,
        dims=("cell", "gene"),
        name="counts",
        attrs={"units": "1", **attrs},
        coords={
            "gene": [f"gene {i} é" for i in range(p)],
            "length": ("gene", np.arange(p) * 7, {"units": "bp"}),
            "weight": ("gene", np.arange(p) / 8),
            "found": ("gene", np.datetime64("2001-02-03", "ns") + np.arange(p) * 10**15),
            "coding": ("gene", np.arange(p) % 2 == 0),
            "cell": np.datetime64("2020-01-01", "ns") + np.arange(n) * 10**9,
            "depth": ("cell", np.linspace(0, 1, n), {"long_name": "reads"}),
            "batch": ("cell", np.array([f"batch {i % 3}" for i in range(n)])),
            "when": ("cell", np.datetime64("2021-05-06T07:08:09", "ns") + np.arange(n) * 10**12),
            "number": ("cell", np.arange(n, dtype=np.int32)),
            "run": ((), 17),
        },
    )


def write_xarray(
    path: Path,
    array: xr.DataArray,
    *,
    zarr_format: int = 3,
    chunks: tuple[int, int] | None = None,
    shards: tuple[int, int] | None = None,
    consolidated: bool = True,
    attrs: dict[str, Any] | None = None,
    encoding: dict[str, Any] | None = None,
) -> Path:
    """A store as xarray writes it."""
    pieces = {"chunks": chunks, "shards": shards}
    wanted = (encoding or {}) | {name: size for name, size in pieces.items() if size is not None}
    dataset = array.to_dataset().assign_attrs(attrs or {})
    form: Any = {"zarr_format": zarr_format, "consolidated": consolidated}
    dataset.to_zarr(path, encoding={array.name: wanted}, **form)
    return path


def write_bare(
    path: Path,
    X: npt.NDArray[Any],
    *,
    zarr_format: int = 3,
    chunks: tuple[int, int] | None = None,
    shards: tuple[int, int] | None = None,
    **options: Any,
) -> Path:
    """One Zarr array and nothing else; every chunk is stored, fill values too."""
    array = zarr.create_array(
        path,
        shape=X.shape,
        dtype=X.dtype,
        chunks=chunks or X.shape,
        shards=shards,
        zarr_format=zarr_format,  # type: ignore[arg-type]
        config={"write_empty_chunks": True},
        **options,
    )
    array[...] = X
    return path


def chunk_files(folder: Path) -> list[Path]:
    """The stored chunks below a folder."""
    names = {"zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"}
    return sorted(f for f in folder.rglob("*") if f.is_file() and f.name not in names)


def contents(place: Path) -> dict[str, str]:
    """Every file and folder below a place, files with a digest of what they hold."""
    return {
        str(path.relative_to(place)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        )
        for path in sorted(place.rglob("*"))
    }


def environment() -> dict[str, str]:
    """For a Python that finds what this one finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


@contextmanager
def no_warnings() -> Iterator[None]:
    """Warnings are errors, those included that the configuration of pytest ignores."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


class CountingRows:
    """Rows that note what is read of them."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows
        self.reads: list[tuple[int, int]] = []
        self.takes: list[tuple[int, int]] = []

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        self.reads.append((start, stop))
        return np.asarray(self.rows.read(start, stop))

    def take(self, start: int, stop: int, columns: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        self.takes.append((start, stop))
        return np.asarray(self.rows.take(start, stop, columns))


def counted(matrix: Matrix) -> tuple[Matrix, CountingRows]:
    """The matrix with a counter in front of its rows."""
    rows = CountingRows(matrix.rows)
    return dataclasses.replace(matrix, rows=rows), rows


def every_score(factor: Factor, k: int) -> npt.NDArray[np.float64]:
    """a_i of all features, NaN where they are excluded."""
    scores = np.full(len(factor.features.mean), np.nan)
    scores[factor.features.usable] = feature_scores(factor.components, factor.eigenvalues, k)
    return scores


def same_bits(a: Factor, b: Factor) -> bool:
    """Whether two factors agree in every bit of every array."""

    def arrays(factor: Factor) -> list[Any]:
        features, sample = factor.features, factor.sample
        found = [factor.components, factor.singular_values, factor.residuals]
        found += [features.mean, features.std, features.usable, sample.index, sample.values]
        return found if factor.correlation is None else [*found, factor.correlation]

    pairs = zip(arrays(a), arrays(b), strict=True)
    return all(x.dtype == y.dtype and x.tobytes() == y.tobytes() for x, y in pairs)


def same_result(ours: Any, theirs: Any) -> None:
    """Two written selections hold the same, but for where their source lies, and who asked when."""
    for group in (None, "all_features", "diagnostics"):
        a, b = (xr.open_zarr(s, group=group, chunks=None).load() for s in (ours, theirs))
        for dataset in (a, b):
            for key in ("source", "fingerprint", "command", "created"):
                dataset.attrs.pop(key, None)
        xr.testing.assert_identical(a, b)


def tied_table(copies: tuple[int, ...], n: int = 64) -> npt.NDArray[Any]:
    """Uncorrelated columns of -1 and 1, each so many times: these are its eigenvalues, too."""
    columns = hadamard(n)[:, 1 : len(copies) + 1]
    return np.repeat(columns, copies, axis=1).astype(np.float64)


class Bucket:
    """A bucket of the S3 server that the environment tells of."""

    def __init__(self, name: str) -> None:
        import s3fs

        self.name, self.fs = name, s3fs.S3FileSystem(use_listings_cache=False)
        self.fs.mkdir(name)

    @staticmethod
    def forget() -> None:
        """Let all clients go."""
        import s3fs

        s3fs.S3FileSystem.clear_instance_cache()

    def at(self, name: str) -> str:
        return f"s3://{self.name}/{name}"

    def objects(self, below: str = "") -> list[str]:
        """The keys of all objects."""
        found = self.fs.find(f"{self.name}/{below}".rstrip("/"))
        return sorted(path.removeprefix(f"{self.name}/") for path in found)

    def put(self, folder: Path) -> str:
        """Copy a folder there; its address."""
        self.fs.put(str(folder), f"{self.name}/{folder.name}", recursive=True)
        return self.at(folder.name)

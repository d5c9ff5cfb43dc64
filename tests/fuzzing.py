"""Random stores and tables, and random damage to them: a few in the suite, thousands at night.

Whatever happens to a store, the command line either answers as whole-array NumPy does on what
zarr and xarray read from it, or says in one message what is wrong.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pandas as pd
import xarray as xr
import zarr
from helpers import chunk_files, planted, write_bare, write_xarray
from pyarrow import parquet
from reference import reference
from scipy.io import loadmat, savemat

from kmufs_stream_cli import main

SECONDS = 60  # a run that takes longer hangs
JUNK: list[Any] = [
    None,
    -1,
    0,
    1,
    3,
    7,
    2**40,
    1.5,
    "junk",
    "",
    [],
    {},
    [1],
    True,
    "nan",
    "<f4",
    "|O",
]
K, H = 2, 3


class HangsError(Exception):
    """A run took too long."""


def run(*arguments: object) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON answer of the command line; raises what would be a traceback."""

    def stop(*_: object) -> None:
        raise HangsError(arguments)

    out = io.StringIO()
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = main([*map(str, arguments), "--json"])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    answer = json.loads(out.getvalue())
    assert answer.get("error", {}).get("code") != "unexpected", answer
    return code, answer


def select(path: Path, *, samples: bool = False) -> tuple[int, dict[str, Any]]:
    """A small selection from a store, which is left as it was; with all its samples, or none."""
    asked = ["--k", K, "--h", H, "--solver", "exact", "--threads", 1]
    asked += [] if samples else ["--selection-only"]
    out = path.with_name("out.zarr")
    code, answer = run("select", path, *asked, "--out", out, "--overwrite")
    assert out.exists() == (code == 0)
    if samples and code == 0:
        with xr.open_zarr(out, chunks=None) as written:
            answer["columns"] = next(iter(written.data_vars.values())).values
            written.load()  # and all that lies beside
    shutil.rmtree(out, ignore_errors=True)
    return code, answer


def assert_right(answer: dict[str, Any], table: Any) -> None:
    """The answer is the best choice from a table, by scores of whole-array NumPy.

    Where the K-th eigenvalue and the next are one and the same, no K components are the leading
    ones, and scores are only known to lie between those of all that may be.
    """
    assert (answer["samples"], answer["features"]) == table.shape
    with np.errstate(all="ignore"):
        missing = np.isnan(table.astype(np.float64)).all(axis=0)
        expected = reference(table[:, ~missing])
        scores = np.full(table.shape[1], np.nan)
        scores[~missing] = expected.every_score(K)
    tolerance = 1e-9 if answer["precision"] == "float64" else 1e-4
    values = expected.eigenvalues
    tied = np.flatnonzero(np.abs(values - values[K - 1 : K]) <= 1e-9)
    if tied.max(initial=0) >= K:
        least, most = (np.full(len(scores), np.nan) for _ in range(2))
        least[~missing] = expected.every_score(int(tied.min()))
        most[~missing] = expected.every_score(int(tied.max()) + 1)
        chosen = answer["selected"]
        assert (answer["scores"] >= least[chosen] - tolerance).all()
        assert (answer["scores"] <= most[chosen] + tolerance).all()
        return
    np.testing.assert_allclose(answer["scores"], scores[answer["selected"]], atol=tolerance)
    cutoff = np.sort(scores[~np.isnan(scores)])[-H]
    assert (scores[answer["selected"]] >= cutoff - 2 * tolerance).all()


def small_store(rng: np.random.Generator, path: Path) -> None:
    """A store of random format, chunks and codecs; values that any dtype holds."""
    n, p = int(rng.integers(20, 60)), int(rng.integers(4, 9))
    dtype = rng.choice(["f4", "f8", "i2", "u1", "i8", ">f4"])
    values = np.clip(planted(n, p, seed=int(rng.integers(99))) * 9 + 50, 0, 120).astype(dtype)
    chunks = (int(rng.integers(5, n + 1)), int(rng.integers(1, p + 1)))
    form = int(rng.choice([2, 3]))
    compressors: Any = rng.choice(np.array(["auto", None, "own"], object))
    if compressors == "own":
        compressors = numcodecs.Zlib(1) if form == 2 else zarr.codecs.GzipCodec(level=1)
    kind = rng.choice(["bare", "xarray", "sharded"])
    if kind == "xarray":
        array = xr.DataArray(
            values.astype(values.dtype.newbyteorder("=")),
            dims=("cell", "gene"),
            coords={"gene": [f"g{i}" for i in range(p)], "cell": np.arange(n)},
            name="counts",
        )
        encoding: Any = {"_FillValue": None}
        if compressors != "auto":
            encoding["compressors"] = compressors
        options: Any = {"zarr_format": form, "consolidated": bool(rng.integers(2))}
        write_xarray(path, array, chunks=chunks, encoding=encoding, **options)
    else:
        shards = (chunks[0] * 2, chunks[1] * 2) if kind == "sharded" and form == 3 else None
        if form == 3:
            values = values.astype(values.dtype.newbyteorder("="))
        options = {} if compressors == "auto" else {"compressors": compressors}
        write_bare(path, values, zarr_format=form, chunks=chunks, shards=shards, **options)


def damage(rng: np.random.Generator, path: Path) -> str:
    """Change one file of a store; returns what was done."""
    files = sorted(f for f in path.rglob("*") if f.is_file())
    chunks = chunk_files(path)
    of_metadata = bool(rng.integers(2)) or not chunks
    among = [f for f in files if (f not in chunks) == of_metadata]
    file = among[int(rng.integers(len(among)))]
    what = str(rng.choice(["cut", "flip", "empty", "gone", "grow", "swap", "leaf", "leaf", "leaf"]))
    if what == "leaf" and of_metadata:
        document = json.loads(file.read_bytes())
        what = _spoil_leaf(rng, document)
        file.write_text(json.dumps(document))
    elif what == "gone":
        file.unlink()
    elif what == "swap":
        other = files[int(rng.integers(len(files)))]
        file.write_bytes(other.read_bytes())
        what = f"copied from {other.relative_to(path)}"
    else:
        _damage_bytes(rng, file, what)
    return f"{file.relative_to(path)}: {what}"


def _damage_bytes(rng: np.random.Generator, file: Path, what: str) -> None:
    """Cut a file off, empty it, let it grow or, for any other word, flip a bit."""
    whole = file.read_bytes()
    if what == "cut":
        file.write_bytes(whole[: int(rng.integers(len(whole)))])
    elif what == "empty":
        file.write_bytes(b"")
    elif what == "grow":
        file.write_bytes(whole + rng.bytes(9))
    else:
        at = int(rng.integers(len(whole) - _footer(whole)))
        file.write_bytes(
            whole[:at] + bytes([whole[at] ^ (1 << int(rng.integers(8)))]) + whole[at + 1 :]
        )


def _footer(whole: bytes) -> int:
    """Bytes at the end of a Parquet file that have no checksum: some flips there abort pyarrow."""
    return int.from_bytes(whole[-8:-4], "little") + 8 if whole.endswith(b"PAR1") else 0


def _spoil_leaf(rng: np.random.Generator, document: Any) -> str:
    """Replace or remove something deep in a JSON document."""
    places = list(_places(document))
    if not places:
        return "nothing"
    holder, key = places[int(rng.integers(len(places)))]
    if rng.integers(4) == 0:
        del holder[key]
        return f"without {key!r}"
    holder[key] = JUNK[int(rng.integers(len(JUNK)))]
    return f"{key!r} = {holder[key]!r}"


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    pairs = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in pairs:
        yield node, key
        if isinstance(value, dict | list):
            yield from _places(value)


def as_read(path: Path) -> Any:
    """What zarr, or xarray where there are several arrays, reads from a store."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            node = zarr.open(path, mode="r")
            if isinstance(node, zarr.Array):
                return np.asarray(node[...])
            beside = ["cell", "gene"]  # whose damage says nothing about the values
            with xr.open_zarr(path, chunks=None, drop_variables=beside) as opened:
                return opened["counts"].values
        except (KeyError, ValueError):
            return np.asarray(zarr.open_array(path, path="counts", mode="r")[...])


@contextlib.contextmanager
def told(seed: int, done: str) -> Iterator[None]:
    """Say with an error what repeats it."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"seed {seed}: {done}")
        raise


def survives(seed: int, folder: Path) -> str | None:
    """Make a store, damage it, select from it.

    Returns the code of the error, None where it is answered. Raises where it is wrong.
    """
    rng = np.random.default_rng(seed)
    path = folder / "data.zarr"
    shutil.rmtree(path, ignore_errors=True)
    small_store(rng, path)
    with told(seed, damage(rng, path)):
        code, answer = select(path, samples=bool(seed % 2))
        if code != 0:
            return str(answer["error"]["code"])
        table = as_read(path)
        assert_right(answer, table)
        if "columns" in answer:
            np.testing.assert_array_equal(answer["columns"], table[:, answer["selected"]])
    return None


def table_survives(seed: int, folder: Path) -> str | None:
    """Make a table of another format, damage it, convert it; returns as :func:`survives` does."""
    rng = np.random.default_rng(seed)
    values = np.rint(planted(int(rng.integers(5, 40)), 5, seed=int(rng.integers(99))) * 99) / 10
    kind = str(rng.choice([*TABLES]))
    write, read = TABLES[kind]
    path, out = folder / f"data.{kind}", folder / "out.zarr"
    write(path, values.astype(rng.choice(["f4", "f8", "i2"])))
    what = str(rng.choice(["cut", "flip", "flip", "flip", "empty", "grow"]))
    _damage_bytes(rng, path, what)
    with told(seed, f"{path.name}: {what}"):
        code, answer = run("convert", path, out, "--overwrite")
        if code != 0:
            assert not out.exists()
            assert path.name in answer["error"]["message"], answer
            return str(answer["error"]["code"])
        with xr.open_zarr(out, chunks=None) as written:
            np.testing.assert_array_equal(written["data"].values, read(path))
        shutil.rmtree(out)
    return None


def _frame(values: Any) -> pd.DataFrame:
    return pd.DataFrame(values, columns=[*"abcde"])


def _read_csv(path: Path) -> Any:
    """Columns of numbers, by the standard library; one more than the header names is of names."""
    with path.open(newline="", encoding="latin1") as file:
        header, *rows = csv.reader(file)
    names = len(rows[0]) - len(header)
    return np.array([[float(field or "nan") for field in row[names:]] for row in rows if row])


def _read_parquet(path: Path) -> Any:
    return np.column_stack([column.to_numpy() for column in parquet.read_table(path).columns])


def _write_netcdf(path: Path, values: Any) -> None:
    checked = {"data": {"fletcher32": True, "zlib": True}}
    table = xr.Dataset({"data": (("t", "x"), values)})
    table.to_netcdf(path, engine="h5netcdf", encoding=checked)


def _read_netcdf(path: Path) -> Any:
    with xr.open_dataset(path, engine="h5netcdf") as found:
        return found["data"].values


TABLES: dict[str, tuple[Callable[[Path, Any], None], Callable[[Path], Any]]] = {
    "csv": (lambda path, x: _frame(x).to_csv(path, index=False), _read_csv),
    "parquet": (lambda path, x: _frame(x).to_parquet(path, index=False), _read_parquet),
    "npy": (np.save, np.load),
    "npz": (lambda path, x: np.savez_compressed(path, x=x), lambda path: np.load(path)["x"]),
    # Compressed as by MATLAB, with checksums: SciPy crashes on damaged files without.
    "mat": (
        lambda path, x: savemat(path, {"x": x}, do_compression=True),
        lambda path: loadmat(path)["x"],
    ),
    "nc": (_write_netcdf, _read_netcdf),
}
"""By suffix, how a table is written, and read without the library."""

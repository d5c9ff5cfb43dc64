"""Files of other formats as stores: what is converted, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from formats.tables import X, converted, frame, written

from kmufs_stream import RequestError, convert
from kmufs_stream.conversion import ARRAYS, COLUMNS
from kmufs_stream.sources.convertible import SUFFIXES


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.csv", "x.parquet", "x.nc", "x.h5", "x.mat"])
def test_damaged_files_are_refused(tmp_path: Path, name: str) -> None:
    for content in (b"", b"\x93NUMPY nonsense", b"PK\x03\x04 nonsense"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(RequestError):
            convert(tmp_path / name, tmp_path / "out.zarr")
        assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("name", "package"),
    [("x.csv", "pyarrow"), ("x.parquet", "pyarrow"), ("x.h5", "h5py"), ("matrix.mtx", "anndata")],
)
def test_missing_libraries_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    for module in [m for m in sys.modules if m.split(".")[0] == package] + [package]:
        monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / name).write_bytes(b"x")
    source = tmp_path if package == "anndata" else tmp_path / name
    with pytest.raises(RequestError, match=package) as raised:
        convert(source, tmp_path.with_suffix(".zarr"))
    assert f"pip install {package}" in raised.value.remedy


def test_whatever_is_known_by_its_name_is_opened() -> None:
    assert {*SUFFIXES.values()} == {*COLUMNS, *ARRAYS, "netcdf", "mtx"}


def test_what_needs_no_conversion(tmp_path: Path) -> None:
    turned_from = tmp_path / "x.npy"
    np.save(turned_from, X)
    converted(turned_from)
    with pytest.raises(RequestError, match="no format"):
        convert(tmp_path / "out.zarr", tmp_path / "other.zarr")
    with pytest.raises(RequestError, match="exists"):
        convert(turned_from, tmp_path / "out.zarr")
    convert(turned_from, tmp_path / "out.zarr", overwrite=True)
    with pytest.raises(RequestError, match="does not exist"):
        convert(tmp_path / "none.csv", tmp_path / "other.zarr")


def test_what_a_format_does_not_have_is_refused(tmp_path: Path) -> None:
    table, array, out = written(tmp_path, "csv", frame()), tmp_path / "x.npy", tmp_path / "out.zarr"
    np.save(array, X)
    for source, options, said in (
        (f"{table}::x", {}, "'x'"),  # nothing lies inside of text
        (array, {"coordinates": ["a"]}, "no columns"),
        (table, {"dtype": "flaot32"}, "flaot32.*\n.*Did you mean 'float32'"),
    ):
        with pytest.raises(RequestError, match=said):
            convert(source, out, **options)

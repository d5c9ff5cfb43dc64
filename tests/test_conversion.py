"""Files of other formats as stores: the same values and labels as in memory."""

from __future__ import annotations

import gzip
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.io
import xarray as xr
from helpers import no_warnings, planted
from scipy import sparse

from kmufs_stream import RequestError, convert, open_matrix, select
from kmufs_stream.conversion import ARRAYS, COLUMNS
from kmufs_stream.formats import blocks, mtx
from kmufs_stream.sources.convertible import SUFFIXES

X = planted(150, 8)
LABELS = [f"é {i}" for i in range(8)]


@pytest.fixture(autouse=True)
def _many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks even of small tables."""
    monkeypatch.setattr(blocks, "CHUNK_BYTES", 8 * 8 * 40)
    monkeypatch.setattr(mtx, "ENTRIES", 61)


def turned(source: Path | str, **options: Any) -> xr.Dataset:
    """What a conversion wrote, opened."""
    place = Path(str(source).partition("::")[0])
    out = place.with_name("out.zarr")
    with no_warnings():
        convert(source, out, **options)
        with xr.open_zarr(out) as found:
            return found.load()


def frame() -> pd.DataFrame:
    return pd.DataFrame(X.copy(), columns=LABELS, index=[f"cell {i}" for i in range(150)])


@pytest.mark.parametrize("dtype", ["f4", "i2", "bool", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_numpy(tmp_path: Path, dtype: str, order: Any, suffix: str) -> None:
    Y = np.asarray(X.astype(dtype), order=order)
    path = tmp_path / f"x{suffix}"
    if suffix == ".npy":
        np.save(path, Y)
    else:
        np.savez_compressed(path, table=Y, names=np.arange(8))
    found = turned(path)["data"]
    assert found.dims == ("sample", "feature")
    assert found.dtype == Y.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, Y)


def test_several_arrays_of_an_archive(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=X, b=X * 2)
    with pytest.raises(RequestError, match="no single table") as raised:
        turned(tmp_path / "x.npz")
    assert "x.npz::a" in raised.value.remedy
    np.testing.assert_array_equal(turned(f"{tmp_path}/x.npz::b")["data"], X * 2)


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.tsv"])
@pytest.mark.parametrize("index", [None, "", "cell"])
def test_text(tmp_path: Path, name: str, index: str | None) -> None:
    table = frame()
    table.iloc[3, 2] = np.nan
    separator = "\t" if "tsv" in name else ","
    table.to_csv(tmp_path / name, sep=separator, index=index is not None, index_label=index)
    found = turned(tmp_path / name, index_column=index or None)
    np.testing.assert_array_equal(found["data"], table.to_numpy())
    assert found["feature"].values.tolist() == LABELS
    assert ("sample" in found.coords) == (index is not None)
    if index is not None:
        assert found["sample"].values.tolist() == table.index.tolist()


@pytest.mark.parametrize(("header", "noted"), [("3,1,2", True), ("400,401.5,403", False)])
def test_a_header_of_numbers_may_be_a_sample(tmp_path: Path, header: str, noted: bool) -> None:
    (tmp_path / "x.csv").write_text(header + "\n1,2,4\n4,5.5,1\n")
    done = convert(tmp_path / "x.csv", tmp_path / "x.zarr")
    assert any("put a line of names above it" in note for note in done.notes) == noted


def test_text_whose_numbers_change_kind_and_whose_labels_repeat(tmp_path: Path) -> None:
    rows = "\n".join([*["1,2,3"] * 60, *["1.5,,1e3"] * 60])
    (tmp_path / "x.csv").write_text(f"a,a,b\n{rows}\n")
    found = turned(tmp_path / "x.csv")
    assert found["feature"].values.tolist() == ["a", "a", "b"]
    again = convert(tmp_path / "x.csv", tmp_path / "other.zarr")
    assert again.notes == ("Several columns are called 'a': each is kept.",)
    expected = [[1, 2, 3]] * 60 + [[1.5, np.nan, 1000]] * 60
    np.testing.assert_array_equal(found["data"], np.array(expected))


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "i4", "f8"])
def test_parquet(tmp_path: Path, folder: bool, dtype: str) -> None:
    pytest.importorskip("pyarrow")
    table = frame().astype(dtype)
    path = tmp_path / "x.parquet"
    if folder:
        path = tmp_path / "parts"
        path.mkdir()
        table[:70].to_parquet(path / "part-0.parquet", row_group_size=30)
        table[70:].to_parquet(path / "part-1.parquet")
    else:
        table.to_parquet(path, row_group_size=47)
    found = turned(path)
    assert found["data"].dtype == dtype
    np.testing.assert_array_equal(found["data"], table.to_numpy())
    assert found["feature"].values.tolist() == LABELS
    assert found["sample"].values.tolist() == table.index.tolist()


def test_parquet_with_nulls_and_a_column_of_names(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    table = frame().reset_index(names="cell")
    table.iloc[5, 4] = None
    table.to_parquet(tmp_path / "x.parquet")
    found = turned(tmp_path / "x.parquet", index_column="cell")
    np.testing.assert_array_equal(found["data"], table[LABELS].to_numpy())


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
def test_netcdf(tmp_path: Path, engine: Any) -> None:
    pytest.importorskip("h5netcdf")
    air = xr.Dataset(
        {
            "air": (("time", "lat", "lon"), planted(60, 12).reshape(60, 3, 4)),
            "mask": (("lat", "lon"), np.arange(12.0).reshape(3, 4)),
        },
        coords={"time": np.datetime64("2001-01-01", "ns") + np.arange(60) * 10**14,
                "lat": [1.0, 2.0, 3.0]},
        attrs={"title": "air"},
    )  # fmt: skip
    packing = {"dtype": "i2", "scale_factor": 0.01, "_FillValue": -9999}
    air.to_netcdf(tmp_path / "x.nc", engine=engine, encoding={"air": packing})
    expected = xr.open_dataset(tmp_path / "x.nc", engine=engine).load()
    found = turned(tmp_path / "x.nc")
    xr.testing.assert_identical(found, expected)


def test_hdf5(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["deep/counts"] = X.astype("f4")
        file["other"] = X
    with pytest.raises(RequestError) as raised:
        turned(tmp_path / "x.h5")
    assert "x.h5::/deep/counts" in raised.value.remedy
    found = turned(f"{tmp_path}/x.h5::/deep/counts")
    np.testing.assert_array_equal(found["data"], X.astype("f4"))


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("group", ["", "in/side"])
def test_netcdf_is_known_by_what_it_holds(tmp_path: Path, named: bool, group: str) -> None:
    pytest.importorskip("h5netcdf")
    h5py = pytest.importorskip("h5py")
    air = xr.Dataset(
        {"air": (("time", "lat"), X[:, :3])},
        coords={"time": np.datetime64("2001-01-01", "ns") + np.arange(150) * 10**14,
                "lat": [1.0, 2.0, 3.0]},
    )  # fmt: skip
    path = tmp_path / "x.h5"
    air.to_netcdf(path, engine="h5netcdf", group=group or None)
    if not named:
        with h5py.File(path, "r+") as file:
            del file.attrs["_NCProperties"]
    found = turned(f"{path}::/{group}" if group else path)
    xr.testing.assert_identical(found, air)
    np.testing.assert_array_equal(  # a dataset asked for is just that
        turned(f"{path}::/{group}/air".replace("//", "/"), overwrite=True)["data"], X[:, :3]
    )


def test_hdf5_of_which_some_dimensions_have_scales(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["time"], file["table"] = np.arange(150), X
        file["time"].make_scale("time")
        file["table"].dims[0].attach_scale(file["time"])
    np.testing.assert_array_equal(turned(tmp_path / "x.h5")["data"], X)


def test_matlab(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "old.mat", {"X": X, "note": "text"})
    np.testing.assert_array_equal(turned(tmp_path / "old.mat")["data"], X)
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "new.mat", "w") as file:  # as -v7.3 stores it
        file["X"] = X.T
    (tmp_path / "out.zarr").rename(tmp_path / "first.zarr")
    np.testing.assert_array_equal(turned(tmp_path / "new.mat")["data"], X)


@pytest.mark.parametrize("kind", ["mat", "npz", "mat 7.3"])
def test_vectors_and_cells_beside_a_table_are_passed_over(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("x.npz" if kind == "npz" else "x.mat")
    if kind == "mat":
        scipy.io.savemat(path, {"y": np.arange(90), "X": X, "names": np.array(["a"], object)})
    elif kind == "npz":
        np.savez(path, y=np.arange(90)[:, None], X=X, z=np.arange(3))
    else:
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w") as file:
            file["#refs#/a"], file["X"] = X[:2, :3], X.T
    np.testing.assert_array_equal(turned(path)["data"], X)


def test_sparse_files_are_told_how_to_become_anndata(tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata")
    counts = sparse.csc_matrix(np.rint(X))
    scipy.io.savemat(tmp_path / "x.mat", {"X": counts})
    sparse.save_npz(tmp_path / "x.npz", counts)
    for name in ("x.mat", "x.npz"):
        with pytest.raises(RequestError, match="sparse matrix") as raised:
            convert(tmp_path / name, tmp_path / "out.zarr")
        program = raised.value.remedy.partition(": ")[2].partition(";")[0]
        made = str(tmp_path / f"{name}.h5ad")
        with warnings.catch_warnings():  # SciPy's, of what it will return one day
            warnings.simplefilter("ignore", DeprecationWarning)
            exec(program.replace("x.h5ad", made), {"anndata": anndata, "scipy": scipy})
        found = open_matrix(made)
        np.testing.assert_array_equal(found.rows.take(0, len(X), np.arange(X.shape[1])), np.rint(X))


@pytest.mark.parametrize(
    ("values", "word"),
    [
        (np.array([[1, "a"]], object), "objects"),
        (np.zeros(5, [("a", "f4"), ("b", "f4")]), "values of dtype"),
        (np.arange(5.0), "no table"),
    ],
)
def test_arrays_that_are_no_tables(tmp_path: Path, values: Any, word: str) -> None:
    np.save(tmp_path / "x.npy", values, allow_pickle=True)
    with pytest.raises(RequestError, match=word):
        convert(tmp_path / "x.npy", tmp_path / "out.zarr")


def test_netcdf_whose_variables_are_in_a_group(tmp_path: Path) -> None:
    pytest.importorskip("h5netcdf")
    inner = xr.Dataset({"air": (("time", "place"), X)})
    inner.to_netcdf(tmp_path / "x.nc", group="in/side", engine="h5netcdf")
    with pytest.raises(RequestError, match="no variables") as raised:
        convert(tmp_path / "x.nc", tmp_path / "out.zarr")
    assert f"{tmp_path}/x.nc::in/side" in raised.value.remedy
    found = turned(f"{tmp_path}/x.nc::in/side")
    np.testing.assert_array_equal(found["air"], X)


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


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.csv", "x.parquet", "x.nc", "x.h5", "x.mat"])
@pytest.mark.parametrize("content", [b"", b"\x93NUMPY nonsense", b"PK\x03\x04 nonsense"])
def test_damaged_files_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RequestError):
        convert(tmp_path / name, tmp_path / "out.zarr")
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("a,b\n1,2\nx,3\n", "'a'"),
        ("a,b\n1,2\n1,2,3\n", "Line 3 .* 3 fields"),
        ("a,b\n1,2\n\n3", "Line 4 .* 1 field "),  # cut
        ("id,a\n'x\n1',2\n'y,y',3,4\n".replace("'", '"'), "Line 4 .* 3 fields"),
        ("a,b\r1,2\r3\r", "Line 3"),
        ("a,b\n1,2,\n3,4,\n", "Line 2"),
        ("a;b\n1,5;1,25\n2,5\n", "Line 3 .* 1 field "),
        ("a;b|c\n1;5|2\n", "no table"),  # by which of them?
        ("a;b\n1,234;2\n5,678;1\n", "'1,234', for decimals or thousands"),
        ("a;b\n1,5;2\n5,678;2.5\n", r"'1,5', and points, such as '2\.5'"),
        ("a\tb\n1\t'1.234,5'\n".replace("'", '"'), "no table|'1.234,5'"),
        ("a,b\n'1,5','2,5'\n".replace("'", '"'), "no table"),
        ("a,b\n1,2\n\x00,3\n", "NUL"),
        ('a,b\n1,2\n"3,4\n', "quote"),
        ("\ufeff\n", "no table|empty"),
        ("id\n1\n", "no table"),
        ("a,b\n", "no rows"),
        ("a,b\nx,y\n", "no table"),
    ],
)
def test_text_that_is_no_table(tmp_path: Path, content: str, word: str) -> None:
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(RequestError, match=word):
        convert(
            tmp_path / "x.csv",
            tmp_path / "out.zarr",
            index_column="id" if "id" in content else None,
        )
    assert not (tmp_path / "out.zarr").exists()


def test_rows_are_counted_block_by_block(tmp_path: Path) -> None:
    quotes = '""' * 600
    lines = ["id,a,b", *[f'"{i}, {quotes}\n{"x," * 250}",{i},2' for i in range(1002)]]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    found = turned(tmp_path / "x.csv")
    assert found.sizes == {"sample": 1002, "feature": 2}
    assert found["id"].values[1001] == "1001, " + '"' * 600 + "\n" + "x," * 250
    for row in (1001, 2):  # the first that is wrong is named
        lines[row] += ",7"
        (tmp_path / "x.csv").write_text("\n".join(lines))
        with pytest.raises(RequestError, match=f"Line {2 * row} .* 4 fields"):
            turned(tmp_path / "x.csv", overwrite=True)


def test_text_as_r_writes_it(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('"a","b"\n"r1",1,NA\n"r2",3,4\n')
    found = turned(tmp_path / "x.csv")
    assert found["sample"].values.tolist() == ["r1", "r2"]
    np.testing.assert_array_equal(found["data"], [[1, np.nan], [3, 4]])


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_text_in_another_encoding(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "x.csv").write_text("é,b\n1,2\n", encoding=encoding)
    with pytest.raises(RequestError, match="UTF-8") as raised:
        turned(tmp_path / "x.csv")
    assert "UTF-8" in raised.value.remedy


@pytest.mark.parametrize(
    ("name", "package"), [("x.parquet", "pyarrow"), ("x.h5", "h5py"), ("tenx", "anndata")]
)
def test_missing_libraries_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    for module in [m for m in sys.modules if m.split(".")[0] == package] + [package]:
        monkeypatch.setitem(sys.modules, module, None)
    if name == "tenx":
        (tmp_path / name).mkdir()
        (tmp_path / name / "matrix.mtx").touch()
    else:
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(RequestError, match=package) as raised:
        convert(tmp_path / name, tmp_path / "out.zarr")
    assert f"pip install {package}" in raised.value.remedy


def test_a_converted_table_is_selected_from_like_the_array(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "x.csv")
    turned(tmp_path / "x.csv")
    found = select(str(tmp_path / "out.zarr"), 3, 4)
    np.testing.assert_array_equal(found.selected, select(X, 3, 4).selected)
    assert found.labels == [LABELS[i] for i in found.selected]


def test_whatever_is_known_by_its_name_is_opened() -> None:
    assert {*SUFFIXES.values()} == {*COLUMNS, *ARRAYS, "netcdf", "mtx"}


def test_what_needs_no_conversion(tmp_path: Path) -> None:
    turned_from = tmp_path / "x.npy"
    np.save(turned_from, X)
    turned(turned_from)
    with pytest.raises(RequestError, match="no format"):
        convert(tmp_path / "out.zarr", tmp_path / "other.zarr")
    with pytest.raises(RequestError, match="exists"):
        convert(turned_from, tmp_path / "out.zarr")
    convert(turned_from, tmp_path / "out.zarr", overwrite=True)
    with pytest.raises(RequestError, match="does not exist"):
        convert(tmp_path / "none.csv", tmp_path / "other.zarr")

"""Opening Zarr stores, and the errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from helpers import chunk_files, labelled, planted, write_bare, write_xarray
from reference import assert_optimal, reference

from kmufs_stream import BrokenError, RequestError, decompose, open_matrix, select

X = planted(120, 12)
KINDS = [
    pytest.param(2, None, True, id="v2-consolidated"),
    pytest.param(2, None, False, id="v2"),
    pytest.param(3, None, True, id="v3-consolidated"),
    pytest.param(3, None, False, id="v3"),
    pytest.param(3, (60, 12), True, id="v3-sharded-consolidated"),
    pytest.param(3, (60, 12), False, id="v3-sharded"),
]


def values(matrix: Any) -> Any:
    return matrix.rows.read(0, matrix.shape[0])


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("chunks", [(120, 12), (7, 5), (1, 12), (120, 1), (500, 12)])
def test_bare_array(tmp_path: Path, zarr_format: int, chunks: tuple[int, int]) -> None:
    matrix = open_matrix(write_bare(tmp_path / "a", X, zarr_format=zarr_format, chunks=chunks))
    assert matrix.shape == (120, 12)
    assert (matrix.layout.chunk_rows, matrix.layout.chunk_columns) == chunks
    assert (matrix.metadata.name, matrix.metadata.sample_dim, matrix.metadata.feature_dim) == (
        "data",
        "sample",
        "feature",
    )
    assert matrix.labels is None
    assert matrix.layout.zarr_format == zarr_format
    np.testing.assert_array_equal(values(matrix), X)
    np.testing.assert_array_equal(matrix.rows.read(5, 33), X[5:33])
    np.testing.assert_array_equal(
        matrix.rows.take(5, 33, np.array([1, 4, 11])), X[5:33][:, [1, 4, 11]]
    )


def test_sharded_array_is_read_by_chunk_and_written_by_shard(tmp_path: Path) -> None:
    matrix = open_matrix(write_bare(tmp_path / "a", X, chunks=(10, 6), shards=(40, 12)))
    assert (matrix.layout.chunk_rows, matrix.layout.chunk_columns, matrix.layout.shard_rows) == (
        10,
        6,
        40,
    )
    np.testing.assert_array_equal(values(matrix), X)


@pytest.mark.parametrize(("zarr_format", "shards", "consolidated"), KINDS)
def test_xarray_store(
    tmp_path: Path, zarr_format: int, shards: tuple[int, int] | None, consolidated: bool
) -> None:
    array = labelled(X)
    write_xarray(
        tmp_path / "a.zarr",
        array,
        zarr_format=zarr_format,
        chunks=(20, 12),
        shards=shards,
        consolidated=consolidated,
        attrs={"title": "t"},
    )
    matrix = open_matrix(tmp_path / "a.zarr")
    assert (matrix.metadata.name, matrix.metadata.sample_dim, matrix.metadata.feature_dim) == (
        "counts",
        "cell",
        "gene",
    )
    assert matrix.labels is not None
    assert [str(x) for x in matrix.labels] == [str(x) for x in array["gene"].values]
    assert matrix.feature_name(3) == "'gene 3 é' (feature 3)"
    assert matrix.metadata.attrs["units"] == "1"
    assert matrix.metadata.coords.attrs == {"title": "t"}
    decoded = xr.decode_cf(matrix.metadata.coords)
    assert set(decoded.coords) == set(array.coords)
    for name in array.coords:
        np.testing.assert_array_equal(decoded[name].values, array[name].values, err_msg=str(name))
    np.testing.assert_array_equal(values(matrix), X)
    chosen = select(matrix, 3, 4, solver="exact")
    assert_optimal(chosen.selected, reference(X).every_score(3), 4, 1e-12)
    assert chosen.labels == [f"gene {i} é" for i in chosen.selected]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr_array_of_an_xarray_store(tmp_path: Path, zarr_format: int) -> None:
    write_xarray(tmp_path / "a.zarr", labelled(X), zarr_format=zarr_format, chunks=(20, 12))
    stored = zarr.open_group(tmp_path / "a.zarr", mode="r")["counts"]
    matrix = open_matrix(stored)
    np.testing.assert_array_equal(values(matrix), X)
    assert matrix.dtype == np.float64
    assert (matrix.metadata.name, matrix.metadata.sample_dim, matrix.metadata.feature_dim) == (
        "counts",
        "cell",
        "gene",
    )


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_path_of_the_array_finds_the_labels_beside_it(tmp_path: Path, zarr_format: int) -> None:
    write_xarray(tmp_path / "a.zarr", labelled(X), zarr_format=zarr_format)
    matrix = open_matrix(tmp_path / "a.zarr" / "counts")
    assert matrix.labels is not None
    assert str(matrix.labels[2]) == "gene 2 é"
    np.testing.assert_array_equal(values(matrix), X)


@pytest.mark.parametrize(
    ("coordinate", "expected"),
    [
        (np.arange(12) * 10, [0, 10, 20]),
        (np.arange(12) / 4, [0.0, 0.25, 0.5]),
        (np.array([f"b{i}" for i in range(12)]), ["b0", "b1", "b2"]),
        (
            np.datetime64("2000-01-01", "ns") + np.arange(12) * np.timedelta64(1, "D"),
            ["2000-01-01T00:00:00"],
        ),
    ],
    ids=["int", "float", "string", "datetime"],
)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_kinds_of_labels(
    tmp_path: Path, zarr_format: int, coordinate: Any, expected: list[Any]
) -> None:
    array = xr.DataArray(X, dims=("s", "f"), name="x", coords={"f": coordinate})
    write_xarray(tmp_path / "a.zarr", array, zarr_format=zarr_format)
    chosen = select(tmp_path / "a.zarr", 3, 12, solver="exact")
    assert chosen.labels is not None
    assert chosen.labels[: len(expected)] == expected
    json.dumps(chosen.labels)


def test_only_textual_coordinate_labels_the_features(tmp_path: Path) -> None:
    array = xr.DataArray(X, dims=("s", "f"), name="x").assign_coords(
        number=("f", np.arange(12)), symbol=("f", [f"S{i}" for i in range(12)])
    )
    matrix = open_matrix(write_xarray(tmp_path / "a.zarr", array))
    assert matrix.labels is not None
    assert str(matrix.labels[7]) == "S7"
    two = array.assign_coords(other=("f", [f"T{i}" for i in range(12)]))
    assert open_matrix(write_xarray(tmp_path / "b.zarr", two)).labels is None


@pytest.mark.parametrize("named", [{"sample_dims": "cell"}, {"feature_dims": "gene"}])
@pytest.mark.parametrize(("zarr_format", "shards"), [(2, None), (3, None), (3, (12, 60))])
def test_transposed_store(
    tmp_path: Path, zarr_format: int, shards: tuple[int, int] | None, named: dict[str, str]
) -> None:
    array = labelled(X).transpose("gene", "cell")
    path = write_xarray(
        tmp_path / "a.zarr", array, zarr_format=zarr_format, chunks=(6, 20), shards=shards
    )
    matrix = open_matrix(path, **named)
    assert matrix.shape == (120, 12)
    assert matrix.metadata.transposed
    assert (matrix.metadata.sample_dim, matrix.metadata.feature_dim) == ("cell", "gene")
    assert (matrix.layout.chunk_rows, matrix.layout.chunk_columns) == (20, 6)
    assert matrix.layout.shard_rows == (60 if shards else 20)
    np.testing.assert_array_equal(values(matrix), X)
    np.testing.assert_array_equal(matrix.rows.take(3, 50, np.array([0, 7])), X[3:50][:, [0, 7]])
    assert_optimal(
        select(matrix, 3, 5, solver="exact").selected, reference(X).every_score(3), 5, 1e-12
    )


def test_bare_array_transposed_by_its_default_names(tmp_path: Path) -> None:
    path = write_bare(tmp_path / "a", np.ascontiguousarray(X.T))
    matrix = open_matrix(path, sample_dims="feature")
    assert matrix.shape == (120, 12)
    np.testing.assert_array_equal(values(matrix), X)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_packed_values_are_decoded(tmp_path: Path, zarr_format: int) -> None:
    array = xr.DataArray(np.round(X, 1), dims=("s", "f"), name="x")
    path = write_xarray(
        tmp_path / "a.zarr",
        array,
        zarr_format=zarr_format,
        chunks=(30, 12),
        encoding={"dtype": "i2", "scale_factor": 0.1, "add_offset": 5.0, "_FillValue": -999},
    )
    with xr.open_zarr(path) as opened:
        decoded = opened["x"].values
    matrix = open_matrix(path)
    assert matrix.dtype == decoded.dtype
    assert matrix.layout.dtype == np.int16
    np.testing.assert_array_equal(values(matrix), decoded)
    raw = matrix.rows.take(0, 120, np.arange(12))
    assert raw.dtype == np.int16
    np.testing.assert_array_equal(raw, np.rint((np.round(X, 1) - 5) / 0.1))
    assert_optimal(
        select(matrix, 3, 4, solver="exact").selected, reference(decoded).every_score(3), 4, 1e-6
    )


@pytest.mark.parametrize(
    ("zarr_format", "dtype"),
    [
        (2, "i2"),
        (2, "f4"),
        (2, "f8"),
        (3, "i2"),
        (3, "f4"),
        (3, "f8"),
    ],
)
def test_fill_value_of_xarray_marks_missing_values(
    tmp_path: Path, zarr_format: int, dtype: str
) -> None:
    whole = np.round(X * 10)
    whole[[3, 50], 4] = np.nan
    whole[7, 9] = np.nan
    path = write_xarray(
        tmp_path / "a.zarr",
        xr.DataArray(whole, dims=("s", "f"), name="x"),
        zarr_format=zarr_format,
        encoding={"dtype": dtype, "_FillValue": -999},
    )
    found = values(open_matrix(path))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(whole))
    with pytest.raises(RequestError, match=r"3 values in 2 of 12 features") as caught:
        decompose(path, 2)
    assert caught.value.code == "not_finite"
    assert "feature 4: 2" in caught.value.message
    assert "feature 9: 1" in caught.value.message


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", ["u1", "i4", "f4", "f8"])
def test_zero_is_a_value_though_it_is_the_fill_value(
    tmp_path: Path, zarr_format: int, dtype: str
) -> None:
    whole = np.maximum(np.round(X * 10), 0).astype(dtype)
    bare = write_bare(tmp_path / "bare", whole, zarr_format=zarr_format, fill_value=0)
    theirs = write_xarray(
        tmp_path / "x.zarr",
        xr.DataArray(whole, dims=("s", "f"), name="x"),
        zarr_format=zarr_format,
        encoding={"_FillValue": None},
    )
    for path in (bare, theirs):
        matrix = open_matrix(path)
        assert matrix.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(values(matrix), whole)


DTYPES = ["bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", [*DTYPES, ">i2", ">i8", ">f4", ">f8"])
def test_dtypes(tmp_path: Path, zarr_format: int, dtype: str) -> None:
    shifted = X if np.dtype(dtype).kind == "f" else np.clip(np.rint(X * 8 + 60), 0, 120)
    whole = (X > 0.5) if dtype == "bool" else shifted.astype(dtype)
    if zarr_format == 3 and dtype.startswith(">"):
        path = tmp_path / "a"
        zarr.create_array(
            path,
            shape=whole.shape,
            dtype=dtype.replace(">", "<"),
            chunks=(50, 12),
            serializer=zarr.codecs.BytesCodec(endian="big"),
        )[...] = whole
    else:
        path = write_bare(tmp_path / "a", whole, zarr_format=zarr_format, chunks=(50, 12))
    matrix = open_matrix(path)
    found = values(matrix)
    assert found.dtype == matrix.dtype
    assert matrix.dtype.newbyteorder("=") == whole.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, whole)
    out = tmp_path / "out.zarr"
    chosen = select(path, 3, 4, solver="exact", out=out)
    narrow = np.can_cast(matrix.dtype, np.float32, "safe")
    assert chosen.factor.precision == ("float32" if narrow else "float64")
    expected = reference(whole.astype(np.float64)).every_score(3)
    assert_optimal(chosen.selected, expected, 4, 1e-6 if narrow else 1e-12)
    with xr.open_zarr(out, mask_and_scale=False) as opened:
        assert opened["data"].dtype.newbyteorder("=") == whole.dtype.newbyteorder("=")
        np.testing.assert_array_equal(opened["data"].values, whole[:, chosen.selected])


def test_opening_reads_no_chunk_of_the_data(tmp_path: Path) -> None:
    path = write_xarray(tmp_path / "a.zarr", labelled(X), chunks=(20, 12))
    for file in chunk_files(path / "counts"):
        file.write_bytes(b"not a chunk")
    matrix = open_matrix(path)
    assert matrix.shape == (120, 12)
    assert matrix.labels is not None


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_missing_chunk_is_named(tmp_path: Path, zarr_format: int) -> None:
    path = write_bare(tmp_path / "a", X, zarr_format=zarr_format, chunks=(50, 6))
    gone = chunk_files(path)[3]
    gone.unlink()
    key = gone.relative_to(path).as_posix()
    with pytest.raises(BrokenError) as caught:
        decompose(path, 2)
    assert caught.value.code == "missing_chunk"
    assert caught.value.exit_code == 1
    assert f"chunk {key} " in caught.value.message
    assert "fill" in caught.value.remedy
    filled = open_matrix(path, fill_missing_chunks=True)
    assert len(decompose(filled, 2).features.usable) == 12
    assert (values(filled) == 0).sum() in (50 * 6, 20 * 6)


@pytest.mark.parametrize(("zarr_format", "shards"), [(2, None), (3, None), (3, (40, 12))])
@pytest.mark.parametrize("transposed", [False, True])
def test_corrupt_chunk_is_named(
    tmp_path: Path, zarr_format: int, shards: tuple[int, int] | None, transposed: bool
) -> None:
    stored = np.ascontiguousarray(X.T) if transposed else X
    chunks = (6, 20) if transposed else (20, 6)
    shard = shards[::-1] if shards and transposed else shards
    path = write_bare(tmp_path / "a", stored, zarr_format=zarr_format, chunks=chunks, shards=shard)
    broken = chunk_files(path)[-1]
    broken.write_bytes(b"\x00garbage" * 9)
    matrix = open_matrix(path, sample_dims="feature" if transposed else None)
    with pytest.raises(BrokenError) as caught:
        decompose(matrix, 2)
    assert caught.value.code == "corrupt_chunk"
    assert f"chunk {broken.relative_to(path).as_posix()} of {path}" in caught.value.message
    with pytest.raises(BrokenError, match="chunk"):
        matrix.rows.take(0, 120, np.array([11]))


def test_truncated_chunk_is_named(tmp_path: Path) -> None:
    path = write_bare(tmp_path / "a", X, chunks=(20, 12), compressors=None)
    broken = chunk_files(path)[2]
    broken.write_bytes(broken.read_bytes()[:-8])
    with pytest.raises(BrokenError, match="chunk c/2/0 of"):
        decompose(path, 2)


def group_of(path: Path, **arrays: Any) -> Path:
    group = zarr.create_group(path)
    for name, whole in arrays.items():
        group.create_array(name, shape=whole.shape, dtype=whole.dtype)[...] = whole
    return path


def test_only_table_of_a_group_is_found(tmp_path: Path) -> None:
    path = group_of(tmp_path / "g", table=X, weights=np.arange(5.0), cube=np.zeros((2, 2, 2)))
    matrix = open_matrix(path)
    assert matrix.metadata.name == "table"
    np.testing.assert_array_equal(values(matrix), X)


def test_candidates_are_listed_and_one_is_chosen(tmp_path: Path) -> None:
    path = group_of(tmp_path / "g", raw=X, scaled=X[:50] * 2)
    with pytest.raises(RequestError) as caught:
        open_matrix(path)
    assert caught.value.code == "ambiguous_variable"
    assert "raw (120, 12) float64" in caught.value.message
    assert "scaled (50, 12) float64" in caught.value.message
    assert "variable=" in caught.value.remedy
    np.testing.assert_array_equal(values(open_matrix(path, variable="scaled")), X[:50] * 2)
    with pytest.raises(RequestError, match="Did you mean 'scaled'") as caught:
        open_matrix(path, variable="scale")
    assert caught.value.code == "unknown_variable"


def test_what_only_describes_the_places_of_another_is_not_the_table(tmp_path: Path) -> None:
    cube = xr.DataArray(X.reshape(120, 3, 4), dims=("time", "lat", "lon"))
    mask = xr.DataArray(np.eye(3, 4), dims=("lat", "lon"))
    xr.Dataset({"air": cube, "mask": mask}).to_zarr(tmp_path / "a.zarr")
    np.testing.assert_array_equal(values(open_matrix(tmp_path / "a.zarr", sample_dims="time")), X)
    with pytest.raises(RequestError, match=r"holds 2 tables: air .*, mask "):
        open_matrix(tmp_path / "a.zarr")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_group_by_name(tmp_path: Path, zarr_format: int) -> None:
    form: Any = {"zarr_format": zarr_format}
    labelled(X).to_dataset().to_zarr(tmp_path / "a.zarr", group="deep/er", **form)
    matrix = open_matrix(tmp_path / "a.zarr", group="deep/er")
    np.testing.assert_array_equal(values(matrix), X)
    assert matrix.labels is not None
    with pytest.raises(RequestError) as caught:
        open_matrix(tmp_path / "a.zarr")
    assert caught.value.code == "no_table"
    assert "group='deep/er'" in caught.value.remedy
    with pytest.raises(RequestError, match=r"Groups there: .*deep/er") as caught:
        open_matrix(tmp_path / "a.zarr", group="deeper")
    assert caught.value.code == "unknown_group"


def test_array_beside_an_xarray_dataset_does_not_hide_it(tmp_path: Path) -> None:
    path = write_xarray(tmp_path / "a.zarr", labelled(X))
    zarr.open_group(path).create_array("extra", shape=(3,), dtype="i4")
    np.testing.assert_array_equal(values(open_matrix(path)), X)


def make_unreadable(path: Path, what: str) -> None:
    if what == "folder":
        path.mkdir()
    elif what == "file":
        path.write_text("not a store")
    elif what == "empty group":
        zarr.create_group(path)
    elif what == "one dimension":
        write_bare(path, X[:, 0])
    elif what == "three dimensions":
        write_bare(path, X.reshape(12, 10, 12))
    elif what == "complex":
        write_bare(path, X + 1j)
    elif what == "string":
        zarr.create_array(path, shape=(4, 4), dtype="U3")
    elif what == "truncated":
        write_bare(path, X)
        text = (path / "zarr.json").read_text()
        (path / "zarr.json").write_text(text[: len(text) // 2])
    elif what == "truncated variable":
        group_of(path, table=X)
        text = (path / "table" / "zarr.json").read_text()
        (path / "table" / "zarr.json").write_text(text[: len(text) // 2])
    elif what == "truncated v2":
        write_bare(path, X, zarr_format=2)
        (path / ".zarray").write_text("{")


@pytest.mark.filterwarnings("ignore:Object at")
@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("nothing", "not_found"),
        ("folder", "not_zarr"),
        ("file", "not_zarr"),
        ("empty group", "no_table"),
        ("one dimension", "not_2d"),
        ("three dimensions", "which_dimensions"),
        ("complex", "bad_dtype"),
        ("string", "bad_dtype"),
        ("truncated", "bad_metadata"),
        ("truncated v2", "bad_metadata"),
        ("truncated variable", "bad_metadata"),
    ],
)
def test_refused(tmp_path: Path, what: str, code: str) -> None:
    path = tmp_path / "store.zarr"
    make_unreadable(path, what)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RequestError) as caught:
        select(path, 2, 4, out=tmp_path / "out.zarr")
    assert caught.value.code == code
    assert caught.value.exit_code == 2
    assert "store.zarr" in caught.value.message
    assert caught.value.remedy
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"sample_dims": "no"}, "unknown_dimension"),
        ({"feature_dims": "no"}, "unknown_dimension"),
        ({"sample_dims": "cell", "feature_dims": "cell"}, "which_dimensions"),
    ],
)
def test_refused_dimensions(tmp_path: Path, options: dict[str, str], code: str) -> None:
    path = write_xarray(tmp_path / "a.zarr", labelled(X))
    with pytest.raises(RequestError) as caught:
        open_matrix(path, **options)
    assert caught.value.code == code
    assert "'cell'" in str(caught.value)


def test_variable_of_a_bare_array_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError) as caught:
        open_matrix(write_bare(tmp_path / "a", X), variable="x")
    assert caught.value.code == "unknown_variable"

"""Opening Zarr stores, and the errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr
import zarr
from helpers import chunk_files, labelled, planted, write_bare, write_xarray
from reference import assert_optimal, reference
from sources.checks import check_rows, names, values

from kmufs_stream import BrokenError, RequestError, decompose, open_matrix, select

X = planted(120, 12)
EXPECTED = reference(X).every_score(3)
LABELS = [f"gene {i} é" for i in range(12)]


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("chunks", [(120, 12), (7, 5), (1, 12), (120, 1), (500, 12)])
def test_bare_array(tmp_path: Path, zarr_format: int, chunks: tuple[int, int]) -> None:
    matrix = open_matrix(write_bare(tmp_path / "a", X, zarr_format=zarr_format, chunks=chunks))
    check_rows(matrix, X)
    assert (matrix.layout.chunk_rows, matrix.layout.chunk_columns) == chunks
    assert names(matrix) == ("data", "sample", "feature")
    assert matrix.labels is None
    assert matrix.layout.zarr_format == zarr_format


@pytest.mark.parametrize(
    ("zarr_format", "shards", "consolidated"),
    [(2, None, True), (2, None, False), (3, None, False), (3, (60, 12), True)],
)
@pytest.mark.parametrize(
    "dims", [{}, {"sample_dims": "cell"}, {"feature_dims": "gene"}], ids=["", "cell", "gene"]
)
def test_xarray_store(
    tmp_path: Path,
    zarr_format: int,
    shards: tuple[int, int] | None,
    consolidated: bool,
    dims: dict[str, str],
) -> None:
    array, turn = labelled(X), -1 if dims else 1
    path = write_xarray(
        tmp_path / "a.zarr",
        array.transpose() if dims else array,
        zarr_format=zarr_format,
        chunks=(20, 6)[::turn],
        shards=shards and shards[::turn],
        consolidated=consolidated,
        attrs={"title": "t"},
    )
    matrix = open_matrix(path, **dims)
    check_rows(matrix, X)
    assert names(matrix) == ("counts", "cell", "gene")
    assert matrix.metadata.transposed == bool(dims)
    assert (matrix.layout.chunk_rows, matrix.layout.chunk_columns) == (20, 6)
    assert matrix.layout.shard_rows == (60 if shards else 20)
    assert matrix.feature_name(3) == "'gene 3 é' (feature 3)"
    assert matrix.metadata.attrs["units"] == "1"
    assert matrix.metadata.coords.attrs == {"title": "t"}
    decoded = xr.decode_cf(matrix.metadata.coords)
    assert set(decoded.coords) == set(array.coords)
    for name in array.coords:
        np.testing.assert_array_equal(decoded[name].values, array[name].values, err_msg=str(name))
    chosen = select(matrix, 3, 4, solver="exact")
    assert_optimal(chosen.selected, EXPECTED, 4, 1e-12)
    assert chosen.labels == [LABELS[i] for i in chosen.selected]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_the_array_of_a_dataset_and_its_path(tmp_path: Path, zarr_format: int) -> None:
    genes = write_xarray(tmp_path / "a.zarr", labelled(X), zarr_format=zarr_format)
    group = zarr.open_group(genes)
    group.create_array("extra", shape=(3,), dtype="i4")
    for data in (group["counts"], genes, genes / "counts"):
        matrix = open_matrix(data)
        check_rows(matrix, X)
        assert names(matrix) == ("counts", "cell", "gene")
    assert matrix.labels is not None
    assert matrix.labels.tolist() == LABELS
    for dims in (("no", None), (None, "no"), ("cell", "cell")):
        with pytest.raises(RequestError, match="'cell'") as caught:
            open_matrix(genes, sample_dims=dims[0], feature_dims=dims[1])
        code = "unknown_dimension" if "no" in dims else "which_dimensions"
        assert caught.value.code == code


@pytest.mark.parametrize(
    ("coordinate", "expected"),
    [
        (np.arange(12) / 4, [0.0, 0.25, 0.5]),
        (np.array([f"é{i}" for i in range(12)], object), ["é0", "é1", "é2"]),
        (np.datetime64("2000-01-01", "ns") + np.arange(12) * 10**15, ["2000-01-01T00:00:00"]),
    ],
    ids=["float", "object", "datetime"],
)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_kinds_of_labels(
    tmp_path: Path, zarr_format: int, coordinate: Any, expected: list[Any]
) -> None:
    array = xr.DataArray(X, dims=("s", "f"), name="x", coords={"f": coordinate})
    write_xarray(tmp_path / "a.zarr", array, zarr_format=zarr_format)
    labels = select(tmp_path / "a.zarr", 3, 12, solver="exact").labels
    assert labels is not None
    assert labels[: len(expected)] == expected
    json.dumps(labels)


def test_only_textual_coordinate_labels_the_features(tmp_path: Path) -> None:
    array = xr.DataArray(X, dims=("s", "f"), name="x").assign_coords(
        number=("f", np.arange(12)), symbol=("f", [f"S{i}" for i in range(12)])
    )
    matrix = open_matrix(write_xarray(tmp_path / "a.zarr", array))
    assert matrix.labels is not None
    assert str(matrix.labels[7]) == "S7"
    two = array.assign_coords(other=("f", [f"T{i}" for i in range(12)]))
    assert open_matrix(write_xarray(tmp_path / "b.zarr", two)).labels is None


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


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "f8"])
def test_fill_values_are_missing_where_xarray_says_so(
    tmp_path: Path, zarr_format: int, dtype: str
) -> None:
    def write(name: str, values: npt.NDArray[Any], fill: int | None) -> Path:
        array = xr.DataArray(values, dims=("s", "f"), name="x")
        encoding = {"dtype": dtype, "_FillValue": fill}
        return write_xarray(tmp_path / name, array, zarr_format=zarr_format, encoding=encoding)

    whole = np.maximum(np.round(X * 10), 0).astype(dtype)
    options: Any = {"zarr_format": zarr_format, "fill_value": 0}
    bare = write_bare(tmp_path / "bare", whole, **options)
    beside = write_bare(tmp_path / "group" / "x", whole, **options)
    zarr.open_group(beside.parent, zarr_format=options["zarr_format"])
    zarr.open_array(beside).attrs["_ARRAY_DIMENSIONS"] = ["s", "f"]
    for path in (bare, beside.parent, write("a.zarr", whole, None)):
        matrix = open_matrix(path)
        assert matrix.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(values(matrix), whole)
    gaps = whole.astype(np.float64)
    gaps[[3, 50, 7], [4, 4, 9]] = np.nan
    path = write("b.zarr", gaps, 250)
    np.testing.assert_array_equal(values(open_matrix(path)), gaps)
    with pytest.raises(RequestError, match=r"3 values in 2 of 12 features") as caught:
        decompose(path, 2)
    assert caught.value.code == "not_finite"
    assert "feature 4: 2" in caught.value.message
    assert "feature 9: 1" in caught.value.message


DTYPES = ["bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", [*DTYPES, ">i2", ">i8", ">f4", ">f8"])
def test_dtypes(tmp_path: Path, zarr_format: int, dtype: str) -> None:
    shifted = X if np.dtype(dtype).kind == "f" else np.clip(np.rint(X * 8 + 60), 0, 120)
    whole = (X > 0.5) if dtype == "bool" else shifted.astype(dtype)
    stored, options = whole, {}
    if zarr_format == 3 and dtype.startswith(">"):
        stored = whole.astype(dtype.replace(">", "<"))
        options["serializer"] = zarr.codecs.BytesCodec(endian="big")
    path = write_bare(tmp_path / "a", stored, zarr_format=zarr_format, chunks=(50, 12), **options)
    matrix = open_matrix(path)
    found = values(matrix)
    assert found.dtype == matrix.dtype
    assert matrix.dtype.newbyteorder("=") == whole.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, whole)
    chosen = select(matrix, 3, 4, solver="exact")
    narrow = np.can_cast(matrix.dtype, np.float32, "safe")
    assert chosen.factor.precision == ("float32" if narrow else "float64")
    subset = chosen.dataset["data"].values
    assert subset.dtype.newbyteorder("=") == whole.dtype.newbyteorder("=")
    np.testing.assert_array_equal(subset, whole[:, chosen.selected])


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
    with pytest.raises(BrokenError) as caught:
        decompose(path, 2)
    assert caught.value.code == "missing_chunk"
    assert caught.value.exit_code == 1
    assert f"chunk {gone.relative_to(path).as_posix()} " in caught.value.message
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


def group_of(path: Path, **arrays: Any) -> Path:
    zarr.create_group(path)
    for name, whole in arrays.items():
        write_bare(path / name, whole)
    return path


def test_only_table_of_a_group_is_found_and_one_of_several_chosen(tmp_path: Path) -> None:
    one = group_of(tmp_path / "one", table=X, weights=np.arange(5.0), cube=np.zeros((2, 2, 2)))
    check_rows(open_matrix(one), X)
    path = group_of(tmp_path / "two", raw=X, scaled=X[:50] * 2)
    with pytest.raises(RequestError) as caught:
        open_matrix(path)
    assert caught.value.code == "ambiguous_variable"
    assert "raw (120, 12) float64" in caught.value.message
    assert "scaled (50, 12) float64" in caught.value.message
    assert "variable=" in caught.value.remedy
    check_rows(open_matrix(path, variable="scaled"), X[:50] * 2)
    with pytest.raises(RequestError, match="Did you mean 'scaled'") as caught:
        open_matrix(path, variable="scale")
    assert caught.value.code == "unknown_variable"


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_group_by_name(tmp_path: Path, zarr_format: int) -> None:
    form: Any = {"zarr_format": zarr_format}
    xr.Dataset({"x": (("s", "f"), X)}).to_zarr(tmp_path / "a.zarr", group="deep/er", **form)
    check_rows(open_matrix(tmp_path / "a.zarr", group="deep/er"), X)
    with pytest.raises(RequestError) as caught:
        open_matrix(tmp_path / "a.zarr")
    assert caught.value.code == "no_table"
    assert "group='deep/er'" in caught.value.remedy
    with pytest.raises(RequestError, match=r"Groups there: .*deep/er") as caught:
        open_matrix(tmp_path / "a.zarr", group="deeper")
    assert caught.value.code == "unknown_group"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


ONE, OTHER = ("s", np.arange(120)), ("t", np.arange(9))
LINES = {"a": ONE, "b": ONE, "c": OTHER, "d": OTHER}
SIDE = {"features_from_variables": True}


@pytest.mark.filterwarnings("ignore:Object at")
@pytest.mark.parametrize(
    ("make", "options", "code"),
    [
        (lambda path: None, {}, "not_found"),
        (lambda path: path.mkdir(), {}, "not_zarr"),
        (lambda path: path.write_text("not a store"), {}, "not_zarr"),
        (lambda path: zarr.create_group(path), {}, "no_table"),
        (lambda path: write_bare(path, X[:, 0]), {}, "not_2d"),
        (lambda path: write_bare(path, X.reshape(12, 10, 12)), {}, "which_dimensions"),
        (lambda path: write_bare(path, X + 1j), {}, "bad_dtype"),
        (lambda path: write_bare(path, X.astype("U3")), {}, "bad_dtype"),
        (lambda path: cut(write_bare(path, X) / "zarr.json"), {}, "bad_metadata"),
        (lambda path: cut(write_bare(path, X, zarr_format=2) / ".zarray"), {}, "bad_metadata"),
        (lambda path: cut(group_of(path, table=X) / "table" / "zarr.json"), {}, "bad_metadata"),
        (lambda path: write_bare(path, X), SIDE, "unknown_variable"),
        (lambda path: xr.Dataset({"a": ONE}).to_zarr(path), SIDE, "no_table"),
        (lambda path: xr.Dataset(LINES).to_zarr(path), SIDE, "which_dimensions"),
    ],
)
def test_refused(
    tmp_path: Path, make: Callable[[Path], object], options: dict[str, Any], code: str
) -> None:
    path = tmp_path / "store.zarr"
    make(path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RequestError) as caught:
        select(open_matrix(path, **options), 2, 4, out=tmp_path / "out.zarr")
    assert caught.value.code == code
    assert caught.value.exit_code == 2
    assert "store.zarr" in caught.value.message
    assert caught.value.remedy
    assert sorted(tmp_path.rglob("*")) == before

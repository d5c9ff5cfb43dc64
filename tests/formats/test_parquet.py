"""Parquet files and folders as stores: types, nulls, lists, partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from formats.tables import (
    DAYS,
    LABELS,
    NAMES,
    N,
    X,
    convert_and_open,
    converted,
    frame,
    named_frame,
    written,
)

from kmufs_stream import RequestError, convert, open_matrix


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "i4", "f8"])
def test_parquet(tmp_path: Path, folder: bool, dtype: str) -> None:
    pytest.importorskip("pyarrow")
    table = named_frame().astype(dtype)
    path = tmp_path / "x.parquet"
    if folder:
        path = tmp_path / "parts"
        path.mkdir()
        table[:70].to_parquet(path / "part-0.parquet", row_group_size=30)
        table[70:].to_parquet(path / "part-1.parquet")
    else:
        table.to_parquet(path, row_group_size=47)
    found = converted(path)
    assert found["data"].dtype == dtype
    np.testing.assert_array_equal(found["data"], table.to_numpy())
    assert found["feature"].values.tolist() == NAMES
    assert found["sample"].values.tolist() == table.index.tolist()


def test_parquet_with_nulls_and_a_column_of_names(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    table = named_frame().reset_index(names="cell")
    table.iloc[5, 4] = None
    table.to_parquet(tmp_path / "x.parquet")
    found = converted(tmp_path / "x.parquet", index_column="cell")
    np.testing.assert_array_equal(found["data"], table[NAMES].to_numpy())


def test_parquet_knows_more_types(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    days = pd.Series(DAYS.astype("M8[us]"))
    days[3] = pd.NaT
    table = frame(when=days, truth=[i % 5 == 0 for i in range(N)], sort=pd.Categorical([1, 2] * 75))
    path = written(tmp_path, "parquet", table)
    done, found = convert_and_open(path, coordinates=["truth"])
    assert done.features == tuple(LABELS)
    np.testing.assert_array_equal(found["when"].values, days.to_numpy())
    assert found["truth"].dtype == bool
    assert found["sort"].values.tolist() == [1, 2] * 75
    chosen = open_matrix(str(tmp_path / "out.zarr"), where="when > '2024-03-01' and truth")
    assert chosen.shape[0] == ((np.datetime64("2024-03-01") < DAYS) & table.truth).sum()
    days_alone = pa.array([0, 1], pa.date32())
    lists = pa.table({"a": [1.0, 2.0], "inner": [[[1.0]], [[2.0]]], "day": days_alone})
    pq.write_table(lists, tmp_path / "lists.parquet")
    with pytest.raises(RequestError, match="'inner'"):
        convert(tmp_path / "lists.parquet", tmp_path / "other.zarr")
    pq.write_table(lists.drop_columns("inner"), tmp_path / "dates.parquet")
    convert(tmp_path / "dates.parquet", tmp_path / "out.zarr", overwrite=True)
    with xr.open_zarr(tmp_path / "out.zarr") as dates:
        assert dates["day"].values.astype("M8[D]").astype(int).tolist() == [0, 1]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_in_each_unit(tmp_path: Path, unit: str) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    times = np.array(["1700-01-01", "2262-04-11T23:00", "NaT", "2024-02-29"], f"M8[{unit}]")
    table = pa.table({"a": X[:4, 0], "when": pa.array(times, pa.timestamp(unit))})
    pq.write_table(table, tmp_path / "x.parquet")
    np.testing.assert_array_equal(converted(tmp_path / "x.parquet")["when"].values, times)


def test_files_of_a_folder_whose_types_differ(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "x"
    path.mkdir()
    first = frame().assign(g0=range(N), note=None)
    first.to_parquet(path / "a.parquet")
    frame().assign(note="n").to_parquet(path / "b.parquet")
    found = converted(path)
    np.testing.assert_array_equal(found["data"], np.concatenate([first[LABELS], X]))
    np.testing.assert_array_equal(found["note"].isnull(), [True] * N + [False] * N)


def test_integers_with_nulls_are_floats(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    numbers = pd.array([1, None, 3] * 50, dtype="Int64")
    path = written(tmp_path, "parquet", pd.DataFrame({"a": numbers, "b": range(N)}))
    found = converted(path)
    assert found["data"].dtype == np.float64
    np.testing.assert_array_equal(found["data"][:3, 0], [1, np.nan, 3])
    with pytest.raises(RequestError, match="missing value"):
        convert(path, tmp_path / "other.zarr", dtype="int64")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (b"", r"b\.parquet"),
        (b"PAR1 cut", r"b\.parquet"),
        (pd.DataFrame({"g0": [1.0], "z": [2.0]}), r"b\.parquet .*'g1'"),
        (pd.DataFrame([["x"] * 6], columns=LABELS), r"b\.parquet .*g0 has .*string"),
    ],
)
def test_a_file_of_a_folder_that_is_not_like_the_others(
    tmp_path: Path, other: Any, said: str
) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "x"
    path.mkdir()
    pd.DataFrame(X, columns=LABELS).to_parquet(path / "a.parquet")
    for noted in ("_SUCCESS", "_metadata", ".a.parquet.crc"):
        (path / noted).touch()
    convert_and_open(path)
    if isinstance(other, bytes):
        (path / "b.parquet").write_bytes(other)
    else:
        other.to_parquet(path / "b.parquet")
    with pytest.raises(RequestError, match=said):
        convert(path, tmp_path / "other.zarr")
    assert not (tmp_path / "other.zarr").exists()


def test_folders_that_stand_for_a_column(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    table = frame(year=2000 + np.arange(N) % 2, place=np.array(["a b", "c/d"])[np.arange(N) % 2])
    table.to_parquet(tmp_path / "x", partition_cols=["year", "place"])
    done, found = convert_and_open(tmp_path / "x")
    assert done.features == tuple(LABELS)
    assert found["year"].values.tolist() == [2000] * 75 + [2001] * 75
    assert found["place"].values.tolist() == ["a b"] * 75 + ["c/d"] * 75
    np.testing.assert_array_equal(found["data"], np.concatenate([X[::2], X[1::2]]))


def test_what_parquet_holds_that_a_store_cannot(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "x.parquet"
    until = pa.array(["2020-01-01", "9999-12-31"]).cast(pa.date32())
    pq.write_table(pa.table({"a": [1.0, 2.0], "until": until}), path)
    with pytest.raises(RequestError, match="'until' holds 9999-12-31") as raised:
        convert(path, tmp_path / "other.zarr")
    assert "text" in raised.value.remedy
    pq.write_table(pa.table({"a": pa.array([], pa.float64())}), path)
    with pytest.raises(RequestError, match="no rows"):
        convert(path, tmp_path / "other.zarr")
    pq.write_table(pa.table([[1.0], [2.0]], names=["a", "a"]), path)
    with pytest.raises(RequestError, match="several columns 'a'"):
        convert(path, tmp_path / "other.zarr")
    codes = pa.array([7, None]).dictionary_encode()
    views = pa.array(["x", None], pa.string_view())
    pq.write_table(pa.table({"a": [1.0, 2.0], "code": codes, "view": views}), path)
    done, found = convert_and_open(path)
    assert (done.features, found["view"].values[0]) == (("a",), "x")
    np.testing.assert_array_equal(found["code"], [7, np.nan])


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("folder", [False, True])
def test_lists_of_one_length_are_features(tmp_path: Path, fixed: bool, folder: bool) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    vectors = X[:, :4].astype("f4")
    vectors[3, 1] = np.nan
    kind = pa.list_(pa.float32(), 4) if fixed else pa.list_(pa.float32())
    table = pa.table(
        {"id": [f"t{i}" for i in range(N)], "v": pa.array([*vectors], kind), "n": X[:, 5]}
    )
    path = tmp_path / "x.parquet"
    if folder:
        path.mkdir()
        pq.write_table(table[:60], path / "a.parquet", row_group_size=17)
        pq.write_table(table[60:], path / "b.parquet")
    else:
        pq.write_table(table, path, row_group_size=47)
    done, found = convert_and_open(path, index_column="id")
    assert done.features == ("v_0", "v_1", "v_2", "v_3", "n")
    np.testing.assert_array_equal(found["data"], np.column_stack([vectors, X[:, 5]]))
    assert found["sample"].values[-1] == f"t{N - 1}"


@pytest.mark.parametrize(
    ("lists", "word"),
    [
        ([[1.0, 2.0]] * 90 + [[3.0]], "a list of 1 where others are lists of 2: row 90 "),
        ([[1.0, 2.0]] * 90 + [[]], "a list of 0 where others are lists of 2: row 90 "),
        ([[1.0, 2.0]] * 90 + [None], "'v' holds null where others are lists of 2: row 90 "),
        ([None, [1.0], *[None] * 5], "null where others are lists of 1: row 0 "),
        ([None, [], None], "no table"),
        ([[[1.0]], [[2.0]]], "neither a number"),
        ([["a"], ["b"]], "neither a number"),
    ],
)
def test_lists_that_make_no_table(tmp_path: Path, lists: list[Any], word: str) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"v": lists}), tmp_path / "x.parquet")
    with pytest.raises(RequestError, match=word):
        convert(tmp_path / "x.parquet", tmp_path / "out.zarr")
    assert not (tmp_path / "out.zarr").exists()


@pytest.mark.parametrize("fixed", [False, True])
def test_lists_that_are_all_null_are_left_out_and_noted(tmp_path: Path, fixed: bool) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    kind = pa.list_(pa.float32(), 4) if fixed else pa.list_(pa.float32())
    nothing = [None] * N if fixed else [None, []] * (N // 2)
    table = pa.table({"a": X[:, 0].astype("f4"), "v": pa.array(nothing, kind), "n": X[:, 1] > 0})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=47)
    done, found = convert_and_open(tmp_path / "x.parquet")
    assert done.notes[:1] == ("'v' is left out: its lists are all null or empty.",)
    assert done.features == ("a", "n")
    np.testing.assert_array_equal(
        found["data"], np.column_stack([X[:, 0].astype("f4"), X[:, 1] > 0])
    )


def test_places_of_lists_that_another_column_is_called_like(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"v_1": [1, 2], "v": [[3.0, 4.0], [5.0, 7.0]]}), tmp_path / "x.parquet")
    with pytest.raises(RequestError, match=r"'v_1', .* lists in 'v'") as raised:
        convert(tmp_path / "x.parquet", tmp_path / "other.zarr")
    assert "`coordinates='v_1'`" in raised.value.remedy
    done, found = convert_and_open(
        tmp_path / "x.parquet", coordinates=["v_1"]
    )  # what the hint says
    assert done.features == ("v_0", "v_1")
    np.testing.assert_array_equal(found["v_1"], [1, 2])


def test_whole_numbers_in_lists(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"v": [[1, 2**60], [3, 4]]}), tmp_path / "x.parquet")
    found = converted(tmp_path / "x.parquet")
    assert found["data"].values.tolist() == [[1, 2**60], [3, 4]]
    pq.write_table(pa.table({"v": [[1, 2], [3, None]]}), tmp_path / "x.parquet")
    with pytest.raises(RequestError, match="missing value") as raised:
        convert(tmp_path / "x.parquet", tmp_path / "other.zarr")
    assert "`dtype" in raised.value.remedy
    found = converted(tmp_path / "x.parquet", dtype="float32", overwrite=True)
    np.testing.assert_array_equal(found["data"], [[1, 2], [3, np.nan]])


@pytest.mark.parametrize(
    ("other", "word"),
    [("README.txt", "README.txt is no Parquet file"), ("_delta_log/0.json", "is a Delta table")],
)
def test_folders_with_files_of_others(tmp_path: Path, other: str, word: str) -> None:
    path = written(tmp_path, "parts", frame())
    (path / other).parent.mkdir(exist_ok=True)
    (path / other).write_text("what this is")
    with pytest.raises(RequestError, match=word) as raised:
        convert(path, tmp_path / "out.zarr")
    assert ("begin with _" in raised.value.remedy) == (other == "README.txt")


@pytest.mark.parametrize("folder", [False, True])
def test_a_flipped_bit_in_a_page_with_a_checksum_is_refused(tmp_path: Path, folder: bool) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "x.parquet"
    options: Any = {"write_page_checksum": True, "compression": "none", "use_dictionary": False}
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1]}), path, **options)
    content = bytearray(path.read_bytes())
    content[content.index(X[70, 1].tobytes()) + 3] ^= 16
    if folder:
        path = tmp_path / "parts"
        path.mkdir()
        pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1]}), path / "0.parquet", **options)
        (path / "1.parquet").write_bytes(content)
    else:
        path.write_bytes(content)
    with pytest.raises(RequestError, match=r"(1|x)\.parquet cannot be read.*CRC"):
        convert(path, tmp_path / "out.zarr")
    assert not (tmp_path / "out.zarr").exists()

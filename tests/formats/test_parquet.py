"""Parquet files and folders as stores: types, nulls, lists, partitions."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
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
    refused,
    written,
)

from kmufs_stream import open_matrix


def stored(folder: Path, **columns: Any) -> Path:
    """A file of these columns, in groups of rows."""
    pq.write_table(pa.table(columns), folder / "x.parquet", row_group_size=47)
    return folder / "x.parquet"


@pytest.mark.parametrize(
    ("kind", "dtype"), [("parquet", "f4"), ("parquet", "i4"), ("parts", "f8"), ("parts", "f4")]
)
def test_names_and_dtype_are_kept(tmp_path: Path, kind: str, dtype: str) -> None:
    table = named_frame().astype(dtype)
    found = converted(written(tmp_path, kind, table))
    assert found["data"].dtype == dtype
    np.testing.assert_array_equal(found["data"], table.to_numpy())
    assert found["feature"].values.tolist() == NAMES
    assert found["sample"].values.tolist() == table.index.tolist()


def test_rows_that_a_damaged_file_does_not_give_are_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, "parquet", named_frame())
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *_, **__: iter(()))
    assert refused(path, "150 of 150 rows are not there").code == "unreadable"


def test_times_truth_and_categories_describe_the_samples(tmp_path: Path) -> None:
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


def test_types_that_pandas_does_not_write(tmp_path: Path) -> None:
    codes = pa.array([7, None]).dictionary_encode()
    views = pa.array(["x", None], pa.string_view())
    days = pa.array([0, 1], pa.date32())
    done, found = convert_and_open(stored(tmp_path, a=[1.0, 2.0], code=codes, view=views, day=days))
    assert (done.features, found["view"].values[0]) == (("a",), "x")
    np.testing.assert_array_equal(found["code"], [7, np.nan])
    assert found["day"].values.astype("M8[D]").astype(int).tolist() == [0, 1]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_in_each_unit(tmp_path: Path, unit: str) -> None:
    times = np.array(["1700-01-01", "2262-04-11T23:00", "NaT", "2024-02-29"], f"M8[{unit}]")
    path = stored(tmp_path, a=X[:4, 0], when=pa.array(times, pa.timestamp(unit)))
    np.testing.assert_array_equal(converted(path)["when"].values, times)


def test_integers_with_nulls_are_floats(tmp_path: Path) -> None:
    path = stored(tmp_path, a=[1, None, 3] * 50, b=range(N))
    found = converted(path)
    assert found["data"].dtype == np.float64
    np.testing.assert_array_equal(found["data"][:3, 0], [1, np.nan, 3])
    refused(path, "missing value", dtype="int64")
    found = converted(stored(tmp_path, v=[[1, 2**60], [3, 4]]))
    assert found["data"].values.tolist() == [[1, 2**60], [3, 4]]
    found = converted(stored(tmp_path, v=[[1, 2], [3, None]]), dtype="float32")
    np.testing.assert_array_equal(found["data"], [[1, 2], [3, np.nan]])


def test_files_of_a_folder_whose_types_differ(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.mkdir()
    first = frame().assign(g0=range(N), note=None)
    first.to_parquet(path / "a.parquet")
    frame().assign(note="n").to_parquet(path / "b.parquet")
    found = converted(path)
    np.testing.assert_array_equal(found["data"], np.concatenate([first[LABELS], X]))
    np.testing.assert_array_equal(found["note"].isnull(), [True] * N + [False] * N)


@pytest.mark.parametrize(
    ("name", "other", "said"),
    [
        ("x-b.parquet", b"", r"b\.parquet"),
        ("x-b.parquet", b"PAR1 cut", r"b\.parquet"),
        ("x-b.parquet", pd.DataFrame({"g0": [1.0], "z": [2.0]}), r"b\.parquet .*'g1'"),
        ("x-b.parquet", pd.DataFrame([["x"] * 6], columns=LABELS), r"b\.parquet .*g0 has .*string"),
        ("README.txt", b"what this is", "README.txt is no Parquet file"),
        ("_delta_log/0.json", b"", "is a Delta table"),
    ],
)
def test_a_file_of_a_folder_that_is_not_like_the_others(
    tmp_path: Path, name: str, other: Any, said: str
) -> None:
    path = written(tmp_path, "parts", pd.DataFrame(X, columns=LABELS))
    for noted in ("_SUCCESS", "_metadata", ".a.parquet.crc"):
        (path / noted).touch()
    convert_and_open(path)
    (path / name).parent.mkdir(exist_ok=True)
    if isinstance(other, bytes):
        (path / name).write_bytes(other)
    else:
        other.to_parquet(path / name)
    refused(path, said)


def test_folders_that_stand_for_a_column(tmp_path: Path) -> None:
    table = frame(year=2000 + np.arange(N) % 2, place=np.array(["a b", "c/d"])[np.arange(N) % 2])
    table.to_parquet(tmp_path / "x", partition_cols=["year", "place"])
    done, found = convert_and_open(tmp_path / "x")
    assert done.features == tuple(LABELS)
    assert found["year"].values.tolist() == [2000] * 75 + [2001] * 75
    assert found["place"].values.tolist() == ["a b"] * 75 + ["c/d"] * 75
    np.testing.assert_array_equal(found["data"], np.concatenate([X[::2], X[1::2]]))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"a": [1.0], "until": [date(9999, 12, 31)]}, "'until' holds 9999-12-31.*text"),
        ({"a": pa.array([], pa.float64())}, "no rows"),
        ({"a": [1.0], "inner": [[[1.0]]]}, "'inner'"),
        ({"v": [[[1.0]], [[2.0]]]}, "neither a number"),
        ({"v": [None, [], None]}, "no table"),
        ({"v": [[1.0, 2.0]] * 90 + [[3.0]]}, "a list of 1 where others are lists of 2: row 90 "),
        ({"v": [[1.0]] * 90 + [None]}, "'v' holds null where others are lists of 1: row 90 "),
        ({"v": [None, [1.0], *[None] * 5]}, "null where others are lists of 1: row 0 "),
        ({"v": [[1, 2], [3, None]]}, "missing value.*`dtype"),
    ],
)
def test_columns_that_make_no_table(tmp_path: Path, columns: dict[str, Any], said: str) -> None:
    refused(stored(tmp_path, **columns), said)


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table([[1.0], [2.0]], names=["a", "a"]), tmp_path / "x.parquet")
    refused(tmp_path / "x.parquet", "several columns 'a'")
    path = stored(tmp_path, v_1=[1, 2], v=[[3.0, 4.0], [5.0, 7.0]])
    refused(path, r"'v_1', .* lists in 'v'.*`coordinates='v_1'`")
    done, found = convert_and_open(path, coordinates=["v_1"])  # what the hint says
    assert done.features == ("v_0", "v_1")
    np.testing.assert_array_equal(found["v_1"], [1, 2])


@pytest.mark.parametrize("fixed", [False, True])
def test_lists_of_one_length_are_features(tmp_path: Path, fixed: bool) -> None:
    vectors = X[:, :4].astype("f4")
    vectors[3, 1] = np.nan
    kind = pa.list_(pa.float32(), 4) if fixed else pa.list_(pa.float32())
    names = [f"t{i}" for i in range(N)]
    path = stored(tmp_path, id=names, v=pa.array([*vectors], kind), n=X[:, 5])
    parts, table = tmp_path / "parts", pq.read_table(path)
    parts.mkdir()
    pq.write_table(table[:60], parts / "a.parquet", row_group_size=17)
    pq.write_table(table[60:], parts / "b.parquet")
    for source in (path, parts):
        done, found = convert_and_open(source, index_column="id")
        assert done.features == ("v_0", "v_1", "v_2", "v_3", "n")
        np.testing.assert_array_equal(found["data"], np.column_stack([vectors, X[:, 5]]))
        assert found["sample"].values.tolist() == names


@pytest.mark.parametrize("fixed", [False, True])
def test_lists_that_are_all_null_are_left_out_and_noted(tmp_path: Path, fixed: bool) -> None:
    kind = pa.list_(pa.float32(), 4) if fixed else pa.list_(pa.float32())
    nothing = pa.array([None] * N if fixed else [None, []] * (N // 2), kind)
    path = stored(tmp_path, a=X[:, 0].astype("f4"), v=nothing, n=X[:, 1] > 0)
    done, found = convert_and_open(path)
    assert done.notes[:1] == ("'v' is left out: its lists are all null or empty.",)
    assert done.features == ("a", "n")
    expected = np.column_stack([X[:, 0].astype("f4"), X[:, 1] > 0])
    np.testing.assert_array_equal(found["data"], expected)


def test_a_flipped_bit_in_a_page_with_a_checksum_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "parts" / "1.parquet"
    path.parent.mkdir()
    options: Any = {"write_page_checksum": True, "compression": "none", "use_dictionary": False}
    table = pa.table({"a": X[:, 0], "b": X[:, 1]})
    pq.write_table(table, path.with_name("0.parquet"), **options)
    pq.write_table(table, path, **options)
    content = bytearray(path.read_bytes())
    content[content.index(X[70, 1].tobytes()) + 3] ^= 16
    path.write_bytes(content)
    for source in (path, path.parent):
        refused(source, r"1\.parquet cannot be read.*CRC")

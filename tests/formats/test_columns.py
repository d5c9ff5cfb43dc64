"""Columns of CSV and Parquet tables: numbers are features, what describes samples coordinates."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from helpers import no_warnings, planted, slow

from kmufs_stream import Conversion, RequestError, convert, evaluate, open_matrix, select
from kmufs_stream.formats import blocks, csv

N = 150
X = planted(N, 6)
LABELS = [f"g{i}" for i in range(6)]
KIND = np.array(["left", "right", "far off"])[np.arange(N) % 3]
DAYS = np.datetime64("2024-02-27") + np.arange(N)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks even of small tables."""
    monkeypatch.setattr(blocks, "CHUNK_BYTES", 40 * (6 * 8 + 2 * blocks.TEXT_BYTES))
    monkeypatch.setattr(csv, "LOOK_FIELDS", 1)
    monkeypatch.setattr(csv, "LOOK_ROWS", 50)


def frame(**columns: Any) -> pd.DataFrame:
    """Six features, and a class between them that is not known of two samples."""
    kind = KIND.astype(object)
    kind[[7, 100]] = None
    table = pd.DataFrame(X.copy(), columns=LABELS)
    table.insert(2, "class", kind)
    return table.assign(**columns)


def turned(path: Path, **options: Any) -> tuple[Conversion, xr.Dataset]:
    """What a conversion says, and what it wrote."""
    with no_warnings():
        done = convert(path, path.with_name("out.zarr"), **options)
        with xr.open_zarr(done.output) as found:
            return done, found.load()


def written(folder: Path, kind: str, table: pd.DataFrame) -> Path:
    """The table as a file, or a folder of two files."""
    path = folder / f"x.{kind}"
    if kind == "csv":
        table.to_csv(path, index=False)
        return path
    pytest.importorskip("pyarrow")
    if kind == "parquet":
        table.to_parquet(path, row_group_size=47)
        return path
    path.mkdir()
    table[:70].to_parquet(path / "part-0.parquet")
    table[70:].to_parquet(path / "part-1.parquet")
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet", "folder"])
@pytest.mark.parametrize("categorical", [False, True])
def test_text_describes_the_samples(tmp_path: Path, kind: str, categorical: bool) -> None:
    table = frame(station=[f"é {i}" for i in range(N)])
    if categorical:
        table["class"] = table["class"].astype("category")
    done, found = turned(written(tmp_path, kind, table))
    assert done.features == tuple(LABELS)
    assert done.columns == {"class": "class", "station": "station"}
    assert done.summary()["coordinates"] == done.columns
    assert found["feature"].values.tolist() == LABELS
    np.testing.assert_array_equal(found["data"], X)
    assert found["station"].dims == ("sample",)
    assert found["station"].values.tolist() == table["station"].tolist()
    np.testing.assert_array_equal(found["class"].isnull(), table["class"].isna())
    assert found["class"].values[8] == KIND[8]


@pytest.mark.parametrize("kind", ["csv", "parquet", "folder"])
def test_they_choose_and_judge_samples(tmp_path: Path, kind: str) -> None:
    turned(written(tmp_path, kind, frame(year=2000 + np.arange(N))), coordinates=["year"])
    store, out = str(tmp_path / "out.zarr"), tmp_path / "chosen.zarr"
    part = open_matrix(store, where="class == 'far off' and year < 2100")
    some = select(part, 3, 2, out=out)
    expected = (KIND == "far off") & (np.arange(N) < 100)
    np.testing.assert_array_equal(some.selected, select(X[expected], 3, 2).selected)
    with xr.open_zarr(out) as written_out:
        assert set(written_out["class"].values) == {"far off"}
        assert written_out["year"].values.max() < 2100
    with xr.open_zarr(out, group="all_features") as every:
        assert every.sizes == {"source_feature": 6}
    select(store, 3, 2, out=out, overwrite=True)
    for data in (None, store):
        judged = evaluate(out, labels="class", data=data).agreement
        assert judged is not None
        assert (judged.classes, judged.samples) == (3, N - 2)


@pytest.mark.parametrize(
    ("values", "dtype", "stored"),
    [
        ([*range(N - 1), 2**62 + 1], np.int64, None),  # no float holds it
        ([*range(N - 1), None], np.float64, None),
        ([*[2**62 + 1] * (N - 1), None], None, None),  # as it is written then
        ([f"{i:05}" for i in range(N)], None, None),  # a code and no number
        ([i % 2 == 0 for i in range(N)], np.bool_, None),
        ([*range(N - 1), "A7"], None, [*map(str, range(N - 1)), "A7"]),
    ],
)
def test_columns_asked_for_keep_what_they_hold(
    tmp_path: Path, values: list[Any], dtype: Any, stored: list[Any] | None
) -> None:
    column = pd.array(values, dtype="Int64") if values[-1] is None else values
    _, found = turned(written(tmp_path, "csv", frame(id=column)), coordinates=["id"])
    assert found["feature"].values.tolist() == LABELS
    held = found["id"].values
    if dtype is not None:
        assert held.dtype == dtype
        np.testing.assert_array_equal(held, np.array(values, dtype=dtype))
    else:
        texts = stored or [None if v is None else str(v) for v in values]
        assert [None if pd.isna(v) else v for v in held] == texts


def test_parquet_knows_more_types(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    days = pd.Series(DAYS.astype("M8[us]"))
    days[3] = pd.NaT
    table = frame(when=days, truth=[i % 5 == 0 for i in range(N)], sort=pd.Categorical([1, 2] * 75))
    path = written(tmp_path, "parquet", table)
    done, found = turned(path, coordinates=["truth"])
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


def test_files_of_a_folder_whose_types_differ(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "x"
    path.mkdir()
    first = frame().assign(g0=range(N), note=None)
    first.to_parquet(path / "a.parquet")
    frame().assign(note="n").to_parquet(path / "b.parquet")
    _, found = turned(path)
    np.testing.assert_array_equal(found["data"], np.concatenate([first[LABELS], X]))
    np.testing.assert_array_equal(found["note"].isnull(), [True] * N + [False] * N)


def test_names_that_a_store_cannot_have(tmp_path: Path) -> None:
    table = frame(**{"station name": KIND, "km/h": KIND, "data": KIND, "__x": KIND})
    table.columns = pd.Index([*table.columns[:-1], "class"])  # twice
    done, found = turned(written(tmp_path, "csv", table))
    assert done.columns == {
        "class": "class",
        "station_name": "station name",
        "km_h": "km/h",
        "data_": "data",
        "class_": "class",
    }
    for name in done.columns:
        assert found[name].dims == ("sample",)
    assert found["data"].shape == (N, 6)
    assert open_matrix(str(tmp_path / "out.zarr"), where="km_h == 'left'").shape == (N // 3, 6)


def test_a_column_called_sample_names_them(tmp_path: Path) -> None:
    names = [f"s{i}" for i in range(N)]
    _, found = turned(written(tmp_path, "csv", frame(sample=names)))
    assert found.indexes["sample"].tolist() == names


def test_words_for_missing_numbers_are_text_among_text(tmp_path: Path) -> None:
    words = ["NA", "null", "None", "nan", ""]
    rows = "".join(f"{w},{w},n,{i}\n" for i, w in enumerate(words))
    (tmp_path / "x.csv").write_text("id,batch,note,a\n" + rows + "s,b1,n,NA\n")
    _, found = turned(tmp_path / "x.csv", index_column="id")
    assert found["sample"].values.tolist()[:4] == words[:4]
    assert found["batch"].values.tolist()[:4] == words[:4]
    assert found["batch"].isnull().values.tolist() == [False] * 4 + [True, False]
    assert np.isnan(found["data"].values[5, 0])


@pytest.mark.parametrize("row", [3, 120])
def test_numbers_with_something_else_among_them(tmp_path: Path, row: int) -> None:
    table = frame()
    table["g3"] = table["g3"].astype(object)
    table.loc[row, "g3"] = "?"
    path = written(tmp_path, "csv", table)
    with pytest.raises(RequestError, match=r"'g3' .*'\?'") as raised:
        convert(path, tmp_path / "out.zarr")
    assert "`coordinates='g3'`" in raised.value.remedy
    assert not (tmp_path / "out.zarr").exists()
    done, _ = turned(path, coordinates=["g3"])  # what the remedy says
    assert "g3" in done.columns


def test_truth_with_gaps_is_a_feature(tmp_path: Path) -> None:
    truth = [True, None, False] * 50
    done, found = turned(written(tmp_path, "csv", frame(truth=pd.Series(truth, dtype=object))))
    assert done.features == (*LABELS, "truth")
    np.testing.assert_array_equal(found["data"][:, 6], np.array(truth, np.float64))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"coordinates": ["clas"]}, "Did you mean 'class'"),
        ({"coordinates": LABELS}, "columns of numbers are needed"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_what_cannot_be_met(tmp_path: Path, kind: str, options: Any, word: str) -> None:
    path = written(tmp_path, kind, frame())
    with pytest.raises(RequestError) as raised:
        convert(path, tmp_path / "out.zarr", **options)
    assert word in raised.value.remedy
    assert not (tmp_path / "out.zarr").exists()


def test_tables_of_text_have_nothing_inside(tmp_path: Path) -> None:
    path = written(tmp_path, "csv", frame())
    with pytest.raises(RequestError, match="'x'"):
        convert(f"{path}::x", tmp_path / "out.zarr")


def test_arrays_have_no_columns(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(RequestError, match="no columns"):
        convert(tmp_path / "x.npy", tmp_path / "out.zarr", coordinates=["a"])


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_floats_are_rounded(tmp_path: Path, dtype: str) -> None:
    _, found = turned(written(tmp_path, "csv", frame()), dtype=dtype)
    assert found["data"].dtype == dtype
    np.testing.assert_array_equal(found["data"], X.astype(dtype))
    assert "class" in found.coords


def test_whole_numbers_as_integers(tmp_path: Path) -> None:
    table = pd.DataFrame(np.arange(N * 2).reshape(N, 2) % 250, columns=["a", "b"])
    path = written(tmp_path, "csv", table)
    _, found = turned(path, dtype="uint8")
    assert found["data"].dtype == np.uint8
    np.testing.assert_array_equal(found["data"], table)


@pytest.mark.parametrize(
    ("value", "dtype", "said"),
    [
        (1e39, "float32", "1e+39"),
        (1.5, "int16", "1.5"),
        (40_000, "int16", "40000"),
        (-1, "uint8", "-1"),
        (None, "int64", "missing"),
        (2, "bool", "2"),
    ],
)
def test_a_value_that_the_dtype_does_not_hold(
    tmp_path: Path, value: float | None, dtype: str, said: str
) -> None:
    table = pd.DataFrame({"a": [0.0] * 149 + [value], "b": np.arange(N) % 2})
    with pytest.raises(RequestError) as raised:
        convert(written(tmp_path, "csv", table), tmp_path / "out.zarr", dtype=dtype)
    assert said in raised.value.message
    assert raised.value.code == "does_not_fit_dtype"
    assert "`dtype" in raised.value.remedy
    assert not (tmp_path / "out.zarr").exists()


def test_integers_with_nulls_are_floats(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    numbers = pd.array([1, None, 3] * 50, dtype="Int64")
    path = written(tmp_path, "parquet", pd.DataFrame({"a": numbers, "b": range(N)}))
    _, found = turned(path)
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
        (pd.DataFrame([["x"] * 6], columns=LABELS), r"'g0' holds .*string.*b\.parquet"),
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
    turned(path)
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
    done, found = turned(tmp_path / "x")
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
    done, found = turned(path)
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
    done, found = turned(path, index_column="id")
    assert done.features == ("v_0", "v_1", "v_2", "v_3", "n")
    np.testing.assert_array_equal(found["data"], np.column_stack([vectors, X[:, 5]]))
    assert found["sample"].values[-1] == f"t{N - 1}"


@pytest.mark.parametrize(
    ("lists", "word"),
    [
        ([[1.0, 2.0]] * 90 + [[3.0]], "a list of 1 where others are lists of 2: row 90 "),
        ([[1.0, 2.0]] * 90 + [[]], "a list of 0 where others are lists of 2: row 90 "),
        ([[1.0, 2.0]] * 90 + [None], "'v' holds null where others are lists of 2: row 90 "),
        ([None, [1.0], *[None] * 5], "null where others are lists of 1: rows 0, 2, 3, 4, 5, ... "),
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
    done, found = turned(tmp_path / "x.parquet")
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
    done, found = turned(tmp_path / "x.parquet", coordinates=["v_1"])  # what the remedy says
    assert done.features == ("v_0", "v_1")
    np.testing.assert_array_equal(found["v_1"], [1, 2])


def test_whole_numbers_in_lists(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"v": [[1, 2**60], [3, 4]]}), tmp_path / "x.parquet")
    _, found = turned(tmp_path / "x.parquet")
    assert found["data"].values.tolist() == [[1, 2**60], [3, 4]]
    pq.write_table(pa.table({"v": [[1, 2], [3, None]]}), tmp_path / "x.parquet")
    with pytest.raises(RequestError, match="missing value") as raised:
        convert(tmp_path / "x.parquet", tmp_path / "other.zarr")
    assert "`dtype" in raised.value.remedy
    _, found = turned(tmp_path / "x.parquet", dtype="float32", overwrite=True)
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


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_integers_that_float64_would_round(tmp_path: Path, kind: str) -> None:
    large = 2**53 + 1 + 2 * np.arange(N)
    path = written(tmp_path, kind, pd.DataFrame({"a": large, "b": np.arange(N)}))
    _, found = turned(path, dtype="int64")
    np.testing.assert_array_equal(found["data"][:, 0], large)
    _, found = turned(path, dtype="float64", overwrite=True)
    np.testing.assert_array_equal(found["data"][:, 0], large.astype(float))
    path = written(tmp_path, kind, pd.DataFrame({"a": large, "b": X[:, 0]}))
    with pytest.raises(RequestError, match=r"'a' .*9007199254740993") as raised:
        convert(path, tmp_path / "other.zarr")
    assert "`coordinates='a'`" in raised.value.remedy
    _, found = turned(path, coordinates=["a"], overwrite=True)
    np.testing.assert_array_equal(found["a"], large)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_integers_beside_gaps_that_float64_would_round(tmp_path: Path, kind: str) -> None:
    large = pd.array([2**53 + 1, None, *range(N - 2)], dtype="Int64")
    path = written(tmp_path, kind, pd.DataFrame({"a": large, "b": X[:, 0]}))
    with pytest.raises(RequestError, match=r"'a' .*9007199254740993") as raised:
        convert(path, tmp_path / "other.zarr")
    assert "`dtype='int64'`" not in raised.value.remedy  # which has no gaps
    _, found = turned(path, dtype="float64")
    np.testing.assert_array_equal(found["data"][:, 0], [2.0**53, np.nan, *range(N - 2)])
    if kind == "csv":
        assert "`coordinates='a'`" in raised.value.remedy
        _, found = turned(path, coordinates=["a"], overwrite=True)
        assert found["a"].values[0] == str(2**53 + 1)
    else:
        assert "store it as text" in raised.value.remedy


@pytest.mark.parametrize(
    "first", ["9007199254740993.0", "9007199254740993\n0.5", "9007199254740993e0"]
)
def test_a_column_with_a_point_or_an_exponent_is_floating_point(tmp_path: Path, first: str) -> None:
    (tmp_path / "x.csv").write_text(f"a\n{first}\n1\n")
    _, found = turned(tmp_path / "x.csv")
    assert found["data"].values[0, 0] == 2.0**53
    (tmp_path / "x.csv").write_text("a\n9007199254740993\n1\n")
    with pytest.raises(RequestError, match=r"'a' .*9007199254740993"):
        convert(tmp_path / "x.csv", tmp_path / "other.zarr")


def test_integers_beyond_64_bits(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(f"a,b\n{2**64 - 1},1\n{10**22},2\n")
    with pytest.raises(RequestError, match=f"'a' .*{10**22}") as raised:
        convert(tmp_path / "x.csv", tmp_path / "out.zarr")
    assert "`coordinates='a'`" in raised.value.remedy


@pytest.mark.parametrize("first", [slow(0), 30])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_long_texts_keep_to_the_budget(tmp_path: Path, kind: str, first: int) -> None:
    notes = ["short"] * first + ["漢" * 900_000] * 20  # two bytes each in memory, three in a file
    path = written(tmp_path, kind, pd.DataFrame({"a": np.arange(len(notes)), "note": notes}))
    with pytest.raises(RequestError, match=r"takes .* of memory") as raised:
        convert(path, tmp_path / "out.zarr", memory=blocks.BASELINE + 10 * blocks.MB)
    assert raised.value.code == "does_not_fit"
    _, found = turned(path, memory="2GB")
    assert found["note"].values[-1] == notes[-1]


def test_unknown_dtypes(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="flaot32") as raised:
        convert(written(tmp_path, "csv", frame()), tmp_path / "out.zarr", dtype="flaot32")
    assert "Did you mean 'float32'" in raised.value.remedy


@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("separator", [";", "|", "\t"])
@pytest.mark.parametrize("name", ["x.csv", "x.tsv"])
def test_separators_and_decimals_of_spreadsheets(
    tmp_path: Path, name: str, separator: str, decimal: str
) -> None:
    table = frame(depth=X[:, 0] / 3)
    table.iloc[120, 0] = np.nan
    table.to_csv(tmp_path / name, index=False, sep=separator, decimal=decimal)
    done, found = turned(tmp_path / name, coordinates=["depth"])
    np.testing.assert_array_equal(found["data"], table[LABELS])
    np.testing.assert_array_equal(found["depth"], table["depth"])
    usual = (name, separator, decimal) == ("x.tsv", "\t", ".")
    assert bool(done.notes) != usual
    assert ("comma" in str(done.notes)) == (decimal == ",")


def test_quoted_decimals_with_commas_between_commas_are_told(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('a,b\n1,"1,5"\n2,"-2,5e3"\n')
    done, found = turned(tmp_path / "x.csv")
    assert found["b"].values.tolist() == ["1,5", "-2,5e3"]
    assert "'b': numbers with commas, such as '1,5', are text" in done.notes[0]
    (tmp_path / "x.csv").write_text("a;b\n" + "1;2\n" * 150 + "1;2,5\n")
    with pytest.raises(RequestError, match="'2,5'") as raised:
        convert(tmp_path / "x.csv", tmp_path / "other.zarr")
    assert "with a point" in raised.value.remedy


EXTREMES = (-(2**63), 2**64 - 1)  # by which pandas before 3.1 marks missing integers


@pytest.mark.parametrize(
    ("extreme", "written_as"),
    [*itertools.product(EXTREMES, ["{}", '"{}"']), (EXTREMES[0], " {} ")],
)
def test_the_least_and_the_largest_integer_are_not_missing(
    tmp_path: Path, extreme: int, written_as: str
) -> None:
    lines = [f"{i},{i}.5,s" for i in range(120)]
    lines[110] = f"{written_as.format(extreme)},1.5,s"
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["a,b,c", *lines]))
    with pytest.raises(RequestError, match=f"'a' .* holds {extreme}") as raised:
        convert(path, tmp_path / "other.zarr")
    assert "`coordinates='a'`" in raised.value.remedy
    assert not (tmp_path / "other.zarr").exists()
    _, found = turned(path, coordinates=["a"])
    assert int(found["a"].values[110]) == extreme
    path.write_text(f"b,a,c\n1,2,s\n2.5,{extreme}.0,x{extreme}\n3.5,,s\n")
    done, found = turned(path, overwrite=True)  # among floating point, and in text
    assert done.missing is not None
    assert done.missing["values"] == 1
    np.testing.assert_array_equal(found["data"][:, 1], [2, float(extreme), np.nan])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_features_that_look_as_if_they_described_samples_are_told(
    tmp_path: Path, kind: str
) -> None:
    columns = {
        "n": np.arange(N) + 1,
        "Index": np.arange(N) % 7 * 3,
        "label": np.arange(N) % 4,
        "Y": [*np.arange(N - 1) % 2, None],
        "cluster": X[:, 0],  # no whole numbers
        "id": np.arange(N) + 0.5,
        "jumps": [0, 0, *range(2, N)],
    }
    done, found = turned(written(tmp_path, kind, frame(**columns)))
    assert found.sizes == {"sample": N, "feature": 6 + len(columns)}
    (note,) = done.notes
    assert note.startswith(
        "'n', 'Index', 'label', 'Y' may number the samples or tell what they are"
    )
    asked_for = "`index_column='n', coordinates=['Index', 'label', 'Y'], overwrite=True`"
    assert f"convert again, also with {asked_for}, or say `exclude_features`" in note
    assert done.summary()["notes"] == [note]
    asked = {"index_column": "n", "coordinates": ["Index", "label", "Y"]}
    done, _ = turned(tmp_path / f"x.{kind}", overwrite=True, **asked)
    assert done.notes == ()


@pytest.mark.parametrize(
    ("column", "parameter"),
    [
        ({"number": np.arange(N)[::-1] * 3 + 1000}, "index_column='number'"),
        ({"plate": np.arange(N) % 8 + 1}, "coordinates=['plate']"),
        ({"dayOf": [None, *np.arange(N - 1) % 8]}, "coordinates=['dayOf']"),
        ({"species_code": np.arange(N) % 30 * 2}, "coordinates=['species_code']"),
        ({"batchId": np.arange(N) % 30 * 2}, "coordinates=['batchId']"),
        ({"height": np.arange(N) % 30 * 2}, None),
        ({"valid": X[:, 0], "flat": np.ones(N)}, None),
    ],
)
def test_whole_numbers_among_real_ones_are_told(
    tmp_path: Path, column: dict[str, Any], parameter: str | None
) -> None:
    done, _ = turned(written(tmp_path, "csv", frame(**column)))
    assert len(done.notes) == (parameter is not None)
    if parameter is not None:
        assert f"convert again, also with `{parameter}, overwrite=True`, or say" in done.notes[0]


def test_a_table_of_counts_is_told_of_by_name_alone(tmp_path: Path) -> None:
    counts = {f"g{i}": np.arange(N) % (i + 2) * 2 for i in range(6)}
    path = tmp_path / "x.csv"
    pd.DataFrame({**counts, "mass": X[:, 0], "serial": np.arange(N)[::-1]}).to_csv(
        path, index=False
    )
    assert turned(path)[0].notes == ()
    pd.DataFrame({**counts, "well_id": np.arange(N) % 96}).to_csv(path, index=False)
    assert "'well_id' may number" in turned(path, overwrite=True)[0].notes[0]


def test_a_class_that_became_a_feature_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    frame(group=np.arange(N) % 3).to_csv(path, index=False)
    convert(path, tmp_path / "out.zarr")
    select(tmp_path / "out.zarr", 3, 3, out=tmp_path / "chosen.zarr")
    with pytest.raises(RequestError) as caught:
        evaluate(tmp_path / "chosen.zarr", labels="group", data=tmp_path / "out.zarr")
    assert "`coordinates='group'`" in caught.value.remedy
    select(tmp_path / "out.zarr", 3, 3, keep="group", out=tmp_path / "with.zarr")
    with pytest.raises(RequestError, match="'group' is one of the features") as caught:
        evaluate(tmp_path / "with.zarr", labels="group")
    assert "`coordinates='group', overwrite=True`" in caught.value.remedy


def test_a_class_among_variables_is_told(tmp_path: Path) -> None:
    variables = {f"v{i}": ("time", X[:, i].astype(np.float32)) for i in range(4)}
    sensors = xr.Dataset({**variables, "mode": ("time", np.arange(N) % 3)})
    store = tmp_path / "sensors.zarr"
    sensors.to_zarr(store, consolidated=False)
    for data in (store, sensors):
        matrix = open_matrix(data, features_from_variables=True)
        assert matrix.doubt is not None
        assert matrix.doubt.startswith("'mode' holds whole numbers")
        assert matrix.doubt.endswith(
            "`open_matrix(data, exclude_features=['mode'])`; for its sake all values are float64, "
            "not float32"
        )
        without = open_matrix(data, features_from_variables=True, exclude_features="mode")
        assert without.doubt is None
    with_class, chosen = tmp_path / "with.zarr", tmp_path / "chosen.zarr"
    select(matrix, 3, 2, keep="mode", out=with_class)
    with pytest.raises(RequestError, match="'mode' is one of the features") as caught:
        evaluate(with_class, labels="mode")
    assert "exclude_features='mode'" in caught.value.remedy
    select(
        open_matrix(store, features_from_variables=True, exclude_features="mode"), 3, 2, out=chosen
    )
    with pytest.raises(RequestError) as caught:
        evaluate(chosen, labels="mode")
    assert "`data`" in caught.value.remedy
    assert evaluate(chosen, labels="mode", data=store).agreement is not None

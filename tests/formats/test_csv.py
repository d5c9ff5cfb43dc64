"""Text tables as stores: fields, numbers, columns that describe the samples."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from formats.tables import (
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

from kmufs_stream import RequestError, convert

EXTREMES = (-(2**63), 2**64 - 1)  # by which pandas before 3.1 marks missing integers


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.tsv"])
@pytest.mark.parametrize("index", [None, "", "cell"])
def test_text(tmp_path: Path, name: str, index: str | None) -> None:
    table = named_frame()
    table.iloc[3, 2] = np.nan
    separator = "\t" if "tsv" in name else ","
    table.to_csv(tmp_path / name, sep=separator, index=index is not None, index_label=index)
    found = converted(tmp_path / name, index_column=index or None)
    np.testing.assert_array_equal(found["data"], table.to_numpy())
    assert found["feature"].values.tolist() == NAMES
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
    found = converted(tmp_path / "x.csv")
    assert found["feature"].values.tolist() == ["a", "a", "b"]
    again = convert(tmp_path / "x.csv", tmp_path / "other.zarr")
    assert again.notes == ("Several columns are called 'a': each is kept.",)
    expected = [[1, 2, 3]] * 60 + [[1.5, np.nan, 1000]] * 60
    np.testing.assert_array_equal(found["data"], np.array(expected))


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
        ("a,b\n1,s\n2,t\x00\n", "NUL"),
        ('a,b\n1,2\n"3,4\n', "quote"),
        ('a,b\n1,s\n2,"t\n3,u\n', "Line 3 .* quote"),
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


def test_numbers_as_programs_write_them(tmp_path: Path) -> None:
    written_as = ["+1.5E+02", " 2. ", ".5", "-inf", "NA", '"3"', "1e400", "-0"]
    (tmp_path / "x.csv").write_text("a,b\n" + "\n".join(f"{n},{n}" for n in written_as) + "\n\n")
    expected = [150, 2, 0.5, -np.inf, np.nan, 3, np.inf, 0]
    found = converted(tmp_path / "x.csv", coordinates=["b"])
    np.testing.assert_array_equal(found["data"][:, 0], expected)
    np.testing.assert_array_equal(found["b"], expected)
    (tmp_path / "y.csv").write_text("a,b\n" + "1,2\n" * 900 + "True,9007199254740992\n" * 900)
    with pytest.raises(RequestError, match=r"'a' .* there is 'True'"):
        convert(tmp_path / "y.csv", tmp_path / "y.zarr")


def test_quotes_with_nothing_between_are_a_missing_sample(tmp_path: Path) -> None:
    pd.DataFrame({"a": [None, 1, None, 2, None]}).to_csv(tmp_path / "x.csv", index=False)
    assert (tmp_path / "x.csv").read_text().count('""') == 3
    values = converted(tmp_path / "x.csv")["data"].values[:, 0]
    np.testing.assert_array_equal(values, [np.nan, 1, np.nan, 2, np.nan])


def test_wide_rows_whose_last_is_large(tmp_path: Path) -> None:
    values = np.arange(400 * 90.0).reshape(400, 90)
    values[390, 80] = 2.0**60
    pd.DataFrame(values).to_csv(tmp_path / "x.csv", index=False, float_format="%.1f")
    np.testing.assert_array_equal(converted(tmp_path / "x.csv")["data"], values)
    whole = np.rint(values).astype(np.int64) + (values > 2**53)
    pd.DataFrame(whole).to_csv(tmp_path / "x.csv", index=False)
    found = converted(tmp_path / "x.csv", dtype="int64", overwrite=True)
    np.testing.assert_array_equal(found["data"], whole)
    with pytest.raises(RequestError, match=rf"'80' .* {2**60 + 1}"):
        convert(tmp_path / "x.csv", tmp_path / "y.zarr")


def test_rows_are_counted_block_by_block(tmp_path: Path) -> None:
    quotes = '""' * 600
    lines = ["id,a,b", *[f'"{i}, {quotes}\n{"x," * 250}",{i},2' for i in range(1002)]]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    found = converted(tmp_path / "x.csv")
    assert found.sizes == {"sample": 1002, "feature": 2}
    assert found["id"].values[1001] == "1001, " + '"' * 600 + "\n" + "x," * 250
    for row in (1001, 2):  # the first that is wrong is named
        lines[row] += ",7"
        (tmp_path / "x.csv").write_text("\n".join(lines))
        with pytest.raises(RequestError, match=f"Line {2 * row} .* 4 fields"):
            converted(tmp_path / "x.csv", overwrite=True)


def test_text_as_r_writes_it(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('"a","b"\n"r1",1,NA\n"r2",3,4\n')
    found = converted(tmp_path / "x.csv")
    assert found["sample"].values.tolist() == ["r1", "r2"]
    np.testing.assert_array_equal(found["data"], [[1, np.nan], [3, 4]])


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_text_in_another_encoding(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "x.csv").write_text("é,b\n1,2\n", encoding=encoding)
    with pytest.raises(RequestError, match="UTF-8") as raised:
        converted(tmp_path / "x.csv")
    assert "UTF-8" in raised.value.remedy


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
    found = converted(written(tmp_path, "csv", frame(id=column)), coordinates=["id"])
    assert found["feature"].values.tolist() == LABELS
    held = found["id"].values
    if dtype is not None:
        assert held.dtype == dtype
        np.testing.assert_array_equal(held, np.array(values, dtype=dtype))
    else:
        texts = stored or [None if v is None else str(v) for v in values]
        assert [None if pd.isna(v) else v for v in held] == texts


def test_words_for_missing_numbers_are_text_among_text(tmp_path: Path) -> None:
    words = ["NA", "null", "None", "nan", ""]
    rows = "".join(f"{w},{w},n,{i}\n" for i, w in enumerate(words))
    (tmp_path / "x.csv").write_text("id,batch,note,a\n" + rows + "s,b1,n,NA\n")
    found = converted(tmp_path / "x.csv", index_column="id")
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
    done, _ = convert_and_open(path, coordinates=["g3"])  # what the hint says
    assert "g3" in done.columns


def test_truth_with_gaps_is_a_feature(tmp_path: Path) -> None:
    truth = [True, None, False] * 50
    done, found = convert_and_open(
        written(tmp_path, "csv", frame(truth=pd.Series(truth, dtype=object)))
    )
    assert done.features == (*LABELS, "truth")
    np.testing.assert_array_equal(found["data"][:, 6], np.array(truth, np.float64))


@pytest.mark.parametrize(
    "first", ["9007199254740993.0", "9007199254740993\n0.5", "9007199254740993e0"]
)
def test_a_column_with_a_point_or_an_exponent_is_floating_point(tmp_path: Path, first: str) -> None:
    (tmp_path / "x.csv").write_text(f"a\n{first}\n1\n")
    found = converted(tmp_path / "x.csv")
    assert found["data"].values[0, 0] == 2.0**53
    (tmp_path / "x.csv").write_text("a\n9007199254740993\n1\n")
    with pytest.raises(RequestError, match=r"'a' .*9007199254740993"):
        convert(tmp_path / "x.csv", tmp_path / "other.zarr")


def test_integers_beyond_64_bits(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(f"a,b\n{10**22},1\n{2**64 - 1},2\n")
    with pytest.raises(RequestError, match=f"'a' .*{10**22}") as raised:
        convert(tmp_path / "x.csv", tmp_path / "out.zarr")
    assert "`coordinates='a'`" in raised.value.remedy


@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("separator", [";", "|", "\t"])
@pytest.mark.parametrize("name", ["x.csv", "x.tsv"])
def test_separators_and_decimals_of_spreadsheets(
    tmp_path: Path, name: str, separator: str, decimal: str
) -> None:
    table = frame(depth=X[:, 0] / 3)
    table.iloc[120, 0] = np.nan
    table.to_csv(tmp_path / name, index=False, sep=separator, decimal=decimal)
    done, found = convert_and_open(tmp_path / name, coordinates=["depth"])
    np.testing.assert_array_equal(found["data"], table[LABELS])
    np.testing.assert_array_equal(found["depth"], table["depth"])
    usual = (name, separator, decimal) == ("x.tsv", "\t", ".")
    assert bool(done.notes) != usual
    assert ("comma" in str(done.notes)) == (decimal == ",")


def test_points_among_decimal_commas_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a;b\n" + "1,5;2\n" * 900 + "1.234;2\n")
    with pytest.raises(RequestError, match=r"'a' .*'1\.234'"):
        convert(tmp_path / "x.csv", tmp_path / "out.zarr")


def test_quoted_decimals_with_commas_between_commas_are_told(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('a,b\n1,"1,5"\n2,"-2,5e3"\n')
    done, found = convert_and_open(tmp_path / "x.csv")
    assert found["b"].values.tolist() == ["1,5", "-2,5e3"]
    assert "'b': numbers with commas are text" in done.notes[0]
    (tmp_path / "x.csv").write_text("a;b\n" + "1;2\n" * 150 + "1;2,5\n")
    with pytest.raises(RequestError, match="'2,5'") as raised:
        convert(tmp_path / "x.csv", tmp_path / "other.zarr")
    assert "with a point" in raised.value.remedy


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
    found = converted(path, coordinates=["a"])
    assert int(found["a"].values[110]) == extreme
    path.write_text(f"b,a,c\n1,2,s\n2.5,{extreme}.0,x{extreme}\n3.5,,s\n")
    done, found = convert_and_open(path, overwrite=True)  # among floating point, and in text
    assert done.missing is not None
    assert done.missing["values"] == 1
    np.testing.assert_array_equal(found["data"][:, 1], [2, float(extreme), np.nan])

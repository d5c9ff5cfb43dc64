"""Text tables as stores: fields, numbers, columns that describe the samples."""

from __future__ import annotations

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
    refused,
    text,
    written,
)

BEYOND = 9007199254740993  # 2**53 + 1, which float64 rounds


@pytest.mark.parametrize(("name", "index"), [("x.csv", None), ("x.csv.gz", ""), ("x.tsv", "cell")])
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


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a\n+1.5E+02\n 2. \n.5\n-inf\n", [150, 2, 0.5, -np.inf]),
        ('a\nNA\n"3"\n1e400\n-0\n\n', [np.nan, 3, np.inf, 0]),
        ("a\n" + "1\n" * 1500 + "1.5\n1e3\n", [1] * 1500 + [1.5, 1000]),
        ("a,b\n1,True\n2,\n3,FALSE\n", [[1, 1], [2, np.nan], [3, 0]]),
        ('"a","b"\n"r1",1,NA\n"r2",3,4\n', [[1, np.nan], [3, 4]]),  # as R writes it
        ('a\n""\n1\n""\n2\n', [np.nan, 1, np.nan, 2]),  # as pandas writes a missing sample
        (f"a\n{BEYOND}.0\n1\n", [2.0**53, 1]),
        (f"a\n{BEYOND}\n0.5\n", [2.0**53, 0.5]),
        (f"a\n{BEYOND}e0\n1\n", [2.0**53, 1]),
    ],
)
def test_numbers_as_programs_write_them(tmp_path: Path, content: str, expected: Any) -> None:
    values = np.array(expected, float).reshape(len(expected), -1)
    np.testing.assert_array_equal(converted(text(tmp_path, content))["data"], values)
    if "r1" in content:
        assert converted(tmp_path / "x.csv")["sample"].values.tolist() == ["r1", "r2"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a,b\n1,2\nx,3\n", "'a'"),
        ("a,b\n" + "1,2\n" * 900 + f"True,{2**53}\n" * 9, "'a' .* there is 'True'"),
        ("a,b\n1,2\n1,2,3\n", "Line 3 .* 3 fields"),
        ("a,b\n1,2\n\n3", "Line 4 .* 1 field "),  # cut
        ("id,a\n'x\n1',2\n'y,y',3,4\n", "Line 4 .* 3 fields"),
        ("a,b\r1,2\r3\r", "Line 3"),
        ("a;b\n1,5;1,25\n2,5\n", "Line 3 .* 1 field "),
        ("a;b\n1,234;2\n5,678;1\n", "'1,234', for decimals or thousands"),
        ("a;b\n1,5;2\n5,678;2.5\n", r"'1,5', and points, such as '2\.5'"),
        ("a;b\n" + "1,5;2\n" * 900 + "1.234;2\n", r"'a' .*'1\.234'"),
        ("a;b\n" + "1;2\n" * 150 + "1;2,5\n", "'2,5'.*with a point"),
        ("a,b\n1,2\n\x00,3\n", "NUL"),
        ("a,b\n1,s\n2,'t\n3,u\n", "Line 3 .* quote"),
        ("\ufeff\n", "is empty"),
        ("a,b\n", "no rows"),
        ("a,b\nx,y\n", "no table"),
        (f"a\n{BEYOND}\n1\n", f"'a' .*{BEYOND}"),
        (f"a,b\n{10**22},1\n{2**64 - 1},2\n", f"'a' .*{10**22}.*`coordinates='a'`"),
    ],
)
def test_text_that_is_no_table(tmp_path: Path, content: str, said: str) -> None:
    refused(text(tmp_path, content.replace("'", '"')), said)


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_text_in_another_encoding(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "x.csv").write_text("é,b\n1,2\n", encoding=encoding)
    assert "UTF-8" in refused(tmp_path / "x.csv", "UTF-8").remedy


def test_what_looks_like_a_mistake_is_told(tmp_path: Path) -> None:
    done, found = convert_and_open(text(tmp_path, 'a,b\n1,"1,5"\n2,"-2,5e3"\n'))
    assert found["b"].values.tolist() == ["1,5", "-2,5e3"]
    assert "'b': numbers with commas are text" in done.notes[0]
    for header, noted in (("3,1,2", True), ("400,401.5,403", False)):
        done, _ = convert_and_open(text(tmp_path, f"{header}\n1,2,4\n4,5.5,1\n"))
        assert any("put a line of names above it" in note for note in done.notes) == noted
    done, found = convert_and_open(text(tmp_path, "a,a,b\n1,2,3\n1.5,,1e3\n"))
    assert done.notes == ("Several columns are called 'a': each is kept.",)
    assert found["feature"].values.tolist() == ["a", "a", "b"]


def test_wide_rows_whose_last_is_large(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    values = np.arange(100 * 90.0).reshape(100, 90)
    values[97, 80] = 2.0**60
    pd.DataFrame(values).to_csv(path, index=False, float_format="%.1f")
    np.testing.assert_array_equal(converted(path)["data"], values)
    whole = np.rint(values).astype(np.int64) + (values > 2**53)
    pd.DataFrame(whole).to_csv(path, index=False)
    np.testing.assert_array_equal(converted(path, dtype="int64")["data"], whole)
    refused(path, rf"'80' .* {2**60 + 1}")


def test_rows_are_counted_block_by_block(tmp_path: Path) -> None:
    quotes = '""' * 600
    lines = ["id,a,b", *[f'"{i}, {quotes}\n{"x," * 250}",{i},2' for i in range(130)]]
    found = converted(text(tmp_path, "\n".join(lines)))
    assert found.sizes == {"sample": 130, "feature": 2}
    assert found["id"].values[129] == "129, " + '"' * 600 + "\n" + "x," * 250
    for row in (129, 2):  # the first that is wrong is named
        lines[row] += ",7"
        refused(text(tmp_path, "\n".join(lines)), f"Line {2 * row} .* 4 fields")


def test_columns_asked_for_keep_what_they_hold(tmp_path: Path) -> None:
    codes, mixed = [f"{i:05}" for i in range(N)], [*map(str, range(N - 1)), "A7"]
    gaps, large = [*range(N - 1), None], [*[2**62 + 1] * (N - 1), None]
    columns: dict[str, Any] = {
        "whole": [*range(N - 1), 2**62 + 1],  # no float holds it
        "gaps": pd.array(gaps, dtype="Int64"),
        "truth": [i % 2 == 0 for i in range(N)],
        "large": pd.array(large, dtype="Int64"),
        "codes": codes,
        "mixed": mixed,
    }
    found = converted(written(tmp_path, "csv", frame(**columns)), coordinates=[*columns])
    assert found["feature"].values.tolist() == LABELS
    dtypes = {"whole": np.int64, "gaps": np.float64, "truth": np.bool_}
    for name, dtype in dtypes.items():
        assert found[name].dtype == dtype
    for name in ("whole", "truth", "codes", "mixed"):
        assert found[name].values.tolist() == columns[name]
    np.testing.assert_array_equal(found["gaps"], np.array(gaps, float))
    assert found["large"].values[:-1].tolist() == [str(2**62 + 1)] * (N - 1)
    assert found["large"].isnull().values.tolist() == [False] * (N - 1) + [True]


def test_words_for_missing_numbers_are_text_among_text(tmp_path: Path) -> None:
    words = ["NA", "null", "None", "nan", ""]
    rows = "".join(f"{w},{w},n,{i}\n" for i, w in enumerate(words))
    path = text(tmp_path, "id,batch,note,a\n" + rows + "s,b1,n,NA\n")
    found = converted(path, index_column="id")
    assert found["sample"].values.tolist()[:4] == words[:4]
    assert found["batch"].values.tolist()[:4] == words[:4]
    assert found["batch"].isnull().values.tolist() == [False] * 4 + [True, False]
    assert np.isnan(found["data"].values[5, 0])


@pytest.mark.parametrize("row", [3, 120])
def test_numbers_with_something_else_among_them(tmp_path: Path, row: int) -> None:
    mixed = X[:, 3].astype(object)
    mixed[row] = "?"
    path = written(tmp_path, "csv", frame(g3=mixed))
    refused(path, r"'g3' .*'\?'.*`coordinates='g3'`")
    assert "g3" in convert_and_open(path, coordinates=["g3"])[0].columns


@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize(
    ("name", "separator"),
    [("x.csv", ";"), ("x.csv", "|"), ("x.csv", "\t"), ("x.tsv", "\t"), ("x.tsv", ";")],
)
def test_separators_and_decimals_of_spreadsheets(
    tmp_path: Path, name: str, separator: str, decimal: str
) -> None:
    table = frame(depth=X[:, 0] / 3)
    table.iloc[120, 0] = np.nan
    table.to_csv(tmp_path / name, index=False, sep=separator, decimal=decimal)
    done, found = convert_and_open(tmp_path / name, coordinates=["depth"])
    np.testing.assert_array_equal(found["data"], table[LABELS])
    np.testing.assert_array_equal(found["depth"], table["depth"])
    assert bool(done.notes) != ((name, separator, decimal) == ("x.tsv", "\t", "."))
    assert ("comma" in str(done.notes)) == (decimal == ",")


@pytest.mark.parametrize("extreme", [-(2**63), 2**64 - 1])  # pandas before 3.1: missing
def test_the_least_and_the_largest_integer_are_not_missing(tmp_path: Path, extreme: int) -> None:
    for written_as in (str(extreme), f'"{extreme}"', f" {extreme} "):
        lines = [f"{i},{i}.5,s" for i in range(60)]
        lines[55] = f"{written_as},1.5,s"
        path = text(tmp_path, "\n".join(["a,b,c", *lines]))
        refused(path, f"'a' .* holds {extreme}.*`coordinates='a'`")
        assert int(converted(path, coordinates=["a"])["a"].values[55]) == extreme
    path = text(tmp_path, f"b,a,c\n1,2,s\n2.5,{extreme}.0,x{extreme}\n3.5,,s\n")
    done, found = convert_and_open(path)
    assert done.missing is not None
    assert done.missing["values"] == 1
    np.testing.assert_array_equal(found["data"][:, 1], [2, float(extreme), np.nan])

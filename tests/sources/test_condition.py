"""Conditions on coordinates: what they mean, and what they are not allowed to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from helpers import planted

from kmufs_stream import RequestError, decompose, evaluate, open_matrix, select
from kmufs_stream.sources.condition import parsed

KIND = np.array(["x", "y", "z", "q`", "it's"], dtype=object)
DEPTH = np.array([1.0, 2.0, 3.0, np.nan, 5.0])
WHEN = np.array(["2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01", "NaT"], "M8[ns]")
GOOD = np.array([True, False, True, False, True])
COORDINATES = {"kind": KIND, "depth": DEPTH, "when": WHEN, "good": GOOD, "of cell": KIND}
COORDINATES |= {"class": DEPTH, "quoted0": DEPTH, "µm": DEPTH, "di\u0301a": DEPTH}
NOT_GIVEN = "code_ran"
EXPLOIT = (
    "kind.to_csv.__func__.__globals__.get('sys').modules.get('os')"
    f".system('touch {NOT_GIVEN}') == 0"
)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("kind == 'y'", KIND == "y"),
        ("kind not in ['x', 'z']", (KIND != "x") & (KIND != "z")),
        ("kind == ['x', 'z']", (KIND == "x") | (KIND == "z")),
        ("good", GOOD),
        ("~good", ~GOOD),
        ("not good and depth > 1", ~GOOD & (DEPTH > 1)),
        ("good & depth > 1 | kind == 'y'", GOOD & (DEPTH > 1) | (KIND == "y")),
        ("(good & depth > 1) == (depth < 4)", (GOOD & (DEPTH > 1)) == (DEPTH < 4)),
        ("1 < depth <= 3", (DEPTH > 1) & (DEPTH <= 3)),
        ("(depth + 1) * 2 % 3 == -1 + depth // 2", (DEPTH + 1) * 2 % 3 == -1 + DEPTH // 2),
        ("depth == depth", ~np.isnan(DEPTH)),
        ("when >= '2024-02-01'", np.datetime64("2024-02-01") <= WHEN),
        ("`of cell` == 'q`'", KIND == "q`"),
        ('`of cell` == "it\'s" or quoted0 == 1', (KIND == "it's") | (DEPTH == 1)),
        ("class > 1 and kind != 'class & `'", DEPTH > 1),
        ("good && depth > 1 || kind == 'y'", GOOD & (DEPTH > 1) | (KIND == "y")),
        ("(kind == 'x') + (depth > 1) == 2", (KIND == "x") & (DEPTH > 1)),
        ("µm > 2 and μm < 4 and `µm` != 3.5", (DEPTH > 2) & (DEPTH < 4) & (DEPTH != 3.5)),
        ("di\u0301a > 2", DEPTH > 2),
    ],
)
def test_what_pandas_answers(condition: str, expected: np.ndarray) -> None:
    asked = parsed(condition, list(COORDINATES))
    assert set(asked.names.values()) <= set(COORDINATES)
    np.testing.assert_array_equal(asked.met(COORDINATES), expected)


@pytest.mark.parametrize(
    ("condition", "part"),
    [
        (EXPLOIT, "is Call"),
        ("when.dt.year > 3", "when.dt.year is Attribute"),
        ("depth > @pd", "'@pd'"),
        ("depth @ depth > 1", "MatMult"),
        ("depth < 9 ** 9 ** 9 ** 9", "Pow"),
        ("'%01999999999d' % 1 == kind", "'%01999999999d' is not a number"),
        ("depth in [0] * 9", r"\[0\] is not a number"),
        ("`kind``depth` == 'x'", "invalid syntax"),
        ("kind == f'{depth}'", "JoinedStr"),
        ("(lambda: depth)", "Lambda"),
        ("depth = 1", "invalid syntax"),
        ("kind == b'x'", "b'x'"),
        ("`of cell", "invalid"),
        ("", "invalid syntax"),
    ],
)
def test_what_does_more_than_compare_is_refused(condition: str, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        parsed(condition, list(COORDINATES))


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("depth", "true or false for each sample"),
        ("1 == 1", "true or false for each sample"),
        ("(good, good)", "true or false for each sample"),
        ("kind * 999999999999 == 'x'", "kind holds text"),
    ],
)
def test_what_is_no_truth_of_each_sample_is_refused(condition: str, said: str) -> None:
    asked = parsed(condition, list(COORDINATES))
    with pytest.raises(ValueError, match=said):
        asked.met(COORDINATES)


def test_a_result_runs_no_code_of_who_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kinds = ("cell", np.array(["x", "y"] * 30, dtype=object))
    table = xr.Dataset({"t": (("cell", "gene"), planted(60, 6))}, {"kind": kinds})
    table.to_zarr("d.zarr", zarr_format=2)
    select(open_matrix("d.zarr", where="kind == 'x'"), 2, 3, out="d.sel.zarr")
    zarr.open_group("d.sel.zarr").attrs["where"] = EXPLOIT
    with pytest.raises(RequestError, match="is Call") as caught:
        evaluate("d.sel.zarr", data="d.zarr")
    assert caught.value.code == "bad_condition"
    told = replace(decompose("d.zarr", 2), where=EXPLOIT)
    with pytest.raises(RequestError, match="is Call"):
        select("d.zarr", 2, 3, factor=told)
    with pytest.raises(RequestError, match="is Call"):
        open_matrix("d.zarr", where=EXPLOIT)
    assert not Path(NOT_GIVEN).exists()

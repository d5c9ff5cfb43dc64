"""What earlier versions wrote opens as before: the same values, and the same answers from them.

The script that wrote it all with version 0.1.0 is in the history, as write_stores.py beside this.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from helpers import labelled

from kmufs_stream import (
    Factor,
    Screening,
    apply,
    decompose,
    evaluate,
    info,
    load_factor,
    report,
    select,
    sweep,
)
from kmufs_stream.events import Noticed
from kmufs_stream.results.reading import open_selection

WRITTEN = Path(__file__).parent / "written_by_0.1.0"
EXPECTED = json.loads((WRITTEN / "expected.json").read_text())
SELECTIONS = ("bare", "labelled", "only")
FILL = Screening("mean", min_std=1e-6)
MEASURED = {"seconds", "peak_rss_bytes", "predicted_peak_bytes", "budget_bytes", "concessions"}
PLACES = {"output", "anndata_output", "path", "bytes"}
FACTOR_ARRAYS = ("components", "singular_values", "residuals", "correlation")
FEATURE_ARRAYS = ("mean", "std", "usable", "missing", "dropped")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    for archive in WRITTEN.glob("*.zip"):
        shutil.unpack_archive(archive, folder / archive.stem)
    return folder


@pytest.fixture(autouse=True)
def _among_them(unpacked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(unpacked)


@pytest.fixture(scope="module")
def tables() -> dict[str, Any]:
    """The tables that it was made of."""
    with np.load(WRITTEN / "tables.npz") as found:
        arrays = dict(found)
    arrays["counts"] = labelled(arrays["counts"])
    arrays["frame"] = pd.DataFrame(arrays["frame"], columns=[f"v{i}" for i in range(9)])
    return arrays


def digest(values: Any) -> str:
    """Of an array: its dtype, shape and bytes."""
    array = np.ascontiguousarray(values)
    return f"{array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()[:16]}"


def told(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary without what differs between two runs of the same."""
    kept = {name: value for name, value in summary.items() if name not in MEASURED | PLACES}
    return dict(json.loads(json.dumps(kept)))


def arrays_of(factor: Factor) -> dict[str, str]:
    """A digest of each array that a factor holds."""
    found = {name: getattr(factor, name) for name in FACTOR_ARRAYS}
    found |= {name: getattr(factor.features, name) for name in FEATURE_ARRAYS}
    found |= {"sample": factor.sample.values, "sample_index": factor.sample.index}
    return {name: digest(values) for name, values in found.items() if values is not None}


def variables_of(store: Path) -> dict[str, Any]:
    """Each variable of a result's root, as xarray opens it: a digest, or text and times in full."""
    with xr.open_zarr(store, consolidated=False) as root:
        return {
            str(name): (
                digest(variable.values)
                if variable.dtype.kind in "iufb"
                else [str(value) for value in variable.values.astype(times(variable)).tolist()]
            )
            for name, variable in root.variables.items()
        }


def times(variable: xr.Variable) -> Any:
    """A dtype that does not hang on the version of xarray."""
    return "datetime64[s]" if variable.dtype.kind == "M" else object


def assert_same(found: Any, expected: Any, where: str = "") -> None:
    """Equal, real numbers to rounding: another machine may compute their last bits otherwise."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for name, value in expected.items():
            assert_same(found[name], value, f"{where}/{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for mine, theirs in zip(found, expected, strict=True):
            assert_same(mine, theirs, where)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12), where
    else:
        assert found == expected, where


@pytest.mark.parametrize("name", SELECTIONS)
def test_selections_are_read_as_they_were_made_and_judged_as_before(
    name: str, tables: dict[str, Any]
) -> None:
    made, stored = EXPECTED[name]["summary"], open_selection(Path(f"{name}.zarr"))
    assert variables_of(Path(f"{name}.zarr")) == EXPECTED[name]["variables"]
    assert stored.selected.tolist() == made["selected"]
    assert (stored.k, stored.attrs["solver"]) == (made["k"], made["solver"])
    assert stored.samples == made["samples"]
    assert stored.transforms == tuple(made["transforms"])
    labels = None if stored.labels is None else [str(label) for label in stored.labels]
    assert labels == made["labels"]
    assert len(stored.dropped) == made["samples_dropped"]
    assert (stored.matrix is None) == (name == "only")
    if stored.matrix is not None:
        assert stored.matrix.shape == (made["samples"], made["h"])
    data = tables["frame"] if name == "only" else None
    assert_same(told(evaluate(f"{name}.zarr", data=data).summary()), EXPECTED[name]["evaluation"])


def test_applications_are_read_judged_and_made_as_before(
    tmp_path: Path, tables: dict[str, Any]
) -> None:
    expected, out = EXPECTED["applied"], tmp_path / "again.zarr"
    judged = evaluate("applied.zarr", labels="batch")
    assert_same(told(judged.summary()), expected["evaluation"])
    found = apply("labelled.zarr", tables["counts"][10:, ::-1], out=out)
    labels = EXPECTED["labelled"]["summary"]["labels"]
    assert (found.labels, found.matched) == (labels, "label")
    assert variables_of(out) == variables_of(Path("applied.zarr")) == expected["variables"]
    found = apply("bare.zarr", tables["bare"][:7], out=tmp_path / "positions.zarr")
    assert found.columns.tolist() == EXPECTED["bare"]["summary"]["selected"]


@pytest.mark.parametrize(("name", "table"), [("gram", "frame"), ("lanczos", "wide")])
def test_factors_are_read_and_answer_as_before(
    name: str, table: str, tables: dict[str, Any]
) -> None:
    factor, expected = load_factor(f"{name}.zarr"), EXPECTED[name]
    assert arrays_of(factor) == expected["arrays"]
    assert factor.screening == (FILL if name == "gram" else Screening())
    chosen = select(tables[table], 2, 4, factor=f"{name}.zarr")
    assert_same(told(chosen.summary()), expected["selection"])
    tried = sweep(factor, [2], [2, 4], solvers=["exact", "css"])
    assert_same(told(tried.summary()), expected["sweep"])


@pytest.mark.parametrize("name", sorted(EXPECTED.keys() - {"version"}))
def test_they_say_of_themselves_what_they_said(name: str) -> None:
    found = info(name if name == "checkpoint" else f"{name}.zarr")
    expected = EXPECTED[name]["info"]
    for said in (found, expected):
        for array in said["arrays"].values():  # that of text is as zarr's version names it
            del array["dtype"]
    assert {key: found[key] for key in found if key not in PLACES} == expected


def test_an_interrupted_run_goes_on(tmp_path: Path, tables: dict[str, Any]) -> None:
    said: list[Any] = []
    kept, run = tmp_path / "kept", partial(decompose, tables["wide"], 3, method="gram")
    shutil.copytree("checkpoint", kept)
    found = run(checkpoint=kept, resume=True, progress=said.append)
    assert any(isinstance(event, Noticed) and "going on from" in event.text for event in said)
    assert arrays_of(found) == arrays_of(run())
    assert not kept.exists()


def test_all_of_them_are_reported(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    trials = [WRITTEN / "sweep.csv", WRITTEN / "sweep.json"]
    found = report([*(f"{name}.zarr" for name in SELECTIONS), *trials], out=tmp_path / "page.html")
    assert (found.results, found.sweeps) == (3, 2)

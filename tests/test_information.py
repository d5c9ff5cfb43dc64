"""info(): what the stores say of themselves."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from helpers import planted, write_bare

from kmufs_stream import (
    RequestError,
    Screening,
    __version__,
    apply,
    decompose,
    evaluate,
    info,
    open_matrix,
    plan_selection,
    report,
    select,
)
from kmufs_stream.factors.identity import fingerprint, identity_of_run
from kmufs_stream.factors.structure import correlation_of
from kmufs_stream.results.result import RELATED
from kmufs_stream.streaming.checkpoint import Checkpoint, save_state
from kmufs_stream.streaming.kernels.scaling import read_probe
from kmufs_stream.streaming.tree import Node

X = planted(200, 9)
X[:, 4] = 1.0


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_bare(tmp_path / "x.zarr", X, chunks=(50, 9))


def test_selection(data: Path, tmp_path: Path) -> None:
    made = select(data, 2, 3, out=tmp_path / "r.zarr", command="kmufs-stream select 'x y'")
    found = info(tmp_path / "r.zarr")
    json.dumps(found, allow_nan=False)
    assert found["kind"] == "selection"
    assert found["format_version"] == found["reads"] == 1
    assert found["version"] == __version__
    assert found["command"] == "kmufs-stream select 'x y'"
    assert found["created"].startswith("20")
    assert found["source"] == str(data)
    assert found["identity"] == "-".join(made.factor.fingerprint.values())
    assert found["shape"] == {"samples": 200, "features": 9, "k": 2, "h": 3}
    assert found["options"]["solver"] == "admm"
    assert found["options"]["solver_rho"] == 1.05
    assert found["outcome"]["objective"] == made.objective
    assert found["outcome"]["converged"] is made.solution.converged
    assert found["outcome"]["settled"] is True
    assert found["outcome"]["excluded_constant"] == 1
    assert found["arrays"]["data"] == {"shape": [200, 3], "dtype": "float64"}
    files = [f for f in (tmp_path / "r.zarr").rglob("*") if f.is_file()]
    assert found["bytes"] == sum(len(f.read_bytes()) for f in files)


def test_times_are_told_as_such(tmp_path: Path) -> None:
    hours = np.datetime64("2001-01-01", "ns") + np.arange(9) * np.timedelta64(6, "h")
    leads = np.arange(200) * np.timedelta64(90, "m").astype("m8[ns]")
    table = xr.DataArray(X, {"lead": leads, "time": hours}, ("lead", "time"), name="x")
    made = select(table, 2, 3, solver="exact", out=tmp_path / "r.zarr")
    arrays = info(tmp_path / "r.zarr")["arrays"]
    chosen = made.labels or []
    ends = {"first": chosen[0], "last": chosen[-1]}
    assert arrays["time"] == {"shape": [3], "dtype": "int64", **ends}
    assert arrays["all_features/source_feature"]["last"] == "2001-01-03T00:00:00"
    assert (arrays["lead"]["first"], arrays["lead"]["last"]) == ("0 days", "17910 minutes")
    assert "first" not in arrays["score"]
    shutil.rmtree(tmp_path / "r.zarr" / "time" / "c")
    (tmp_path / "r.zarr" / "time" / "c").mkdir()
    (tmp_path / "r.zarr" / "time" / "c" / "0").write_bytes(b"damaged")
    assert info(tmp_path / "r.zarr")["arrays"]["time"] == {"shape": [3], "dtype": "int64"}


def test_factor(data: Path, tmp_path: Path) -> None:
    made = decompose(data, 2, out=tmp_path / "f.zarr", command="kmufs-stream decompose")
    found = info(tmp_path / "f.zarr")
    json.dumps(found, allow_nan=False)
    assert found["kind"] == "factor"
    assert found["command"] == "kmufs-stream decompose"
    assert found["shape"] == {"samples": 200, "features": 9, "k": 2, "components": 5}
    assert found["identity"] == "-".join(made.fingerprint.values())
    assert found["outcome"]["excluded_constant"] == 1
    assert found["outcome"]["settled"] is True
    assert found["options"]["missing"] == "raise"


def test_application_and_python_leave_no_command(data: Path, tmp_path: Path) -> None:
    select(data, 2, 3, out=tmp_path / "r.zarr")
    apply(tmp_path / "r.zarr", X[:50], out=tmp_path / "a.zarr")
    found = info(tmp_path / "a.zarr")
    assert found["kind"] == "application"
    assert found["command"] is None
    assert found["created"] is None
    assert found["options"]["selection"] == str(tmp_path / "r.zarr")
    assert found["options"]["matched"] == "position"


def test_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    said = {"format": "kmufs-checkpoint 1", "version": "0.1", "k": "any", "data shape": "9 x 2"}
    (tmp_path / "c" / "checkpoint.json").write_text(json.dumps(said))
    found = info(tmp_path / "c")
    assert found["kind"] == "checkpoint"
    assert found["options"]["data shape"] == "9 x 2"
    assert found["outcome"] == {}


def test_a_checkpoint_tells_how_far_its_run_came(data: Path, tmp_path: Path) -> None:
    about = {"source": "d.zarr", "command": "kmufs-stream select d.zarr", "partitions": 5}
    kept = Checkpoint(tmp_path / "c", resume=False, about=about)
    kept.begin({"data shape": "9 x 2"})
    for number, nodes in ((1, [Node(3, 0)]), (2, [Node(1, 0), Node(0, 2), Node(0, 1)])):
        states = kept.of_pass(number, None)
        for node in nodes:
            save_state(np.zeros(2), states.path(node), states.kernel)
    found = info(tmp_path / "c")
    assert found["outcome"] == {"reads_kept": 1, "of_next_read": pytest.approx(3 / 5)}
    assert (found["source"], found["command"]) == ("d.zarr", "kmufs-stream select d.zarr")
    assert "about" not in found["options"]


def test_a_checkpoint_tells_what_was_asked_in_words(data: Path, tmp_path: Path) -> None:
    matrix = open_matrix(data)
    plan = plan_selection(matrix, 2, 3)
    whose = fingerprint(matrix, read_probe(matrix))
    kept = Checkpoint(tmp_path / "c", resume=False)
    kept.begin(identity_of_run(whose, plan, Screening("mean", 0.5), None))
    found = info(tmp_path / "c")
    assert (found["options"]["missing"], found["options"]["min std"]) == ("mean", "0.5")
    assert whose["chunks"] not in found["options"].values()
    assert whose["chunks"] in found["identity"]


def test_other_versions_are_told_not_refused(data: Path, tmp_path: Path) -> None:
    select(data, 2, 3, out=tmp_path / "r.zarr")
    zarr.open_group(tmp_path / "r.zarr").attrs["format_version"] = 99
    zarr.consolidate_metadata(tmp_path / "r.zarr")
    found = info(tmp_path / "r.zarr")
    assert (found["format_version"], found["reads"]) == (99, 1)
    with pytest.raises(RequestError, match="format 99"):
        report(tmp_path / "r.zarr", out=tmp_path / "r.html")


def test_other_things_are_refused(data: Path, tmp_path: Path) -> None:
    for path, code in (
        (tmp_path / "none", "not_found"),
        (data, "not_ours"),
        (tmp_path, "not_ours"),
    ):
        with pytest.raises(RequestError) as error:
            info(path)
        assert error.value.code == code
        assert str(path) in error.value.message


def test_what_a_thing_is_is_told_where_another_was_asked_for(data: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    (tmp_path / "t.txt").write_text("a")
    select(data, 2, 3, out=tmp_path / "r.zarr")
    decompose(data, 2, out=tmp_path / "f.zarr")
    apply(tmp_path / "r.zarr", data, out=tmp_path / "a.zarr")
    for name, what, then in (
        ("x.zarr", "data to select from", "kmufs-stream plan shows"),
        ("t.csv", "a file of another format", "convert"),
        ("t.txt", "nothing that kmufs-stream reads", "slip"),
        ("f.zarr", "a factor, which decompose wrote", "sweep"),
        ("a.zarr", "an applied selection, which apply wrote", "kmufs-stream evaluate"),
    ):
        with pytest.raises(RequestError) as error:
            evaluate(tmp_path / name) if name != "a.zarr" else apply(
                tmp_path / name, data, out=tmp_path / "b.zarr"
            )
        assert f"{name} is not a selection: it is {what}." in error.value.message
        assert then in error.value.remedy
    with pytest.raises(RequestError, match="is a file of another format"):
        info(tmp_path / "t.csv")
    with pytest.raises(RequestError, match="is not a factor: it is a selection"):
        select(data, 2, 3, factor=tmp_path / "r.zarr")


def test_what_lies_in_a_zarr_store_of_python(data: Path, tmp_path: Path) -> None:
    held: dict[str, Any] = {}
    store = zarr.storage.MemoryStore(held)
    for made in (store, tmp_path / "r.zarr"):
        select(data, 2, 3, out=made)
    found, same = info(store), info(tmp_path / "r.zarr")
    assert found["path"] == "a MemoryStore"
    assert found["bytes"] == sum(len(piece) for piece in held.values())
    assert {**same, "path": found["path"], "bytes": found["bytes"]} == found
    with pytest.raises(RequestError, match="a MemoryStore is empty"):
        info(zarr.storage.MemoryStore())
    xr.Dataset({"x": (("a", "b"), np.ones((4, 3)))}).to_zarr(other := zarr.storage.MemoryStore())
    with pytest.raises(RequestError, match="a MemoryStore is data to select from") as error:
        info(other)
    assert error.value.remedy == "kmufs-stream plan shows what would be read of it."


def test_what_lies_in_an_object_store(data: Path, tmp_path: Path) -> None:
    place = f"memory://{tmp_path.name}/r.zarr"
    select(data, 2, 3, out=place)
    found = info(place, storage_options={"skip_instance_cache": True})
    assert (found["path"], found["kind"]) == (place, "selection")
    made = report([place], out=tmp_path / "r.html", storage_options={"skip_instance_cache": True})
    assert made.results == 1
    assert "<h1>r.zarr</h1>" in re.sub(r"<h1[^>]*>\s*", "<h1>", made.output.read_text())


@pytest.mark.parametrize("method", ["gram", "lanczos"])
def test_correlations_are_kept_of_what_was_chosen(data: Path, tmp_path: Path, method: str) -> None:
    made = select(data, 2, 4, method=method, out=tmp_path / "r.zarr")
    group = zarr.open_group(tmp_path / "r.zarr", path="diagnostics", mode="r")
    assert group["related_index"][:].tolist() == made.selected.tolist()  # type: ignore[union-attr, index]
    # The row sample of so few rows is all of them.
    expected = np.corrcoef(X[:, made.selected].T)
    np.testing.assert_allclose(group["correlation"][:], expected, atol=1e-6)  # type: ignore[union-attr, index]


def test_correlations_from_the_row_sample_equal_the_factors() -> None:
    rows = planted(150, RELATED // 20)
    gram, lanczos = (decompose(rows, 3, method=method) for method in ("gram", "lanczos"))
    places = np.array([1, 2, 8, 20])
    np.testing.assert_allclose(
        correlation_of(lanczos, places), correlation_of(gram, places), atol=1e-10
    )

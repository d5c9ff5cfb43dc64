"""info(): what the stores say of themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from helpers import planted, write_bare

from kmufs_stream import (
    Factor,
    RequestError,
    Screening,
    Selection,
    __version__,
    apply,
    decompose,
    info,
    open_matrix,
    plan_selection,
    report,
    select,
)
from kmufs_stream.factors.identity import fingerprint, identity_of_run
from kmufs_stream.streaming.checkpoint import Checkpoint, save_state
from kmufs_stream.streaming.kernels.scaling import read_probe
from kmufs_stream.streaming.tree import Node

X = planted(200, 9)
X[:, 4] = 1.0


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bare(tmp_path_factory.mktemp("data") / "x.zarr", X, chunks=(50, 9))


@pytest.fixture(scope="module")
def made(data: Path) -> tuple[Selection, Factor]:
    """Beside the data are a selection, r.zarr, and a factor, f.zarr."""
    return (
        select(data, 2, 3, out=data.parent / "r.zarr", command="kmufs-stream select 'x y'"),
        decompose(data, 2, out=data.parent / "f.zarr", command="kmufs-stream decompose"),
    )


def test_selection(data: Path, made: tuple[Selection, Factor]) -> None:
    chosen, place = made[0], data.parent / "r.zarr"
    found = info(place)
    json.dumps(found, allow_nan=False)
    assert found["kind"] == "selection"
    assert found["format_version"] == found["reads"] == 1
    assert found["version"] == __version__
    assert found["command"] == "kmufs-stream select 'x y'"
    assert found["created"].startswith("20")
    assert found["source"] == str(data)
    assert found["identity"] == "-".join(chosen.factor.fingerprint.values())
    assert found["shape"] == {"samples": 200, "features": 9, "k": 2, "h": 3}
    assert (found["options"]["solver"], found["options"]["solver_rho"]) == ("admm", 1.05)
    assert found["outcome"]["objective"] == chosen.objective
    assert found["outcome"]["converged"] is chosen.solution.converged
    assert found["outcome"]["settled"] is True
    assert found["outcome"]["excluded_constant"] == 1
    assert found["arrays"]["data"] == {"shape": [200, 3], "dtype": "float64"}
    assert found["bytes"] == sum(f.stat().st_size for f in place.rglob("*") if f.is_file())


def test_factor(data: Path, made: tuple[Selection, Factor]) -> None:
    found = info(data.parent / "f.zarr")
    json.dumps(found, allow_nan=False)
    assert (found["kind"], found["command"]) == ("factor", "kmufs-stream decompose")
    assert found["shape"] == {"samples": 200, "features": 9, "k": 2, "components": 5}
    assert found["identity"] == "-".join(made[1].fingerprint.values())
    assert found["outcome"]["excluded_constant"] == 1
    assert found["outcome"]["settled"] is True
    assert found["options"]["missing"] == "raise"


def test_times_are_told_as_such(tmp_path: Path) -> None:
    hours = np.datetime64("2001-01-01", "ns") + np.arange(9) * np.timedelta64(6, "h")
    leads = np.arange(200) * np.timedelta64(90, "m").astype("m8[ns]")
    table = xr.DataArray(X, {"lead": leads, "time": hours}, ("lead", "time"), name="x")
    labels = select(table, 2, 3, solver="exact", out=tmp_path / "r.zarr").labels
    arrays = info(tmp_path / "r.zarr")["arrays"]
    assert (arrays["time"]["first"], arrays["time"]["last"]) == (labels[0], labels[-1])
    assert (arrays["lead"]["first"], arrays["lead"]["last"]) == ("0 days", "17910 minutes")
    assert "first" not in arrays["score"]
    (tmp_path / "r.zarr" / "time" / "c" / "0").write_bytes(b"damaged")
    assert info(tmp_path / "r.zarr")["arrays"]["time"] == {"shape": [3], "dtype": "int64"}


def test_a_checkpoint_tells_how_far_its_run_came(data: Path, tmp_path: Path) -> None:
    about = {"source": "d.zarr", "command": "kmufs-stream select d.zarr", "partitions": 5}
    kept = Checkpoint(tmp_path / "c", resume=False, about=about)
    matrix = open_matrix(data)
    whose = fingerprint(matrix, read_probe(matrix))
    plan = plan_selection(matrix, 2, 3)
    kept.begin(identity_of_run(whose, plan, Screening("mean", 0.5), None))
    for number, nodes in ((1, [Node(3, 0)]), (2, [Node(1, 0), Node(0, 2), Node(0, 1)])):
        states = kept.of_pass(number, None)
        for node in nodes:
            save_state(np.zeros(2), states.path(node), states.kernel)
    found = info(tmp_path / "c")
    assert found["kind"] == "checkpoint"
    assert found["outcome"] == {"reads_kept": 1, "of_next_read": pytest.approx(3 / 5)}
    assert (found["source"], found["command"]) == ("d.zarr", "kmufs-stream select d.zarr")
    assert "about" not in found["options"]
    assert found["options"]["data shape"] == "200 x 9"
    assert (found["options"]["missing"], found["options"]["min std"]) == ("mean", "0.5")
    assert whose["chunks"] not in found["options"].values()
    assert whose["chunks"] in found["identity"]


def test_other_versions_are_told_not_refused_and_other_things_are_refused(
    data: Path, tmp_path: Path
) -> None:
    select(data, 2, 3, solver="exact", out=tmp_path / "r.zarr")
    zarr.open_group(tmp_path / "r.zarr").attrs["format_version"] = 99
    zarr.consolidate_metadata(tmp_path / "r.zarr")
    found = info(tmp_path / "r.zarr")
    assert (found["format_version"], found["reads"]) == (99, 1)
    with pytest.raises(RequestError, match="format 99"):
        report(tmp_path / "r.zarr", out=tmp_path / "r.html")
    for path, code in ((data / "none", "not_found"), (data, "not_ours"), (data.parent, "not_ours")):
        with pytest.raises(RequestError, match=str(path)) as error:
            info(path)
        assert error.value.code == code


@pytest.mark.usefixtures("made")
def test_what_a_thing_is_is_told_where_another_was_asked_for(data: Path, tmp_path: Path) -> None:
    made, text = data.parent, tmp_path / "t.csv"
    text.write_text("a,b\n1,2\n")
    (tmp_path / "t.txt").write_text("a")
    apply(made / "r.zarr", data, out=tmp_path / "a.zarr")
    found = info(tmp_path / "a.zarr")
    assert (found["kind"], found["command"], found["created"]) == ("application", None, None)
    assert found["options"]["selection"] == str(made / "r.zarr")
    assert found["options"]["matched"] == "position"
    for path, what in (
        (data, "data to select from"),
        (text, "a file of another format"),
        (tmp_path / "t.txt", "nothing that kmufs-stream reads"),
        (made / "f.zarr", "a factor"),
        (tmp_path / "a.zarr", "an applied selection"),
    ):
        with pytest.raises(RequestError, match=f"{path.name} is not a selection: it is {what}"):
            apply(path, data, out=tmp_path / "b.zarr")
    with pytest.raises(RequestError, match="is a file of another format"):
        info(text)
    with pytest.raises(RequestError, match="is not a factor: it is a selection"):
        select(data, 2, 3, factor=made / "r.zarr")


@pytest.mark.usefixtures("made")
def test_what_lies_in_other_stores(data: Path, tmp_path: Path) -> None:
    held: dict[str, Any] = {}
    store, place = zarr.storage.MemoryStore(held), f"memory://{tmp_path.name}/r.zarr"
    options = {"skip_instance_cache": True}
    for out, path in ((store, "a MemoryStore"), (place, place)):
        select(data, 2, 3, out=out, command="kmufs-stream select 'x y'")
        same = info(data.parent / "r.zarr")
        found = info(out, storage_options=options if out == place else None)
        assert found["path"] == path
        for own in ("path", "bytes", "created"):
            del found[own], same[own]
        assert found == same
    assert info(store)["bytes"] == sum(len(piece) for piece in held.values())
    assert report([place], out=tmp_path / "r.html", storage_options=options).results == 1
    with pytest.raises(RequestError, match="a MemoryStore is empty"):
        info(zarr.storage.MemoryStore())

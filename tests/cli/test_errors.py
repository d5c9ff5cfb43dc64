"""Everything that can go wrong: one message with its remedy, an exit code, and nothing touched."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from commands import Cli, Gate, begun, ended
from helpers import contents, environment, planted, write_bare
from sources import anndata_stores as stores

import kmufs_stream.selection

Make = Callable[[Path], object]
X = planted(60, 6)
K, H = ("--k", 2), ("--h", 3)


def bare(values: Any, **options: Any) -> Make:
    """A store that holds one array."""
    return lambda place: write_bare(place / "data.zarr", np.asarray(values), **options)


def datasets(place: Path) -> None:
    """Tables, a cube, and a series, and another table in a group; beside them a store of a cube."""
    cube = ("time", "cell", "gene"), np.zeros((2, 60, 6))
    tables = dict.fromkeys(("counts", "logs"), (("cell", "gene"), X))
    xr.Dataset({**tables, "cube": cube, "series": ("cell", X[:, 0])}).to_zarr(place / "data.zarr")
    xr.Dataset({"counts": (("cell", "gene"), X)}).to_zarr(place / "data.zarr", group="in/side")
    xr.Dataset({"cube": cube}).to_zarr(place / "none.zarr")


def named(place: Path) -> None:
    """A table with coordinates along both dimensions, and one with columns."""
    names = {"symbol": ("gene", [f"g{i}" for i in range(6)]), "batch": ("cell", np.arange(60))}
    xr.Dataset({"x": (("cell", "gene"), X)}, names).to_zarr(place / "data.zarr")
    (place / "table.csv").write_text("name,a,b\nx,1,2\ny,3,4\n")


def parts(place: Path) -> None:
    """A table in a folder of folders."""
    (place / "parts" / "year=2020").mkdir(parents=True)
    (place / "parts" / "year=2020" / "0.parquet").touch()
    (place / "parts" / "1.parquet").touch()


def broken(name: str, kept: int, zarr_format: int = 3) -> Make:
    """A store whose metadata were cut off."""

    def make(place: Path) -> None:
        write_bare(place / "data.zarr", X, zarr_format=zarr_format)
        metadata = place / "data.zarr" / name
        metadata.write_bytes(metadata.read_bytes()[:kept])

    return make


def spoilt(**values: tuple[int, int]) -> Make:
    """A table with values that are not numbers at the named places."""
    Y = X.copy()
    for value, place in values.items():
        Y[place] = float(value)
    return bare(Y, chunks=(20, 6))


def plain_folder(place: Path) -> None:
    (place / "data.zarr").mkdir()
    (place / "data.zarr" / "thesis.txt").write_text("mine")


def file(place: Path) -> None:
    (place / "data.zarr").write_text("not a folder")


def h5ad(place: Path) -> None:
    """AnnData, and text, and HDF5 that is no AnnData, where AnnData files are expected."""
    stores.write_h5ad(stores.annotated(stores.counts()), place / "cells")
    (place / "text.h5ad").write_text("none")
    with h5py.File(place / "other.h5ad", "w") as made:
        made["a"] = [1, 2]


def result_exists(place: Path) -> None:
    bare(X)(place)
    write_bare(place / "data.selected.zarr", X)


def in_the_way(place: Path) -> None:
    bare(X)(place)
    (place / "taken").mkdir()
    (place / "taken" / "thesis.txt").write_text("mine")
    (place / "file").write_text("mine")
    (place / "kmufs-demo").symlink_to(".")
    (place / "digits.zarr").symlink_to("taken")


def nothing(place: Path) -> None:
    """No store at all."""


def empty(place: Path) -> None:
    zarr.open_group(place / "data.zarr", mode="w")


ok = bare(X, chunks=(20, 6))
rank_two = bare(X[:, :1] * [1, 2, 3, 4] + X[:, 1:2] * [1, 0, 3, -1])
constants = bare(np.hstack([X, np.ones((60, 2))]))
gaps = spoilt(nan=(3, 4), inf=(50, 1))

# A store, what is typed (options alone follow SELECT), a code, and parts of message and hint.
SELECT = "select data.zarr --k 2 --h 3"
KEPT = "Give a path, or an address"
PLACES = (
    *("--out", "--checkpoint", "--anndata-out", "decompose x --k 3 --out"),
    *("update f.zarr --with x --out", "apply a.zarr x --out", "rechunk x", "convert x.csv"),
)
CELLS = "select cells.h5ad --k 3 --h 5"
OVERLAP = "--out c.h5ad --anndata-out c.h5ad --overwrite"
HEADERS = "s3://b/x --k 2 --h 2 --storage-option headers=abc"
CASES = [
    (nothing, "", "not_found", "data.zarr", "path"),
    (nothing, "select moon://b/x --k 2 --h 3", "unknown_protocol", "moon://b/x", "s3://"),
    (h5ad, "select none.h5ad --k 2 --h 2", "not_found", "none.h5ad", "or an AnnData file (.h5ad)"),
    (h5ad, "select text.h5ad --k 2 --h 2", "not_zarr", "neither AnnData (HDF5) nor a z", ".zip"),
    (h5ad, "select other.h5ad --k 2 --h 2", "not_anndata", "other.h5ad", "write_h5ad"),
    (h5ad, f"{CELLS} --layer none", "unknown_layer", "'none'", "Layers there"),
    (h5ad, f"{CELLS} --raw", "no_raw", "has no raw", "Leave out --raw"),
    (h5ad, f"{CELLS} --transform log2", "bad_option", "'log2'", "'log1p'"),
    (h5ad, f"{CELLS} --anndata-out x", "bad_output", "x does not end", ".h5ad"),
    (h5ad, f"{CELLS} {OVERLAP}", "outputs_overlap", "c.h5ad overlaps", "another --anndata-out"),
    (nothing, "plan ' ' --k 3 --h 2", "empty_path", "The path ' ' is empty", "Give a path"),
    (nothing, f"plan {HEADERS}", "bad_option", "storage options headers: TypeError", "JSON"),
    (file, "", "not_zarr", "data.zarr", "folder"),
    (plain_folder, "", "not_zarr", "zarr.json", "folder"),
    (parts, "select parts --k 2 --h 3", "not_zarr", "parts", "First type: kmufs-stream convert p"),
    (empty, "", "no_table", "holds nothing", "--variable"),
    (bare(X[:, 0]), "", "not_2d", "(60,)", "table"),
    (datasets, "--variable cube", "which_dimensions", "time 2, cell 60", "--sample-dims time"),
    (datasets, "", "ambiguous_variable", "logs (60, 6)", "--variable cube"),
    (datasets, "--variable count", "unknown_variable", "'count'", "Did you mean 'counts'?"),
    (datasets, "--group in/sid", "unknown_group", "'in/sid'", "in/side"),
    (datasets, "--variable logs --feature-dims x", "unknown_dimension", "--feature-dims", "'cell'"),
    (bare(X.astype("M8[s]")), "", "bad_dtype", "datetime64", "Real numbers"),
    (gaps, "", "not_finite", "2 values in 2 of 6 features are missing (NaN) or", "--missing mean"),
    (ok, "select data.zarr --k 0 --h 3", "bad_k", "k is 0", "--k 1 or more"),
    (ok, "select data.zarr --k 7 --h 3", "bad_k", "k is 7", "--k 6 or less"),
    (rank_two, "select data.zarr --k 3 --h 3", "bad_k", "the rank, is 2", "--k 2 or less"),
    (ok, "select data.zarr --k 2 --h 0", "bad_h", "h is 0", "--h 1 or more"),
    (ok, "select data.zarr --k 2 --h 7", "bad_h", "h is 7, but the number of f", "--h 6 or less"),
    (constants, "select data.zarr --k 2 --h 7", "bad_h", "usable features is 6", "--h 6 or less"),
    (bare(np.ones((60, 6))), "", "all_constant", "6", "vary"),
    (bare(np.zeros((0, 6)), chunks=(1, 6)), "", "too_few_samples", "0 samples", "--sample-dims"),
    (bare(X[:1]), "", "too_few_samples", "1 sample", "--sample-dims"),
    (bare(np.zeros((60, 0)), chunks=(20, 1)), "", "no_features", "(60, 0)", "table"),
    (result_exists, "", "output_exists", "data.selected.zarr", "--overwrite"),
    (ok, "--out data.zarr --overwrite", "output_is_input", "overlaps the input", "another --out"),
    (ok, "decompose data.zarr --k 2 --out data.zarr/f", "output_is_input", "overlaps", "--out"),
    (ok, "--out . --overwrite", "bad_output", "not the name", "another --out"),
    (ok, "--out not/here.zarr", "no_folder", "does not exist", "Create it"),
    (in_the_way, "--out file/here.zarr", "no_folder", "is not a folder", "another --out"),
    (in_the_way, "--out taken --overwrite", "output_exists", "not a Zarr store", "remove it y"),
    (in_the_way, "demo", "not_zarr", "kmufs-demo/digits.zarr is not a Z", "check the path"),
    (in_the_way, "demo --folder file", "no_folder", "file of the output", "another --folder"),
    (nothing, "demo --folder not/here", "no_folder", "here of the output", "another --folder"),
    (ok, "--out /proc/x.zarr", "not_writable", "The folder /proc of the output", "another --out"),
    *((ok, f"{to} memory://a", "not_lasting", "memory of this process", KEPT) for to in PLACES),
    (broken("zarr.json", 80), "", "bad_metadata", "data.zarr", "write the store again"),
    (broken(".zarray", 40, 2), "", "bad_metadata", "data.zarr", "write the store again"),
    (ok, "--memory 20MB", "does_not_fit", "--memory is 20.0 MB", "Give --memory"),
    (ok, "--memory lots", "bad_option", "'lots'", "500MB"),
    (ok, "--threads 0", "bad_option", "0", "--threads 1"),
    (ok, "--rho 0.5", "bad_option", "--rho", "at least 1"),
    (ok, "--log --quiet", "bad_option", "--log and --quiet", "Leave out one"),
    (ok, "--solver consensu", "bad_option", "'consensu'", "'consensus'"),
    (ok, "--solver ADMM", "bad_option", "'ADMM'", "'admm'"),
    (ok, "--method lancsoz", "bad_option", "'lancsoz'", "'lanczos'"),
    (ok, "--precision float23", "bad_option", "'float23'", "'float32'"),
    (ok, "--missing drop-sample", "bad_option", "'drop-sample'", "'drop-samples'"),
    (named, "--sample-dims cel", "unknown_dimension", "'cel' (--sample-dims)", "'cell'"),
    (named, "--feature-labels symbols", "unknown_labels", "'symbols'", "'symbol'"),
    (named, "--feature-labels symbol --features G3", "unknown_features", "'G3'", "'g3'"),
    (named, "--where 'batsh > 3'", "bad_condition", "batsh", "'batch'"),
    (named, "convert table.csv t --index-column nam", "unknown_column", "'nam'", "'name'"),
    (ok, "select dta.zarr --k 2 --h 3", "not_found", "dta.zarr", "'data.zarr'"),
    (ok, "evaluate dta.zarr", "not_found", "dta.zarr", "'data.zarr'"),
    (ok, "info dta.zarr", "not_found", "dta.zarr", "'data.zarr'"),
    (ok, "--factor dta.zarr", "not_found", "dta.zarr", "'data.zarr'"),
    (ok, "--factor factor.zarr", "not_found", "factor.zarr", "kmufs-stream decompose"),
    (datasets, "--variable logs --factor none.zarr", "not_a_factor", "none.zarr", "decompose"),
    (ok, "select data.zarr --h 3", "usage", "--k", "kmufs-stream select --help"),
    (ok, "--k ten", "usage", "'--k'", "select --help"),
    (ok, "--solvr css", "usage", "--solvr (Possible options: --json, --solver", "--help"),
    (ok, "select --k 2 --h 3", "usage", "DATA", "select --help"),
    (ok, "data.zarr --k 2 --h 3", "usage", "'data.zarr'", "See kmufs-stream --help."),
    (ok, "convert x.csv --out y.zarr", "usage", "No such option: --out", "convert --help"),
]


@pytest.mark.parametrize(("make", "words", "code", "says", "hint"), CASES)
def test_a_request_that_cannot_be_met(
    cli: Cli, folder: Path, make: Make, words: str, code: str, says: str, hint: str
) -> None:
    make(folder)
    before = contents(folder)
    typed = f"{SELECT} {words}" if words.startswith("--") or not words else words
    arguments = shlex.split(typed)

    done = cli(*arguments).refused()
    message, *remedy = done.err.splitlines()
    assert message.startswith("Error: ")
    assert says in message
    assert hint in " ".join(remedy)

    machine = cli(*arguments, "--json")
    assert (machine.code, machine.err) == (2, "")
    document = machine.json()
    assert document.keys() == {"error"}
    assert document["error"]["code"] == code
    assert message == f"Error: {document['error']['message']}"
    assert hint in document["error"]["remedy"]

    assert contents(folder) == before


@pytest.mark.parametrize("command", [("select", *H), ("decompose", "--out", "f.zarr")])
@pytest.mark.parametrize("lost", [True, False])
def test_a_damaged_chunk_is_named(
    cli: Cli, table: Path, folder: Path, command: tuple[str, ...], lost: bool
) -> None:
    chunk = table / "c" / "3" / "0"
    if lost:
        chunk.unlink()
    else:
        chunk.write_bytes(b"not a chunk")
    before = contents(folder)
    done = cli(command[0], table, *K, *command[1:])
    assert (done.code, done.out) == (1, "")
    assert f"chunk c/3/0 of {folder / table} {'is not there' if lost else 'cannot be'}" in done.err
    assert ("--fill-missing-chunks" in done.err) == lost
    assert "Traceback" not in done.err
    assert contents(folder) == before


def test_the_unexpected_is_told_in_one_line(
    cli: Cli, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("select", table, *K, *H)
    broken = mock.Mock(side_effect=ZeroDivisionError("over\nlines"))
    monkeypatch.setattr(kmufs_stream.selection, "select", broken)
    done = cli(*asked)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "Error: Something unexpected broke: ZeroDivisionError: over lines\n"
        "  Run again with --debug to see where.\n"
    )
    assert cli(*asked, "--json").json()["error"]["code"] == "unexpected"
    debugged = cli(*asked, "--debug")
    assert debugged.code == 1
    assert "Traceback" in debugged.err
    assert "ZeroDivisionError" in debugged.err
    known = cli("select", "nothing", *K, *H, "--debug", "--json")
    assert (known.code, known.json()["error"]["code"]) == (2, "not_found")
    assert "Traceback" in known.err
    broken.side_effect = MemoryError
    done = cli(*asked, "--json")
    assert (done.code, done.json()["error"]["code"]) == (1, "out_of_memory")


def test_real_processes_end_with_the_promised_codes(shell: Cli, table: Path) -> None:
    done = shell("select", table, *K, *H, "--json")
    assert (done.code, done.err, done.json()["h"]) == (0, "", 3)  # and nothing else on stdout
    refused = shell("select", table, *K, *H).refused()
    assert refused.err.startswith("Error: The output data.selected.zarr exists.")
    (table / "c" / "3" / "0").write_bytes(b"not a chunk")
    failed = shell("select", table, *K, *H, "--overwrite", "--json")
    assert (failed.code, failed.err) == (1, "")
    assert failed.json()["error"]["code"] == "corrupt_chunk"
    assert shell("--version").out.startswith("kmufs-stream ")


def test_help_waits_for_nothing_heavy(folder: Path) -> None:
    program = (
        "import sys; from kmufs_stream_cli import main\n"
        "codes = [main([*command, '--help']) for command in "
        "([], ['select'], ['plan'], ['decompose'], ['demo'], ['report'], ['info'])]\n"
        "heavy = {'numpy', 'dask', 'xarray', 'zarr', 'scipy', 'sklearn', 'psutil', 'matplotlib'}\n"
        "print(codes, sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "[0, 0, 0, 0, 0, 0, 0] []", done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_nobody_who_takes_stdout_is_no_traceback() -> None:
    reader, gone = os.pipe()
    os.close(reader)
    for writer, said in ((os.open("/dev/full", os.O_WRONLY), "No space left"), (gone, "")):
        command = [sys.executable, "-m", "kmufs_stream_cli", "--help"]
        done = subprocess.run(
            command, stdout=writer, stderr=subprocess.PIPE, text=True, env=environment()
        )
        os.close(writer)
        assert done.returncode == 1
        assert said in done.stderr
        assert "Traceback" not in done.stderr
        assert bool(said) == bool(done.stderr)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize(("stage", "number"), [("read", signal.SIGINT), ("take", signal.SIGTERM)])
def test_an_interrupt_leaves_nothing_partial(
    stage: str, number: signal.Signals, cli: Cli, table: Path, folder: Path, gate: Gate
) -> None:
    assert cli("select", table, *K, *H).code == 0  # an older result, to be kept
    before = contents(folder)
    arguments = ("select", table, *K, "--h", 4, "--overwrite", "--json")
    process = begun(0, *arguments, gate=gate, before=stage)
    process.until(gate.reached.exists)
    assert (contents(folder) != before) == (stage == "take")  # the new result is under way
    process.send(number)
    gate.opened.touch()
    done = ended(process)
    assert (done.code, done.err) == (130, ""), done
    error = done.json()["error"]
    assert error["code"] == "interrupted"
    assert "kmufs-stream select data.zarr --k 2 --h 4 --overwrite" in error["remedy"]
    assert contents(folder) == before


def test_line_breaks_in_names_are_shown_as_such(cli: Cli, folder: Path) -> None:
    data = xr.DataArray(
        planted(100, 4), dims=("a", "b"), name="x", coords={"b": ["p\nq", "r\ts", "é", "u"]}
    )
    data.to_dataset().to_zarr("data.zarr", consolidated=False)
    done = cli("select", "data.zarr", "--k", 2, "--h", 4, "--out", "n\nl.zarr", "--log")
    assert done.code == 0
    assert r"labels: p\nq, r\ts, é, u" in done.err
    for shown in (r"p\nq", r"r\ts", "é"):
        assert shown in done.out
    assert cli("info", "n\nl.zarr").out.startswith(r"n\nl.zarr: a kmufs-stream selection")
    assert r"no\nne.zarr does not exist" in cli("info", "no\nne.zarr").err
    other = cli("plan", "data.zarr", "--variable", "y", "--sample-dims", "q\nr", "--k", 2, "--h", 2)
    assert len(other.err.splitlines()) == 2
    options = ("--feature-labels", "b", "--features", "p\n", "--k", 2, "--h", 2)
    assert r"Did you mean 'p\nq'?" in cli("plan", "data.zarr", *options).err

"""Everything that can go wrong: one message with its remedy, an exit code, and nothing touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from commands import Gate, Run, begun, ended
from helpers import contents, environment, planted, write_bare

import kmufs_stream.selection

Cli = Callable[..., Run]
X = planted(60, 6)
K, H = ("--k", 2), ("--h", 3)


def bare(values: Any, **options: Any) -> Callable[[Path], object]:
    """A store that holds one array."""
    return lambda place: write_bare(place / "data.zarr", np.asarray(values), **options)


def datasets(place: Path) -> None:
    """Tables, a cube, and a series in one group; a table in another; a table, cut off."""
    cube = ("time", "cell", "gene"), np.zeros((2, 60, 6))
    tables = dict.fromkeys(("counts", "logs"), (("cell", "gene"), X))
    xr.Dataset({**tables, "cube": cube, "series": ("cell", X[:, 0])}).to_zarr(place / "two.zarr")
    xr.Dataset({"cube": cube, "series": ("cell", X[:, 0])}).to_zarr(place / "none.zarr")
    xr.Dataset({"counts": (("cell", "gene"), X)}).to_zarr(place / "deep.zarr", group="in/side")


def broken(name: str, kept: int, zarr_format: int = 3) -> Callable[[Path], object]:
    """A store whose metadata were cut off."""

    def make(place: Path) -> None:
        write_bare(place / "data.zarr", X, zarr_format=zarr_format)
        metadata = place / "data.zarr" / name
        metadata.write_bytes(metadata.read_bytes()[:kept])

    return make


def spoilt(**values: tuple[int, int]) -> Callable[[Path], object]:
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


def result_exists(place: Path) -> None:
    bare(X)(place)
    write_bare(place / "data.selected.zarr", X)


def folder_in_the_way(place: Path) -> None:
    bare(X)(place)
    (place / "taken").mkdir()
    (place / "taken" / "thesis.txt").write_text("mine")
    (place / "file").write_text("mine")


@dataclass(frozen=True)
class Case:
    """A request that cannot be met; with what its message and its remedy say."""

    name: str
    make: Callable[[Path], object]
    arguments: tuple[object, ...]
    code: str
    says: tuple[str, ...]
    remedy: str


DATA = ("select", "data.zarr")
TWO = ("select", "two.zarr")
ok = bare(X, chunks=(20, 6))

CASES = [
    Case("path missing", lambda p: None, (*DATA, *K, *H), "not_found", ("data.zarr",), "path"),
    Case("a file", file, (*DATA, *K, *H), "not_zarr", ("data.zarr",), "folder"),
    Case("not Zarr", plain_folder, (*DATA, *K, *H), "not_zarr", ("zarr.json",), "folder"),
    Case(
        "an address of an unknown kind",
        lambda p: None,
        ("select", "moon://bucket/data.zarr", *K, *H),
        "unknown_protocol",
        ("moon://bucket/data.zarr",),
        "s3://",
    ),
    Case(
        "empty group",
        lambda p: zarr.open_group(p / "data.zarr", mode="w"),
        (*DATA, *K, *H),
        "no_table",
        ("data.zarr", "holds nothing"),
        "--variable",
    ),
    Case("1-d", bare(X[:, 0]), (*DATA, *K, *H), "not_2d", ("1-d", "(60,)"), "table"),
    Case(
        "3-d",
        bare(np.zeros((2, 3, 4))),
        (*DATA, *K, *H),
        "which_dimensions",
        ("3-d",),
        "--sample-dims",
    ),
    Case(
        "3-d chosen",
        datasets,
        (*TWO, *K, *H, "--variable", "cube"),
        "which_dimensions",
        ("'cube'", "3-d", "time 2, cell 60, gene 6"),
        "--sample-dims time",
    ),
    Case(
        "only a cube",
        datasets,
        ("select", "none.zarr", *K, *H),
        "which_dimensions",
        ("cube",),
        "--sample-dims",
    ),
    Case(
        "several",
        datasets,
        (*TWO, *K, *H),
        "ambiguous_variable",
        ("counts (60, 6)", "logs (60, 6)"),
        "--variable cube",
    ),
    Case(
        "unknown variable",
        datasets,
        (*TWO, *K, *H, "--variable", "count"),
        "unknown_variable",
        ("'count'",),
        "Did you mean 'counts'? Variables there: counts (60, 6)",
    ),
    Case(
        "unknown group",
        datasets,
        ("select", "deep.zarr", *K, *H, "--group", "in/sid"),
        "unknown_group",
        ("'in/sid'",),
        "in/side",
    ),
    Case(
        "group needed",
        datasets,
        ("select", "deep.zarr", *K, *H),
        "no_table",
        ("in/side/counts",),
        "--group in/side",
    ),
    Case(
        "unknown dimension",
        datasets,
        (*TWO, *K, *H, "--variable", "logs", "--feature-dims", "genes"),
        "unknown_dimension",
        ("'genes'", "--feature-dims"),
        "'cell', 'gene'",
    ),
    Case(
        "one dimension twice",
        datasets,
        (*TWO, *K, *H, "--variable", "logs", "--feature-dims", "cell", "--sample-dims", "cell"),
        "which_dimensions",
        ("cell",),
        "naming those of one is enough",
    ),
    Case("complex", bare(X + 1j), (*DATA, *K, *H), "bad_dtype", ("complex128",), "Real numbers"),
    Case("text", bare(X.astype("U4")), (*DATA, *K, *H), "bad_dtype", ("<U4",), "Real numbers"),
    Case(
        "times",
        bare(X.astype("M8[s]")),
        (*DATA, *K, *H),
        "bad_dtype",
        ("datetime64",),
        "Real numbers",
    ),
    Case(
        "NaN and infinity",
        spoilt(nan=(3, 4), inf=(50, 1)),
        (*DATA, *K, *H),
        "not_finite",
        (
            "2 values in 2 of 6 features are missing (NaN) or infinite",
            "feature 1: 1",
            "feature 4: 1",
        ),
        "--missing mean",
    ),
    Case("k too small", ok, (*DATA, "--k", 0, *H), "bad_k", ("k is 0",), "--k 1 or more"),
    Case("k negative", ok, (*DATA, "--k", -3, *H), "bad_k", ("k is -3",), "--k 1 or more"),
    Case("k above p", ok, (*DATA, "--k", 7, *H), "bad_k", ("k is 7", "6"), "--k 6 or less"),
    Case(
        "k above the rank",
        bare(X[:, :1] * [1, 2, 3, 4] + X[:, 1:2] * [1, 0, 3, -1]),
        (*DATA, "--k", 3, *H),
        "bad_k",
        ("k is 3", "the rank, is 2"),
        "--k 2 or less",
    ),
    Case("h too small", ok, (*DATA, *K, "--h", 0), "bad_h", ("h is 0",), "--h 1 or more"),
    Case("h above p", ok, (*DATA, *K, "--h", 7), "bad_h", ("h is 7",), "--h 6 or less"),
    Case(
        "h above the usable",
        bare(np.hstack([X, np.ones((60, 2))])),
        (*DATA, *K, "--h", 7),
        "bad_h",
        ("h is 7", "usable features is 6"),
        "--h 6 or less",
    ),
    Case("all constant", bare(np.ones((60, 6))), (*DATA, *K, *H), "all_constant", ("6",), "vary"),
    Case(
        "no sample",
        bare(np.zeros((0, 6)), chunks=(1, 6)),
        (*DATA, *K, *H),
        "too_few_samples",
        ("0 samples",),
        "--sample-dims",
    ),
    Case(
        "one sample",
        bare(X[:1]),
        (*DATA, *K, *H),
        "too_few_samples",
        ("1 sample", "at least two"),
        "--sample-dims",
    ),
    Case(
        "no feature",
        bare(np.zeros((60, 0)), chunks=(20, 1)),
        (*DATA, *K, *H),
        "no_features",
        ("(60, 0)",),
        "table",
    ),
    Case(
        "output exists",
        result_exists,
        (*DATA, *K, *H),
        "output_exists",
        ("data.selected.zarr",),
        "--overwrite",
    ),
    Case(
        "output is the input",
        ok,
        (*DATA, *K, *H, "--out", "data.zarr", "--overwrite"),
        "output_is_input",
        ("overlaps the input",),
        "another --out",
    ),
    Case(
        "output inside the input",
        ok,
        (*DATA, *K, *H, "--out", "data.zarr/in"),
        "output_is_input",
        ("overlaps the input",),
        "another --out",
    ),
    Case(
        "output is this folder",
        ok,
        (*DATA, *K, *H, "--out", ".", "--overwrite"),
        "bad_output",
        ("not the name",),
        "another --out",
    ),
    Case(
        "output in no folder",
        ok,
        (*DATA, *K, *H, "--out", "not/here.zarr"),
        "no_folder",
        ("not of the output", "does not exist"),
        "Create it",
    ),
    Case(
        "output in a file",
        folder_in_the_way,
        (*DATA, *K, *H, "--out", "file/here.zarr"),
        "no_folder",
        ("is not a folder",),
        "another --out",
    ),
    Case(
        "output is a file",
        folder_in_the_way,
        (*DATA, *K, *H, "--out", "file", "--overwrite"),
        "output_exists",
        ("not a Zarr store",),
        "another --out",
    ),
    Case(
        "output is a folder",
        folder_in_the_way,
        (*DATA, *K, *H, "--out", "taken", "--overwrite"),
        "output_exists",
        ("not a Zarr store",),
        "remove it yourself",
    ),
    Case(
        "cut-off metadata",
        broken("zarr.json", 80),
        (*DATA, *K, *H),
        "bad_metadata",
        ("data.zarr",),
        "write the store again",
    ),
    Case(
        "cut-off metadata of format 2",
        broken(".zarray", 40, zarr_format=2),
        (*DATA, *K, *H),
        "bad_metadata",
        ("data.zarr",),
        "write the store again",
    ),
    Case(
        "budget too small",
        ok,
        (*DATA, *K, *H, "--memory", "20MB"),
        "does_not_fit",
        ("--memory is 20.0 MB", "are needed"),
        "Give --memory",
    ),
    Case("no size", ok, (*DATA, *K, *H, "--memory", "lots"), "bad_option", ("'lots'",), "500MB"),
    Case("no thread", ok, (*DATA, *K, *H, "--threads", 0), "bad_option", ("0",), "--threads 1"),
    Case(
        "unknown solver", ok, (*DATA, *K, *H, "--solver", "adm"), "bad_option", ("'adm'",), "admm"
    ),
    Case(
        "unknown method", ok, (*DATA, *K, *H, "--method", "svd"), "bad_option", ("'svd'",), "gram"
    ),
    Case(
        "unknown precision",
        ok,
        (*DATA, *K, *H, "--precision", "f2"),
        "bad_option",
        ("'f2'",),
        "float32",
    ),
    Case("rho", ok, (*DATA, *K, *H, "--rho", 0.5), "bad_option", ("--rho",), "at least 1"),
    Case("mu0", ok, (*DATA, *K, *H, "--mu0", "nan"), "bad_option", ("--mu0",), "above 0"),
    Case("tol", ok, (*DATA, *K, *H, "--tol", 2), "bad_option", ("--tol",), "between"),
    Case(
        "factor missing",
        ok,
        (*DATA, *K, *H, "--factor", "factor.zarr"),
        "not_found",
        ("factor.zarr",),
        "kmufs-stream decompose",
    ),
    Case(
        "not a factor",
        datasets,
        (*TWO, *K, *H, "--variable", "logs", "--factor", "none.zarr"),
        "not_a_factor",
        ("none.zarr",),
        "kmufs-stream decompose",
    ),
    Case("plan", lambda p: None, ("plan", "nothing", *K, *H), "not_found", ("nothing",), "path"),
    Case(
        "decompose k",
        ok,
        ("decompose", "data.zarr", "--k", 7, "--out", "f"),
        "bad_k",
        ("k is 7",),
        "--k 6 or less",
    ),
    Case(
        "decompose into the input",
        ok,
        ("decompose", "data.zarr", "--k", 2, "--out", "data.zarr/f"),
        "output_is_input",
        ("overlaps the input",),
        "another --out",
    ),
    Case("no k", ok, (*DATA, *H), "usage", ("--k",), "kmufs-stream select --help"),
    Case("k in words", ok, (*DATA, "--k", "ten", *H), "usage", ("'--k'",), "select --help"),
    Case(
        "threads in words", ok, (*DATA, *K, *H, "--threads=two"), "usage", ("--threads",), "--help"
    ),
    Case("tol in words", ok, (*DATA, *K, *H, "--tol", "low"), "usage", ("'--tol'",), "--help"),
    Case("no data", ok, ("select", *K, *H), "usage", ("DATA",), "select --help"),
    Case("misspelt option", ok, (*DATA, *K, *H, "--outt", "x"), "usage", ("--out",), "--help"),
    Case(
        "no command",
        ok,
        ("data.zarr", *K, *H),
        "usage",
        ("'data.zarr'",),
        "See kmufs-stream --help.",
    ),
    Case(
        "misspelt command",
        ok,
        ("selec", "data.zarr"),
        "usage",
        ("'selec'",),
        "See kmufs-stream --help.",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_a_request_that_cannot_be_met(case: Case, cli: Cli, folder: Path) -> None:
    case.make(folder)
    before = contents(folder)

    done = cli(*case.arguments)
    assert (done.code, done.out) == (2, ""), done
    message, *remedy = done.err.splitlines()
    assert message.startswith("Error: ")
    for part in case.says:
        assert part in message
    assert case.remedy in " ".join(remedy)
    assert "Traceback" not in done.err

    machine = cli(*case.arguments, "--json")
    assert (machine.code, machine.err) == (2, "")
    document = machine.json()
    assert document.keys() == {"error"}
    assert document["error"]["code"] == case.code
    assert message == f"Error: {document['error']['message']}"
    assert case.remedy in document["error"]["remedy"]

    assert contents(folder) == before


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder closed even to root")
def test_a_folder_that_cannot_be_written_to(cli: Cli, table: Path) -> None:
    done = cli("select", table, *K, *H, "--out", "/proc/result.zarr")
    assert done.code == 2
    assert "The folder /proc of the output cannot be written to." in done.err


def test_a_corrupt_chunk_is_named(cli: Cli, table: Path, folder: Path) -> None:
    (table / "c" / "3" / "0").write_bytes(b"not a chunk")
    before = contents(folder)
    for command in (("select", table, *K, *H), ("decompose", table, *K, "--out", "f.zarr")):
        done = cli(*command)
        assert (done.code, done.out) == (1, "")
        assert f"chunk c/3/0 of {folder / table} cannot be read" in done.err
        assert "Traceback" not in done.err
        assert cli(*command, "--json").json()["error"]["code"] == "corrupt_chunk"
    assert contents(folder) == before


def test_a_missing_chunk_is_named(cli: Cli, table: Path, folder: Path) -> None:
    (table / "c" / "2" / "0").unlink()
    before = contents(folder)
    done = cli("select", table, *K, *H)
    assert (done.code, done.out) == (1, "")
    assert f"chunk c/2/0 of {folder / table} is not there" in done.err
    assert "--fill-missing-chunks" in done.err
    assert contents(folder) == before


def explode(*arguments: object, **options: object) -> None:
    raise ZeroDivisionError("over\nlines")


def test_the_unexpected_is_told_in_one_line(
    cli: Cli, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kmufs_stream.selection, "select", explode)
    done = cli("select", table, *K, *H)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "Error: Something unexpected broke: ZeroDivisionError: over lines\n"
        "  Run again with --debug to see where.\n"
    )
    assert cli("select", table, *K, *H, "--json").json()["error"]["code"] == "unexpected"
    debugged = cli("select", table, *K, *H, "--debug")
    assert debugged.code == 1
    assert "Traceback" in debugged.err
    assert "in explode" in debugged.err


def test_memory_that_runs_out_is_told_as_such(
    cli: Cli, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grow(*arguments: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr(kmufs_stream.selection, "select", grow)
    done = cli("select", table, *K, *H, "--json")
    assert done.code == 1
    assert done.json()["error"]["code"] == "out_of_memory"


def test_a_known_error_has_a_traceback_with_debug_only(cli: Cli) -> None:
    done = cli("select", "nothing", *K, *H, "--debug", "--json")
    assert done.code == 2
    assert "Traceback" in done.err
    assert done.json()["error"]["code"] == "not_found"


def test_real_processes_end_with_the_promised_codes(shell: Cli, table: Path) -> None:
    done = shell("select", table, *K, *H)
    assert (done.code, done.err) == (0, "")
    refused = shell("select", table, *K, *H)
    assert (refused.code, refused.out) == (2, "")
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
    for command in ("select", "plan", "decompose", "demo", "report", "info"):
        assert f"kmufs-stream {command}" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_told(shell: Cli, table: Path) -> None:
    command = [sys.executable, "-m", "kmufs_stream_cli", "plan", str(table), "--k", "2", "--h", "3"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment()
        )
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_has_gone_is_no_traceback(table: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "kmufs_stream_cli", "plan", str(table), "--k", "2", "--h", "3"]
    done = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, text=True, env=environment()
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize(("stage", "number"), [("read", signal.SIGINT), ("take", signal.SIGTERM)])
def test_an_interrupt_leaves_nothing_partial(
    stage: str,
    number: signal.Signals,
    cli: Cli,
    table: Path,
    folder: Path,
    gate: Gate,
) -> None:
    assert cli("select", table, *K, *H).code == 0  # an older result, to be kept
    before = contents(folder)
    arguments = ["select", "data.zarr", "--k", "2", "--h", "4", "--overwrite"]
    if stage == "take":
        arguments.append("--json")
    process = begun(0, *arguments, gate=gate, before=stage)
    process.until(gate.reached.exists)
    if stage == "take":
        assert contents(folder) != before  # the new result is under way
    process.send(number)
    gate.opened.touch()
    done = ended(process)
    assert done.code == 130, done
    if stage == "take":
        assert done.json()["error"]["code"] == "interrupted"
        assert "kmufs-stream select data.zarr --k 2 --h 4" in done.json()["error"]["remedy"]
        assert done.err == ""
    else:
        assert done.out == ""
        assert "Interrupted; no partial output is left." in done.err
        assert "type: kmufs-stream select data.zarr --k 2 --h 4 --overwrite" in done.err
        assert "Traceback" not in done.err
    assert contents(folder) == before


@pytest.mark.parametrize("path", ["", " "])
@pytest.mark.parametrize("command", [("info",), ("evaluate",), ("plan", "--k", 3, "--h", 2)])
def test_empty_paths(cli: Cli, command: tuple[str, ...], path: str) -> None:
    done = cli(command[0], path, *command[1:])
    assert done.code == 2
    assert f"The path {path!r} is empty" in done.err


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
    told = cli("info", "n\nl.zarr")
    assert told.out.startswith(r"n\nl.zarr: a kmufs-stream selection")
    assert r"no\nne.zarr does not exist" in cli("info", "no\nne.zarr").err
    other = cli("plan", "data.zarr", "--variable", "y", "--sample-dims", "q\nr", "--k", 2, "--h", 2)
    assert len(other.err.splitlines()) == 2
    options = ("--feature-labels", "b", "--features", "p\n", "--k", 2, "--h", 2)
    assert r"Did you mean 'p\nq'?" in cli("plan", "data.zarr", *options).err


@pytest.mark.parametrize(
    "words",
    [
        "select data.zarr --k 3 --h 5 --out memory://a.zarr",
        "select data.zarr --k 3 --h 5 --checkpoint memory://a",
        "select data.zarr --k 3 --h 5 --anndata-out memory://a.zarr",
        "decompose data.zarr --k 3 --out simplecache::memory://a.zarr",
        "update factor.zarr --with data.zarr --out memory://a.zarr",
        "apply a.zarr data.zarr --out memory://a.zarr",
        "rechunk data.zarr memory://a.zarr",
        "convert data.csv memory://a.zarr",
    ],
)
def test_an_output_that_ends_with_the_process(cli: Cli, words: str) -> None:
    done = cli(*words.split())
    assert done.code == 2
    assert "memory of this process" in done.err
    assert "Give a path, or an address" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("select none.h5ad --k 2 --h 2", "or an AnnData file (.h5ad)"),
        ("select text.h5ad --k 2 --h 2", "neither AnnData (HDF5) nor a zipped Zarr store"),
        ("select other.h5ad --k 2 --h 2", "Write one with anndata (write_h5ad)"),
        ("plan s3://b/x --k 2 --h 2 --storage-option headers=abc", "storage options headers: Typ"),
    ],
)
def test_what_is_meant_is_told(cli: Cli, folder: Path, words: str, said: str) -> None:
    (folder / "text.h5ad").write_text("none")
    with h5py.File(folder / "other.h5ad", "w") as made:
        made["a"] = [1, 2]
    done = cli(*words.split())
    assert (done.code, done.out) == (2, "")
    assert said in " ".join(done.err.split())


def test_one_of_anything_is_one(cli: Cli, folder: Path) -> None:
    spoilt(nan=(3, 2))(folder)
    assert "1 value in 1 of 6 features is missing" in cli("select", "data.zarr", *K, *H).err
    said = cli("select", "data.zarr", *K, "--h", 9).err
    assert "h is 9, but the number of features is 6." in said


def test_names_in_backticks_are_left_as_they_are(cli: Cli, folder: Path) -> None:
    tables = dict.fromkeys(("`h=3`", "`k`"), (("n", "p"), X))
    xr.Dataset(tables).to_zarr("two.zarr", consolidated=False)
    listing = "two.zarr holds 2 tables: `h=3` (60, 6) float64, `k` (60, 6) float64."
    assert listing in cli("select", "two.zarr", *K, *H).err
    assert cli("select", "two.zarr", *K, *H, "--json").json()["error"]["message"] == listing
    assert "x `k=3`.zarr does not exist." in cli("select", "x `k=3`.zarr", *K, *H).err
    one = xr.DataArray(X, dims=("n", "p"), name="x", coords={"`h=3`": ("n", np.arange(60) % 3)})
    one.to_zarr("one.zarr", consolidated=False)
    asked = ("select", "one.zarr", *K, *H, "--out", "`k=3`")
    assert cli(*asked).code == 0
    again = cli(*asked).err
    assert "The output `k=3` exists." in again
    assert "Say --overwrite" in again
    assert "Along the samples are: `h=3`." in cli("evaluate", "`k=3`", "--labels", "h=3").err

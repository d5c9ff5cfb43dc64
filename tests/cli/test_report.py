"""kmufs-stream report and info, as they are typed."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import xarray as xr
from commands import Cli

from kmufs_stream import __version__
from kmufs_stream_cli.typed import remember, typed


def test_select_report_info(cli: Cli, genes: Path, folder: Path) -> None:
    select = ("select", genes, "--k", 3, "--h", 4, "--solver", "css", "--out", "a b.zarr")
    assert cli(*select).code == 0
    run = cli("report", "a b.zarr", "--png", "all.png")
    assert run.code == 0, run.err
    assert run.err == ""
    assert "a b.report.html" in run.out
    assert "time" in run.out
    typed = shlex.join(["kmufs-stream", *map(str, select)])
    page = (folder / "a b.report.html").read_text()
    for command in (typed, "kmufs-stream report 'a b.zarr' --png all.png"):
        assert command.replace("'", "&#39;") in page
    assert (folder / "all.png").read_bytes().startswith(b"\x89PNG")
    told = cli("info", "a b.zarr")
    assert told.code == 0
    assert typed in told.out
    assert "a b.zarr: a kmufs-stream selection" in told.out
    found = cli("info", "a b.zarr", "--json").json()
    assert found["command"] == typed
    with xr.open_zarr("a b.zarr") as root:
        assert found["outcome"]["objective"] == root.attrs["objective"]


@pytest.mark.usefixtures("hasty")
def test_report_json_and_refusals(cli: Cli, genes: Path, folder: Path) -> None:
    assert cli("decompose", genes, "--k", 3, "--out", "f.zarr").code == 0
    with open("s.json", "w") as file:
        file.write(cli("sweep", "f.zarr", "--k", 3, "--h", "2:6:2", "--json").out)
    assert "kmufs-stream report shows them" in cli("info", "s.json").err
    done = cli("report", "s.json", "--out", "s.html", "--json").json()
    assert done.pop("seconds")["total"] > 0
    assert done.pop("peak_rss_bytes") > 0
    assert done == {
        "version": __version__,
        "output": "s.html",
        "bytes": (folder / "s.html").stat().st_size,
        "images": [],
        "results": 0,
        "sweeps": 1,
    }
    again = cli("report", "s.json", "--out", "s.html").refused()
    assert "s.html exists" in again.err
    assert "--overwrite" in again.err
    assert cli("report", "s.json", "--out", "s.html", "--overwrite").code == 0
    assert "not a selection" in cli("report", "f.zarr", "--out", "r.html").refused().err
    assert cli("info", genes, "--json").refused().json()["error"]["code"] == "not_ours"
    assert "f.zarr: a kmufs-stream factor" in cli("info", "f.zarr").out


@pytest.mark.usefixtures("hasty")
def test_a_page_is_named_after_what_it_shows(cli: Cli, table: Path) -> None:
    for name in ("a.zarr", "b.zarr"):
        assert cli("select", table, "--k", 2, "--h", 3, "--out", name).code == 0
    assert cli("sweep", table, "--k", 2, "--h", 3, "--csv", "s.csv").code == 0
    assert "kmufs-stream report shows them" in cli("info", "s.csv").err
    pages = [(("a.zarr",), "a.report.html"), (("s.csv",), "s.report.html")]
    for results, page in [*pages, (("a.zarr", "b.zarr", "s.csv"), "report.html")]:
        assert cli("report", *results, "--json").json()["output"] == page
        assert f"{page} exists" in cli("report", *results).err


def test_passwords_are_not_kept(cli: Cli, table: Path) -> None:
    remember(["kmufs-stream", "select", "https://me:secret@host/x?sig=secret", "s3://a/b"])
    assert typed() == "kmufs-stream select 'https://***@host/x?***' s3://a/b"

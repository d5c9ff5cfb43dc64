"""The command line on S3, with a server on this machine: killed, resumed, refused, in a cluster."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from commands import Cli, Gate, begun
from helpers import Bucket, planted, same_result, write_bare
from processes import Begun

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def there(bucket: Bucket, folder: Path) -> str:
    """The address of a bare array, 400 x 30 in 8 chunks; it is in the folder too."""
    write_bare(folder / "data.zarr", planted(400, 30, dtype=np.float32), chunks=(50, 30))
    return bucket.put(folder / "data.zarr")


def test_killed_and_resumed(there: str, bucket: Bucket, here: Cli, gate: Gate) -> None:
    table = ("--k", 3, "--h", 5, "--method", "lanczos", "--threads", 2)
    assert here("select", "data.zarr", *table, "--out", "local.zarr").code == 0

    remote = (there, *table, "--out", bucket.at("sel.zarr"), "--checkpoint", bucket.at("kept"))
    process = begun(0.02, "select", *remote, gate=gate)
    process.until(lambda: any(name.endswith(".state") for name in bucket.objects("kept")))
    process.send(signal.SIGKILL)  # in mid-run
    assert process.end() == -signal.SIGKILL
    assert bucket.objects("sel.zarr") == []

    again = here("select", *remote).refused()
    assert f"{bucket.at('kept')} is the checkpoint of a run that did not end" in again.err
    resumed = here("select", *remote, "--resume", "--json")
    assert resumed.code == 0, resumed
    assert resumed.err.startswith(f"going on from the checkpoint {bucket.at('kept')}: ")
    assert resumed.json()["output"] == bucket.at("sel.zarr")
    same_result(bucket.at("sel.zarr"), "local.zarr")
    assert {name.partition("/")[0] for name in bucket.objects()} == {"data.zarr", "sel.zarr"}


@pytest.mark.usefixtures("hasty")
def test_every_command_takes_addresses(
    there: str, bucket: Bucket, cli: Cli, s3_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("select", "data.zarr", "--k", 3, "--h", 5, "--out", "local.zarr").code == 0
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    where = ("--storage-option", f"endpoint_url={s3_server}")
    factor, out = bucket.at("factor.zarr"), bucket.at("sel.zarr")
    done = cli("decompose", there, "--k", 3, "--out", factor, *where).ok()
    again = f"--storage-option endpoint_url={s3_server}"
    assert again in done.words()
    assert cli("plan", there, "--k", 3, "--h", 5, "--factor", factor, *where).code == 0
    run = cli("select", there, "--k", 3, "--h", 5, "--out", out, "--factor", factor, *where)
    assert run.code == 0, run
    swept = cli("sweep", factor, "--k", 2, "--h", 5, *where)
    assert f"kmufs-stream select {there} --k 2 --h 5 --solver admm --factor {factor} {again}" in (
        swept.out
    )
    assert cli("evaluate", out, "--json", *where).json()["source"] == out
    for command in (
        ("apply", out, there, "--out", bucket.at("applied.zarr")),
        ("rechunk", there, bucket.at("rows.zarr")),
        ("select", there, "--k", 3, "--h", 4, "--out", out, "--overwrite"),
    ):
        done = cli(*command, *where).ok()
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    np.testing.assert_array_equal(
        xr.open_zarr(bucket.at("applied.zarr"))["data"], xr.open_zarr("local.zarr")["data"]
    )
    assert xr.open_zarr(out).sizes["feature"] == 4


@pytest.mark.slow
def test_workers_read_and_write_there(there: str, bucket: Bucket, shell: Cli, cli: Cli) -> None:
    assert cli("select", there, "--k", 3, "--h", 5, "--out", "local.zarr").code == 0
    done = shell(
        *("select", there, "--k", 3, "--h", 5, "--out", bucket.at("sel.zarr")),
        *("--workers", 2, "--checkpoint", bucket.at("kept")),
    )
    assert done.code == 0, done
    assert re.fullmatch("cluster dashboard: .*\n", done.err)  # and of no worker anything
    same_result(bucket.at("sel.zarr"), "local.zarr")


@pytest.mark.parametrize(
    ("data", "option", "says"),
    [
        ("s3://me:sesame@bucket/x", "anon=true", "holds credentials"),
        ("https://me:sesame@host/x", "anon=true", "holds credentials"),
        ("s3://bucket/x", "secret=sesame", "secret holds a credential"),
        ("s3://bucket/x", "aws_access_key_id=sesame", "aws_access_key_id holds a credential"),
        ("s3://bucket/x", 'client_kwargs={"aws_session_token": "sesame"}', "aws_session_token"),
        ("s3://bucket/x", "endpoint_url=http://me:sesame@host", "endpoint_url holds a credential"),
        ("s3://bucket/x", "sesame", "names no value"),
    ],
)
def test_credentials_are_not_typed(cli: Cli, data: str, option: str, says: str) -> None:
    done = cli("plan", data, "--k", 3, "--h", 5, "--storage-option", option).refused()
    assert says in done.err
    assert "KEY=VALUE" in done.err or "sesame" not in done.err


WITHOUT_S3FS = """
import sys
from kmufs_stream_cli import main
sys.modules["s3fs"] = None
sys.exit(main(["plan", "s3://bucket/x", "--k", "3", "--h", "5"]))
"""


def test_without_s3fs_the_extra_is_named(folder: Path) -> None:
    process = Begun(exec, WITHOUT_S3FS, {})
    assert process.end() == 2
    _, err = process.said()
    assert "pip install s3fs\n" in err
    assert "Traceback" not in err

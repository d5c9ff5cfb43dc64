"""Beside the tests' own helpers, so that pytest makes them importable from every folder here.

The examples are not installed: they come from the checkout, behind everything that is.
"""

from __future__ import annotations

import gc
import itertools
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from helpers import SMALL_BLOCK, Bucket
from nightly.tally import table
from threadpoolctl import threadpool_limits

from kmufs_stream.streaming.planning import sizing

sys.path.append(str(Path(__file__).parents[1]))

_numbers = itertools.count()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Run single files in one process: to start workers takes longer than most files."""
    return 0 if all(".py" in named for named in config.args) else None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show the counts of trials. Here, as xdist's first process loads no folder's conftest."""
    if lines := table(itertools.chain.from_iterable(terminalreporter.stats.values())):
        terminalreporter.section("trials")
        terminalreporter.write_line("\n".join(lines))


@pytest.fixture(scope="session", autouse=True)
def one_blas_thread() -> Iterator[None]:
    """For what tests compute themselves: neither time nor last bits hang on how busy the cores are.

    The library's stages set their own numbers.
    """
    with threadpool_limits(limits=1):
        yield


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of an S3 server on this machine: moto's, of S3 alone, which is faster."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
        from werkzeug.serving import make_server
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server(
        "127.0.0.1", 0, create_backend_app("s3"), threaded=True, request_handler=MotoRequestHandler
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    Bucket.forget()  # clients of whatever the environment named before
    yield f"http://{server.host}:{server.port}"
    server.shutdown()
    thread.join()
    server.server_close()
    with warnings.catch_warnings():  # they leave their connections to the garbage collector
        warnings.simplefilter("ignore")
        Bucket.forget()
        gc.collect()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables are read in many blocks, of a chunk each where that is larger."""
    monkeypatch.setattr(sizing, "BLOCK_BYTES", SMALL_BLOCK)
    monkeypatch.setattr(sizing, "LARGE_BLOCK_BYTES", SMALL_BLOCK)


@pytest.fixture(scope="session")
def quick_workers() -> Iterator[None]:
    """Dask's worker processes are forked from one that has imported everything."""
    from processes import forking

    forking()
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        yield


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A new bucket, whose server and credentials are found in the environment.

    fsspec keeps the clients that it makes, for all tests: garbage is collected once, not for each.
    """
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a-key-of-the-tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sesame-open")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return Bucket(f"bucket-{next(_numbers)}")

"""Beside the tests' own helpers, so that pytest makes them importable from every folder here.

The examples are not installed: they come from the checkout, behind everything that is.
"""

from __future__ import annotations

import gc
import itertools
import logging
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from helpers import Bucket

sys.path.append(str(Path(__file__).parents[1]))

_numbers = itertools.count()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of an S3 server on this machine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from moto.server import ThreadedMotoServer
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server: Any = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    Bucket.forget()  # clients of whatever the environment named before
    yield f"http://{host}:{port}"
    server.stop()
    with warnings.catch_warnings():  # they leave their connections to the garbage collector
        warnings.simplefilter("ignore")
        Bucket.forget()
        gc.collect()


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

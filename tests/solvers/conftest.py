"""One BLAS thread: the oracle's path must not depend on how busy the machine is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kmufs_stream import blas


@pytest.fixture(scope="module", autouse=True)
def one_blas_thread() -> Iterator[None]:
    with blas.one_thread():
        yield

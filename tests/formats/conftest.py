"""Several blocks even of small tables."""

from __future__ import annotations

import pytest

from kmufs_stream.formats import blocks, csv, mtx


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "CHUNK_BYTES", 40 * 8 * 8)
    monkeypatch.setattr(csv, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(mtx, "ENTRIES", 61)

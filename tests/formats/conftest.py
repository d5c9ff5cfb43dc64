"""Several blocks even of small tables."""

from __future__ import annotations

import pytest

from kmufs_stream.formats import blocks, csv, mtx


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "CHUNK_BYTES", 40 * 8 * 8)
    monkeypatch.setattr(csv, "LOOK_FIELDS", 1)
    monkeypatch.setattr(csv, "LOOK_ROWS", 50)
    monkeypatch.setattr(mtx, "ENTRIES", 61)

"""Zarr stores: what tells one, and xarray without warnings that a user can do nothing about."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path

MARKS = ("zarr.json", ".zgroup", ".zarray")


def is_zarr(folder: Path) -> bool:
    """Whether a folder is a Zarr store, or a part of one."""
    return any((folder / mark).exists() for mark in MARKS)


@contextlib.contextmanager
def opened_quietly() -> Iterator[None]:
    """Unconsolidated metadata and dtypes without a stable specification read well all the same."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Failed to open Zarr store with consolidated")
        warnings.filterwarnings("ignore", message=".*does not have a Zarr V3 specification")
        yield


@contextlib.contextmanager
def written_quietly() -> Iterator[None]:
    """Consolidated metadata are written on purpose: xarray opens such stores without warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Consolidated metadata is currently not part")
        warnings.filterwarnings("ignore", message=".*does not have a Zarr V3 specification")
        yield

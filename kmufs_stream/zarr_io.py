"""xarray and zarr without warnings that a user can do nothing about."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator


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

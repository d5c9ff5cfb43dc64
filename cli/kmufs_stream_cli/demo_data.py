"""Data for the demo: scikit-learn's hand-written digits, made tall, as a Zarr store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import xarray as xr

SIDE = 8  # pixels
COPIES = 20
CHUNK_ROWS = 4096


def write_digits(path: Path) -> bool:
    """Images x pixels, every image ``COPIES`` times; pixel names label the features.

    What is there already is left as it is, and factors of it stay so. Returns whether it was not.

    The digit that an image shows is stored beside it. The selection never sees it: it is there
    for judging what was chosen.
    """
    import numpy as np
    import xarray as xr
    from sklearn.datasets import load_digits

    from kmufs_stream.storage.output import new_zarr

    digits = load_digits()
    pixels = np.tile(digits.data.astype(np.uint8), (COPIES, 1))
    images = xr.DataArray(
        pixels,
        dims=("image", "pixel"),
        coords={
            "image": np.arange(len(pixels)),
            "pixel": digits.feature_names,
            "digit": ("image", np.tile(digits.target.astype(np.int8), COPIES)),
        },
        attrs={"long_name": "ink", "source": "sklearn.datasets.load_digits"},
        name="pixels",
    )
    data = images.to_dataset()
    if _is_there(path, data):
        return False
    with new_zarr(path, overwrite=True) as store:
        encoding = {"pixels": {"chunks": (CHUNK_ROWS, SIDE * SIDE)}}
        data.to_zarr(store, mode="w", encoding=encoding, consolidated=False)
    return True


def _is_there(path: Path, data: xr.Dataset) -> bool:
    """Whether a store holds these data, and can be read."""
    import xarray as xr

    try:
        with xr.open_zarr(path) as stored:
            return bool(stored.equals(data))
    except Exception:  # nothing there, or damaged: it is written
        return False


def picture(marks: Mapping[int, str]) -> list[str]:
    """The pixels as lines of text: the mark of each, a dot where it has none."""
    cells = [marks.get(i, ".").rjust(3) for i in range(SIDE * SIDE)]
    return ["".join(cells[i : i + SIDE]) for i in range(0, len(cells), SIDE)]

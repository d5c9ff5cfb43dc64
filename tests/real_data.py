"""Real data sets, in ``shared/data`` beside the checkout; tests skip those that are absent.

Each ``.npz`` holds X (samples x features) and y (classes from 0):

- ``HARS_3000``: UCI Human Activity Recognition, the first 500 of each class, 3000 x 561
- ``MicroMass_mixed360``: UCI MicroMass (OpenML 1514), the mixed spectra, 360 x 1300
- ``MNIST_first3468``: the first 3468 digits of MNIST, 3468 x 784
- ``DNA_statlog``: StatLog DNA, 3186 x 180

Of AnnData there are ``10x_pbmc68k_reduced.h5ad``, from scanpy's package, and
``10x-10k-subset.zarr``, from its tests.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data"


def load(name: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """X (samples x features, float64) and y of ``<name>.npz``."""
    path = FOLDER / f"{name}.npz"
    if not path.is_file():
        pytest.skip(f"real data set {path.name} is not in {FOLDER}")
    with np.load(path) as stored:
        return stored["X"].astype(np.float64), stored["y"].astype(np.int64)

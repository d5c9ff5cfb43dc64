"""Real data sets, in ``shared/data`` beside the checkout; tests skip those that are absent.

Its README tells where they are from. Each ``.npz`` holds X (samples x features) and y (classes).
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

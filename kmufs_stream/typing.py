"""Arrays by the kind of number that they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Bool = NDArray[np.bool_]
Float = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
"""float32 or float64, as block products take them."""
Int = NDArray[np.int64]

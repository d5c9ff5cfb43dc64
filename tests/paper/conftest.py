"""Small data for the tests of the paper's experiments."""

import numpy as np
import pytest

from examples.paper.sets import Labelled, labelled


@pytest.fixture(scope="session")
def data() -> Labelled:
    """Three clusters that the first six features tell apart; the last feature is constant."""
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = rng.standard_normal((90, 24))
    X[:, :6] += 5 * rng.choice([-1, 0, 1], (3, 6))[y] + 6 * np.eye(3, 6)[y]
    X[:, -1] = 7.0
    return labelled("blobs", X, y)

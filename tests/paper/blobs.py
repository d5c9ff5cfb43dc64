"""Small data for the tests of the paper's experiments."""

import numpy as np

from examples.paper.sets import Labelled, labelled

USEFUL = 6  # features that tell the clusters apart; the others are noise


def blobs(n: int = 90, p: int = 24, seed: int = 0) -> Labelled:
    """Three clusters that the first features tell apart; the last feature is constant."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = rng.standard_normal((n, p))
    X[:, :USEFUL] += 5 * rng.choice([-1, 0, 1], (3, USEFUL))[y] + 6 * np.eye(3, USEFUL)[y]
    X[:, -1] = 7.0
    return labelled("blobs", X, y)

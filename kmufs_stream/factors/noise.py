"""What independent features would show, and which features show more than that."""

from __future__ import annotations

import numpy as np
import scipy.special

from kmufs_stream.typing import Bool, Float


def noise_edge(usable: int, samples: int) -> float:
    """The largest eigenvalue that the correlation matrix of independent features would have.

    (1 + sqrt(u / n))^2. Source: Marchenko and Pastur (1967).
    """
    return float((1 + np.sqrt(usable / samples)) ** 2)


def beyond_noise(components: Float, eigenvalues: Float, samples: int) -> Bool:
    """Which features vary with the components above the noise edge more than noise would.

    A component of eigenvalue lambda explains of an independent feature (l / (l - 1))^2 / n of its
    variance, times a chi-squared number; lambda = l + (u / n) l / (l - 1). Over components these
    numbers add up, and about one of u independent features exceeds by chance what is asked here.
    Where no component is above the edge no feature is found.

    Parameters
    ----------
    components : (u, k) float64, P_k.
    eigenvalues : (k,) float64, of the correlation matrix, falling.
    samples : n.

    Returns (u,) bool. O(u k). Source: Johnstone and Paul, "PCA in high dimensions: an orientation"
    (2018), on spiked covariance matrices.
    """
    u = len(components)
    values = eigenvalues[eigenvalues > noise_edge(u, samples)]
    if not len(values):
        return np.zeros(u, np.bool_)
    middle = 1 + values - u / samples
    spikes = (middle + np.sqrt(np.maximum(middle**2 - 4 * values, 0))) / 2
    expected = (spikes / (spikes - 1)) ** 2 / samples
    found = components[:, : len(values)] ** 2 @ (values / expected)
    return np.asarray(found > scipy.special.chdtri(len(values), 1 / u), np.bool_)

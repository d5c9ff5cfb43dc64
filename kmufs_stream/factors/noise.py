"""The spectrum of independent features, and which features vary beyond it."""

from __future__ import annotations

import numpy as np
import scipy  # loads its parts when they are used

from kmufs_stream.typing import Bool, Float


def noise_edge(usable: int, samples: int) -> float:
    """Return the largest eigenvalue of the correlation matrix of independent features.

    (1 + sqrt(u / n))^2, Marchenko and Pastur (1967).
    """
    return float((1 + np.sqrt(usable / samples)) ** 2)


def beyond_noise(components: Float, eigenvalues: Float, samples: int) -> Bool:
    """Find features that vary with the components above the noise edge more than noise would.

    Takes P_k, (u, k), and the k leading eigenvalues of the correlation matrix; returns (u,) bool.
    A component of eigenvalue lambda = l + (u / n) l / (l - 1) explains (l / (l - 1))^2 / n of the
    variance of an independent feature, times a chi-squared variable. These add up over components;
    about one of u independent features exceeds the threshold by chance. No feature is found where
    no component is above the edge. Source: Johnstone and Paul, "PCA in high dimensions: an
    orientation" (2018), on spiked covariance matrices.
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

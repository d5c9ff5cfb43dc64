"""A factor of rows that arrive in batches, of which only sums and a sample are kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np

from kmufs_stream.factors.factor import Factor, RowSample, check_rank
from kmufs_stream.factors.methods.gram import leading_of_gram, state_of
from kmufs_stream.factors.methods.screening import CONSTANT, standardise
from kmufs_stream.options import Screening
from kmufs_stream.streaming.kernels.gram import Gram, GramState
from kmufs_stream.streaming.kernels.sample import sample_size, smallest_hashes
from kmufs_stream.streaming.kernels.scaling import Precision, Scaling
from kmufs_stream.system import blas
from kmufs_stream.typing import Array


@dataclass
class Batches:
    """Gram matrix and row sample of all rows so far: 8 p^2 bytes, and at most 256 MB of rows.

    The sample is the one that :func:`kmufs_stream.decompose` would take of all rows.
    """

    scaling: Scaling  # of the products, in float64
    state: GramState
    sample: RowSample
    precision: Precision  # of the least precise products in the state

    @classmethod
    def before(cls, first: Array) -> Self:
        """Start without rows, with the shift and scale of a first batch, (rows, p), rows > 0."""
        scaling = Scaling.from_probe(first.astype(np.float64), "float64")
        sample = RowSample(np.empty(0, np.int64), [first[:0]])
        return cls(scaling, Gram(scaling).init(), sample, "float64")

    @classmethod
    def after(cls, factor: Factor) -> Self:
        """Start with the rows of a factor that holds their correlation matrix.

        Raises ValueError if other than constant features were excluded: what
        further rows change of these is not known.
        """
        if set(factor.features.excluded) - {CONSTANT} or factor.features.missing.any():
            raise ValueError("features were left out of the factor, or values are missing")
        features = factor.features
        constant = features.excluded.get(CONSTANT, features.usable[:0])
        double = np.dtype(np.float64)
        scaling = Scaling.about(features.mean, features.std, constant, double, "float64")
        return cls(scaling, state_of(factor, scaling), factor.sample, factor.precision)

    def add(self, batch: Array) -> None:
        """Add rows, (rows, p). O(rows p^2)."""
        seen = self.state.moments.count
        index = np.concatenate([self.sample.index, np.arange(seen, seen + len(batch))])
        values = np.concatenate([self.sample.values, batch])
        keep = smallest_hashes(index, sample_size(len(index), values[:1].nbytes))
        self.sample = RowSample(index[keep], [values[keep]])
        with blas.all_cores():
            self.state = Gram(self.scaling).update(self.state, batch.astype(np.float64), seen)

    def factor(self, k: int) -> Factor:
        """Compute the factor of all rows so far for k clusters. O(p^3).

        Raises RequestError as :func:`kmufs_stream.decompose` does.
        """
        # A copy, as the state is overwritten.
        state = GramState(self.state.moments, self.state.scatter.copy())
        standardised = partial(standardise, feature_name="feature {}".format)
        with blas.all_cores():
            leading = leading_of_gram(state, self.scaling, k, standardised)
        factor = Factor(
            **vars(leading),
            k=k,
            sample=self.sample,
            screening=Screening(),
            method="gram",
            precision=self.precision,
            labels=None,
            fingerprint={},
        )
        check_rank(k, factor)
        return factor

"""Choose the features that are standardised: those asked for, that vary and have values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from kmufs_stream.errors import RequestError, Text, counted
from kmufs_stream.options import Screening
from kmufs_stream.streaming.kernels.moments import Moments
from kmufs_stream.streaming.kernels.scaling import Scaling
from kmufs_stream.typing import Array, Bool, Float, Int

ALL_MISSING, MISSING, CONSTANT = "all_missing", "missing", "constant"
LOW_STD, RARE, NOT_ASKED = "low_std", "rare", "not_asked"
NAMED_AT_MOST = 5


@dataclass(frozen=True, eq=False)
class Standardised:
    """The usable features, and the means and deviations that standardise them.

    Attributes
    ----------
    samples : rows that were standardised.
    mean, std : (p,) float64, in the units of the data, ddof 0; NaN where unknown.
    missing : (p,) int64, missing values in those rows.
    usable : (u,) int64, ascending source indices of the features kept.
    excluded : ascending source indices of the features left out, by reason.
    dropped : (d,) int64, ascending rows left out because they miss values.
    nonzero : (p,) int64, values that are not 0 in those rows; None where they were not counted.
    """

    samples: int
    mean: Float
    std: Float
    missing: Int
    usable: Int
    excluded: dict[str, Int]
    dropped: Int
    nonzero: Int | None = None

    @property
    def rows(self) -> int:
        """Rows of the data: samples, and those dropped because they miss values."""
        return self.samples + len(self.dropped)

    @property
    def asked(self) -> Int:
        """Ascending source indices of the features that were asked for."""
        return np.delete(np.arange(len(self.mean)), self.excluded.get(NOT_ASKED, ()))

    def of_all(self, asked: Int, p: int) -> Standardised:
        """Extend from the features ``asked`` for to all p."""

        def extended(values: Array, fill: float) -> Array:
            every = np.full(p, fill, values.dtype)
            every[asked] = values
            return every

        rest = np.delete(np.arange(p), asked)
        excluded = {NOT_ASKED: rest} if len(rest) else {}
        excluded |= {reason: asked[index] for reason, index in self.excluded.items()}
        return replace(
            self,
            mean=extended(self.mean, np.nan),
            std=extended(self.std, np.nan),
            missing=extended(self.missing, 0),
            usable=asked[self.usable],
            excluded=excluded,
            nonzero=None if self.nonzero is None else extended(self.nonzero, 0),
        )

    def of_asked(self) -> Standardised:
        """Restrict to the features asked for: the inverse of :meth:`of_all`."""
        asked = self.asked
        reasons = {r: i for r, i in self.excluded.items() if r != NOT_ASKED}
        return replace(
            self,
            mean=self.mean[asked],
            std=self.std[asked],
            missing=self.missing[asked],
            usable=np.searchsorted(asked, self.usable),
            excluded={r: np.searchsorted(asked, index) for r, index in reasons.items()},
            nonzero=None if self.nonzero is None else self.nonzero[asked],
        )


Standardiser = Callable[[Moments, Scaling, Float], Standardised]
""":func:`standardise`, with all but its first arguments given."""


def standardise(
    moments: Moments,
    scaling: Scaling,
    variance: Float,
    *,
    feature_name: Callable[[int], str],
    screening: Screening | None = None,
    nonzero: Int | None = None,
    dropped: Int | None = None,
) -> Standardised:
    """Derive means, standard deviations and usable features from merged moments.

    Parameters
    ----------
    variance : (p,) variances of (x - shift) / scale, ddof 0, with means for missing values.
    nonzero : (p,) numbers of values that are not 0, where ``screening`` needs them.
    dropped : rows left out of the moments.

    Raises RequestError where values are infinite, or missing against the policy, no feature is
    left, there are fewer than two samples, or a variance is beyond the range of float64.
    """
    screening = screening or Screening()
    dropped = np.empty(0, np.int64) if dropped is None else dropped
    p = len(moments.total)
    check_samples(moments.count, len(dropped))
    _check_finite(moments, screening, feature_name)
    std = scaling.scale * np.sqrt(variance)
    mean = scaling.shift + scaling.scale * moments.mean
    constant = np.zeros(p, bool)
    constant[scaling.unsure] = moments.low == moments.high
    reasons = {ALL_MISSING: moments.present == 0}
    if screening.missing == "drop-features":
        reasons[MISSING] = moments.missing > 0
    reasons[CONSTANT] = constant
    reasons[LOW_STD] = std < screening.min_std
    if nonzero is not None:
        reasons[RARE] = nonzero < screening.min_nonzero * moments.count
    left = np.ones(p, bool)
    excluded = {}
    for reason, meets in reasons.items():
        if (left & meets).any():
            excluded[reason] = np.flatnonzero(left & meets)
            left &= ~meets
    _check_left(left, excluded)
    usable = np.flatnonzero(left)
    lost = usable[~(np.isfinite(std[usable]) & (std[usable] > 0))]
    if len(lost):
        raise RequestError(
            "range",
            f"The variance of {feature_name(int(lost[0]))} is beyond double precision "
            f"(values near {scaling.shift[lost[0]]:g}, in units of {scaling.scale[lost[0]]:g}).",
            "Rescale or drop that feature.",
        )
    mean[constant] = moments.low[moments.low == moments.high]
    std[constant] = 0.0
    unknown = excluded.get(ALL_MISSING, usable[:0])
    mean[unknown] = np.nan
    std[np.concatenate([unknown, excluded.get(MISSING, usable[:0])])] = np.nan
    return Standardised(
        moments.count, mean, std, moments.missing, usable, excluded, dropped, nonzero
    )


def check_samples(count: int, dropped: int = 0) -> None:
    """Raise RequestError for fewer than two samples."""
    if count < 2:
        gone = f", without {dropped:,} that miss a value" if dropped else ""
        raise RequestError(
            "too_few_samples",
            f"The data have {counted(count, 'samples')}{gone}: standardising needs at least two.",
            Text("Say {missing}.", missing="mean")
            if dropped
            else Text("Choose the dimension of the samples by {sample_dims}, or other samples."),
        )


def _check_finite(
    moments: Moments, screening: Screening, feature_name: Callable[[int], str]
) -> None:
    """Refuse infinite values, and missing ones under ``missing='raise'``."""
    missing = np.where(moments.present > 0, moments.missing, 0)
    refused = screening.missing == "raise" and bool(missing.any())
    bad = moments.infinite + missing if refused else moments.infinite
    if not bad.any():
        return
    index = np.flatnonzero(bad)
    first = [f"{feature_name(int(i))}: {bad[i]}" for i in index[:NAMED_AT_MOST]]
    more = f", and {len(index) - len(first)} features more" if len(index) > len(first) else ""
    kinds = ["missing (NaN)"] * refused + ["infinite"] * bool(moments.infinite.any())
    hint = Text("Infinity has no mean: leave those features out with {exclude_features}.")
    if refused:
        hint = Text("Say {missing}, drop-samples or drop-features.", missing="mean")
        if (missing > 0)[moments.present > 0].all():  # no feature would be left
            hint = Text("Say {missing} or drop-samples.", missing="mean")
    raise RequestError(
        "not_finite",
        f"{counted(int(bad.sum()), 'values')} in {len(index):,} of {len(bad):,} features "
        f"{'is' if bad.sum() == 1 else 'are'} {' or '.join(kinds)} ({', '.join(first)}{more}).",
        hint,
    )


def _check_left(left: Bool, excluded: dict[str, Int]) -> None:
    if left.any():
        return
    counts = ", ".join(f"{len(i)} {reason.replace('_', ' ')}" for reason, i in excluded.items())
    raise RequestError(
        "all_constant" if set(excluded) == {CONSTANT} else "no_features",
        f"None of {len(left)} features is left: {counts}.",
        Text(
            "Features that vary are needed: ask for less with {missing}, {min_std} and "
            "{min_nonzero}, or choose others."
        ),
    )

"""A method of computing the factor: how it runs, and what plans need to know of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kmufs_stream.factors.methods.leading import Leading
from kmufs_stream.factors.methods.screening import Standardiser
from kmufs_stream.options import LanczosOptions
from kmufs_stream.streaming.kernels.kernel import Kernel, State
from kmufs_stream.streaming.kernels.scaling import Scaling
from kmufs_stream.streaming.planning.sizing import Cost


@dataclass(frozen=True)
class Problem:
    """What a method has to find, known before anything is read."""

    p: int  # features that take part
    k: int  # clusters
    h: int | None  # features to select: only the h highest scores matter; None: all do
    sparse: bool  # blocks are CSR
    fills: bool  # means may replace missing values
    lanczos: LanczosOptions


class Reads(Protocol):
    """Reads all rows once for each kernel."""

    def __call__(self, kernel: Kernel[State], /) -> State:
        """Return the kernel's state after all rows."""

    @property
    def standardise(self) -> Standardiser:
        """Standardises features from the moments that a read has found."""


@dataclass(frozen=True)
class Method:
    """A method of computing the leading components.

    ``run`` is given a scaling from a probe, without a shift for sparse blocks unless the method
    ``centres``; ``cost`` the rows of a block and the bytes of a number in products;
    ``passed_over`` the number of features.
    """

    run: Callable[[Problem, Reads, Scaling], Leading]
    cost: Callable[[Problem, int, int], Cost]
    passed_over: Callable[[int], str]  # why ``auto`` does not choose the method; "" where it may
    float64: bool = False  # always works in float64
    centres: bool = False  # shifts sparse blocks too, as it makes them dense
    thin: bool = False  # multiplies blocks with few vectors, not with themselves
    of_k: bool = False  # what it reads depends on k and the seed: checkpoints serve no other k

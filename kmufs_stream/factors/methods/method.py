"""What a route to the factor is: the facts that plans follow from, and how it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kmufs_stream.factors.methods.leading import Leading
from kmufs_stream.factors.methods.screening import Standardiser
from kmufs_stream.options import LanczosOptions
from kmufs_stream.streaming.kernels.gram import Kernel, State
from kmufs_stream.streaming.kernels.scaling import Scaling
from kmufs_stream.streaming.planning.sizing import Cost


@dataclass(frozen=True)
class Problem:
    """What a route is to find, as it is known before anything is read.

    Attributes
    ----------
    p : features that take part.
    k : clusters.
    h : features to be chosen: only scores that may be among the h highest matter; None: all do.
    sparse : blocks come as CSR.
    fills : means may stand in for missing values.
    lanczos : options of that route.
    """

    p: int
    k: int
    h: int | None
    sparse: bool
    fills: bool
    lanczos: LanczosOptions


class Read(Protocol):
    """Reads all rows once for each kernel that it is given."""

    def __call__(self, kernel: Kernel[State], /) -> State:
        """The kernel's state after all rows."""


class Reads(Read, Protocol):
    """The same, that knows what takes part, and what becomes of missing values."""

    @property
    def standardise(self) -> Standardiser:
        """Standardises features by what a read has found of them."""


@dataclass(frozen=True)
class Route:
    """One way to the leading components.

    Attributes
    ----------
    run : the leading components; the scaling is of the probe, with no shift for sparse blocks
        unless the route ``centres``.
    cost : its memory and reads, from the rows of a block and the bytes of a number in products.
    passed_over : why ``auto`` does not take it for p features; "" where it may.
    float64 : works in float64, whatever precision is asked for.
    centres : shifts sparse blocks too, which it makes dense.
    thin : multiplies blocks with few vectors, not with themselves.
    of_k : what it reads depends on k and the seed: what is kept of a run serves no other k.
    """

    run: Callable[[Problem, Reads, Scaling], Leading]
    cost: Callable[[Problem, int, int], Cost]
    passed_over: Callable[[int], str]
    float64: bool = False
    centres: bool = False
    thin: bool = False
    of_k: bool = False

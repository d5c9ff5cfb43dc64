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
    """What a method has to find, known before anything is read.

    Attributes
    ----------
    p : features that take part.
    k : clusters.
    h : features to select: only scores that may be among the h highest matter; None: all do.
    sparse : blocks are CSR.
    fills : means may replace missing values.
    lanczos : options of that method.
    """

    p: int
    k: int
    h: int | None
    sparse: bool
    fills: bool
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

    Attributes
    ----------
    run : computes them; the scaling comes from a probe, without a shift for sparse blocks unless
        the method ``centres``.
    cost : memory and reads, from the rows of a block and the bytes of a number in products.
    passed_over : why ``auto`` does not choose the method for p features; "" where it may.
    float64 : always works in float64.
    centres : shifts sparse blocks too, as it makes them dense.
    thin : multiplies blocks with few vectors, not with themselves.
    of_k : what it reads depends on k and the seed, so its checkpoints serve no other k.
    """

    run: Callable[[Problem, Reads, Scaling], Leading]
    cost: Callable[[Problem, int, int], Cost]
    passed_over: Callable[[int], str]
    float64: bool = False
    centres: bool = False
    thin: bool = False
    of_k: bool = False

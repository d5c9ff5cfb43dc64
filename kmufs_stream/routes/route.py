"""What a route to the factor is: the facts that plans follow from, and how it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kmufs_stream.errors import RequestError
from kmufs_stream.factor import Leading
from kmufs_stream.screening import Standardiser
from kmufs_stream.streaming.kernels import Kernel, State
from kmufs_stream.streaming.scaling import Scaling
from kmufs_stream.streaming.sizing import Cost


@dataclass(frozen=True)
class LanczosOptions:
    """When the block Lanczos iteration stops, and its random start.

    Parameters
    ----------
    tol : float, default 1e-4
        A score a_i has settled when neither its last change nor its estimated error is larger.
    max_passes : int, default 12
        Most reads of the data.
    seed : int, default 0
        Of the random start block.

    Raises
    ------
    RequestError
        Values with which the iteration is not defined.
    """

    tol: float = 1e-4
    max_passes: int = 12
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.tol < 1:
            raise RequestError("bad_option", f"`tol` is {self.tol}.", "It must be between 0 and 1.")
        if self.max_passes < 1:
            raise RequestError(
                "bad_option", f"`max_passes` is {self.max_passes}.", "It must be at least 1."
            )
        if self.seed < 0:
            raise RequestError("bad_option", f"`seed` is {self.seed}.", "It must be 0 or more.")


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

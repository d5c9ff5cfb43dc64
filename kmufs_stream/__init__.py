"""Choose, without labels, the h original features that best separate k clusters.

from kmufs_stream import open_matrix, decompose, select

result = select("data.zarr", k=10, h=100, out="chosen.zarr")
result.dataset

What ``__all__`` names is the library's interface and follows semantic versioning; everything else
is internal and may change with any release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmufs_stream.version import __version__

if TYPE_CHECKING:
    from kmufs_stream.application import Application, apply
    from kmufs_stream.conversion import Conversion, convert
    from kmufs_stream.decomposition import decompose
    from kmufs_stream.errors import BrokenError, KmufsError, Option, RequestError, Text
    from kmufs_stream.estimator import KMeansUFS
    from kmufs_stream.evaluation import Evaluation, evaluate
    from kmufs_stream.events import Advanced, Event, Noticed, Planned, Progress, Started
    from kmufs_stream.factors.factor import Factor
    from kmufs_stream.factors.reopening import open_like
    from kmufs_stream.factors.store import load_factor, save_factor
    from kmufs_stream.information import info
    from kmufs_stream.options import (
        AdmmOptions,
        LanczosOptions,
        MethodName,
        MissingPolicy,
        PrecisionName,
        Screening,
        SolverName,
    )
    from kmufs_stream.rechunking import Rechunking, rechunk
    from kmufs_stream.reporting import Report, report
    from kmufs_stream.results.result import Selection
    from kmufs_stream.results.trials import Sweep
    from kmufs_stream.selection import plan_selection, select
    from kmufs_stream.sources import Matrix, open_matrix
    from kmufs_stream.sources.written import is_factor
    from kmufs_stream.streaming.cluster import connected
    from kmufs_stream.streaming.planning.plan import Plan
    from kmufs_stream.sweeping import sweep
    from kmufs_stream.system.memory import peak_memory
    from kmufs_stream.updating import update

__all__ = [
    "AdmmOptions",
    "Advanced",
    "Application",
    "BrokenError",
    "Conversion",
    "Evaluation",
    "Event",
    "Factor",
    "KMeansUFS",
    "KmufsError",
    "LanczosOptions",
    "Matrix",
    "MethodName",
    "MissingPolicy",
    "Noticed",
    "Option",
    "Plan",
    "Planned",
    "PrecisionName",
    "Progress",
    "Rechunking",
    "Report",
    "RequestError",
    "Screening",
    "Selection",
    "SolverName",
    "Started",
    "Sweep",
    "Text",
    "__version__",
    "apply",
    "connected",
    "convert",
    "decompose",
    "evaluate",
    "info",
    "is_factor",
    "load_factor",
    "open_like",
    "open_matrix",
    "peak_memory",
    "plan_selection",
    "rechunk",
    "report",
    "save_factor",
    "select",
    "sweep",
    "update",
]

# Loaded when first asked for: "kmufs-stream --help" must not wait for the scientific stack.
_HOMES = {
    "application": "Application apply",
    "conversion": "Conversion convert",
    "decomposition": "decompose",
    "errors": "BrokenError KmufsError Option RequestError Text",
    "estimator": "KMeansUFS",
    "evaluation": "Evaluation evaluate",
    "events": "Advanced Event Noticed Planned Progress Started",
    "factors.factor": "Factor",
    "factors.reopening": "open_like",
    "factors.store": "load_factor save_factor",
    "information": "info",
    "options": (
        "AdmmOptions LanczosOptions MethodName MissingPolicy PrecisionName Screening SolverName"
    ),
    "rechunking": "Rechunking rechunk",
    "reporting": "Report report",
    "results.result": "Selection",
    "results.trials": "Sweep",
    "selection": "plan_selection select",
    "sources": "Matrix open_matrix",
    "sources.written": "is_factor",
    "streaming.cluster": "connected",
    "streaming.planning.plan": "Plan",
    "sweeping": "sweep",
    "system.memory": "peak_memory",
    "updating": "update",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

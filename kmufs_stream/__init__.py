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
    from kmufs_stream.errors import BrokenError, KmufsError, RequestError
    from kmufs_stream.estimator import KMeansUFS
    from kmufs_stream.evaluation import Evaluation, evaluate
    from kmufs_stream.events import Advanced, Noticed, Planned, Started
    from kmufs_stream.factors.factor import Factor
    from kmufs_stream.factors.store import load_factor, save_factor
    from kmufs_stream.information import info
    from kmufs_stream.options import AdmmOptions, LanczosOptions, Screening
    from kmufs_stream.rechunking import Rechunking, rechunk
    from kmufs_stream.reporting import Report, report
    from kmufs_stream.results.result import Selection
    from kmufs_stream.results.trials import Sweep
    from kmufs_stream.selection import plan_selection, select
    from kmufs_stream.sources import Matrix, open_matrix
    from kmufs_stream.streaming.planning.plan import Plan
    from kmufs_stream.sweeping import sweep
    from kmufs_stream.updating import update

__all__ = [
    "AdmmOptions",
    "Advanced",
    "Application",
    "BrokenError",
    "Conversion",
    "Evaluation",
    "Factor",
    "KMeansUFS",
    "KmufsError",
    "LanczosOptions",
    "Matrix",
    "Noticed",
    "Plan",
    "Planned",
    "Rechunking",
    "Report",
    "RequestError",
    "Screening",
    "Selection",
    "Started",
    "Sweep",
    "__version__",
    "apply",
    "convert",
    "decompose",
    "evaluate",
    "info",
    "load_factor",
    "open_matrix",
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
    "AdmmOptions": "options",
    "Advanced": "events",
    "Application": "application",
    "BrokenError": "errors",
    "Conversion": "conversion",
    "Evaluation": "evaluation",
    "Factor": "factors.factor",
    "KMeansUFS": "estimator",
    "KmufsError": "errors",
    "LanczosOptions": "options",
    "Matrix": "sources",
    "Noticed": "events",
    "Plan": "streaming.planning.plan",
    "Planned": "events",
    "Rechunking": "rechunking",
    "Report": "reporting",
    "RequestError": "errors",
    "Screening": "options",
    "Selection": "results.result",
    "Started": "events",
    "Sweep": "results.trials",
    "apply": "application",
    "convert": "conversion",
    "decompose": "decomposition",
    "evaluate": "evaluation",
    "info": "information",
    "load_factor": "factors.store",
    "open_matrix": "sources",
    "plan_selection": "selection",
    "rechunk": "rechunking",
    "report": "reporting",
    "save_factor": "factors.store",
    "select": "selection",
    "sweep": "sweeping",
    "update": "updating",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])

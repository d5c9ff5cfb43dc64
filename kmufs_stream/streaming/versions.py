"""What a cluster runs has to be what this process runs: else bits differ, or tasks never end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from kmufs_stream.errors import RequestError

if TYPE_CHECKING:
    import distributed

Versions: TypeAlias = Mapping[str, str | None]

AGREEING = ("python", "numpy", "scipy", "zarr", "dask", "distributed", "kmufs_stream")


def running() -> Versions:
    """What this process runs; None for what pip does not know."""
    from distributed.versions import get_versions

    found: Versions = get_versions(AGREEING[1:])["packages"]
    return {name: found[name] for name in AGREEING}


def check_scheduler(client: distributed.Client) -> None:
    """See :func:`check_workers`: the same for the scheduler."""
    from distributed.versions import get_versions

    found = client.run_on_scheduler(get_versions, AGREEING[1:])
    agree("scheduler", found["packages"], running())


def check_workers(client: distributed.Client, addresses: Collection[str]) -> set[str]:
    """Ask workers what they run; those that answered.

    Raises RequestError where one does not run what this process runs. Tasks of another Python, or
    of another release of Dask, may never come to an end, nor do those of a worker that does not
    understand what others send it; another NumPy or SciPy gives other bits.
    """
    from distributed.versions import get_versions

    if not addresses:
        return set()
    # A function of Dask's own, since a worker may know nothing of us.
    found = client.run(get_versions, AGREEING[1:], workers=[*addresses], on_error="ignore")
    here = running()
    for address, there in found.items():
        agree(f"worker {address}", there["packages"], here)
    return set(found)


def agree(node: str, there: Versions, here: Versions) -> None:
    """Raise RequestError where a node does not run what the client does.

    Patch releases of all but kmufs-stream may differ.
    """
    # What pip knows nothing of here, as in a source tree, has no version to compare.
    known = [name for name, version in here.items() if version is not None]
    other = [name for name in known if _release(name, there[name]) != _release(name, here[name])]
    if other:
        raise RequestError(
            "other_versions",
            f"The cluster's {node} has {_listed(other, there)}; here it is {_listed(other, here)}.",
            "Start its scheduler and all workers in the environment of this process: "
            f"{_listed(known, here)}.",
        )


def _release(name: str, version: str | None) -> str | None:
    """The part of a version in which two have to agree."""
    if version is None or name == "kmufs_stream":
        return version
    return ".".join(version.split(".")[:2])


def _listed(names: Iterable[str], versions: Versions) -> str:
    """As in ``Python 3.12.1, no numpy``."""
    said = {"python": "Python", "kmufs_stream": "kmufs-stream"}
    every = ((said.get(name, name), versions[name]) for name in names)
    return ", ".join(
        f"{name} {v.removesuffix('.final.0')}" if v else f"no {name}" for name, v in every
    )

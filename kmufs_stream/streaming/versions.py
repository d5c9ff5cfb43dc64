"""A cluster must run the versions that this process runs: else bits differ, or tasks never end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from kmufs_stream.errors import RequestError

if TYPE_CHECKING:
    import distributed

Versions: TypeAlias = Mapping[str, str | None]

PACKAGES = ("numpy", "scipy", "zarr", "dask", "distributed", "kmufs_stream")


def own_versions() -> Versions:
    """Return the versions in this process; None for packages that are not installed."""
    from distributed.versions import get_versions

    found: Versions = get_versions(PACKAGES)["packages"]
    return found


def check_cluster(client: distributed.Client) -> set[str]:
    """Compare the versions of the scheduler and of all workers with those of this process.

    Tasks of another Python, or of another release of Dask, may never end; another NumPy or SciPy
    gives other bits. ``Client.get_versions(check=True)`` only warns, and of patch releases too.

    Returns the addresses of the workers that answered. Raises RequestError for one that differs.
    """
    found = client.get_versions(packages=PACKAGES)
    nodes = {"scheduler": found["scheduler"]}
    nodes |= {f"worker {address}": said for address, said in found["workers"].items()}
    for node, said in nodes.items():
        compare(node, said["packages"], found["client"]["packages"])
    return set(found["workers"])


def compare(node: str, there: Versions, here: Versions) -> None:
    """Raise RequestError where a node's versions differ from the client's.

    Patch releases may differ, but for kmufs-stream's own.
    """
    for name in ("python", *PACKAGES):
        ours, theirs = here[name], there[name]
        # A package that is not installed here, such as this one in a source tree, is not compared.
        if ours is not None and _release(name, theirs) != _release(name, ours):
            raise RequestError(
                "other_versions",
                f"The cluster's {node} has {name} {theirs or '(none)'}; here it is {ours}.",
                "Start its scheduler and all workers in the environment of this process.",
            )


def _release(name: str, version: str | None) -> str | None:
    """Return the part of a version that has to agree."""
    if version is None or name == "kmufs_stream":
        return version
    return ".".join(version.split(".")[:2])

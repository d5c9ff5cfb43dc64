"""What stores hold, and the versions of their formats.

Whoever takes a name away, or gives it another meaning, raises the version, so that what was
written before is refused by name. Names that are new, and not needed to read the rest, are added.
"""

from __future__ import annotations

from pathlib import Path

import zarr
from helpers import planted, write_bare

from kmufs_stream import AdmmOptions, apply, decompose, select
from kmufs_stream.storage.provenance import (
    APPLICATION,
    CHECKPOINT,
    FACTOR,
    FORMAT_VERSIONS,
    SELECTION,
)

WRITTEN = "format format_version version command created source where located"
ATTRIBUTES = {
    FACTOR: "checksum excluded fingerprint k last_change method passes precision samples "
    "score_error screening settled",
    SELECTION: "ambiguous at_noise beyond_noise converged excluded_constant features fingerprint h "
    "iterations k kept method min_nonzero min_std missing missing_values near_copies objective "
    "optimum passes precision samples samples_dropped score_error settled solver "
    "solver_max_iter solver_mu0 solver_mu_max solver_objective solver_patience solver_rho "
    "tied_components transforms variable",
    APPLICATION: "h k matched selection solver transforms variable",
}
ARRAYS = {
    FACTOR: "components correlation dropped mean missing residuals sample sample_index "
    "singular_values std usable",
    SELECTION: "all_features/excluded all_features/mean all_features/missing all_features/score "
    "all_features/selected all_features/std data diagnostics/correlation "
    "diagnostics/objective diagnostics/related_index diagnostics/residual_u diagnostics/residual_w "
    "diagnostics/residuals diagnostics/rows_changed diagnostics/singular_values feature_index rank "
    "score",
    APPLICATION: "data feature_index rank score",
}


def test_what_is_written_is_what_the_versions_stand_for(tmp_path: Path) -> None:
    x = planted(60, 8)
    x[:, 4] = 1.0
    data, made = write_bare(tmp_path / "x.zarr", x, chunks=(20, 8)), tmp_path / "selection.zarr"
    decompose(data, 2, out=tmp_path / "factor.zarr", command="decompose")
    select(data, 2, 3, options=AdmmOptions(1e-6, 1e3), out=made, command="select")
    apply(made, data, out=tmp_path / "application.zarr", command="apply")
    assert FORMAT_VERSIONS == {FACTOR: 3, SELECTION: 1, APPLICATION: 1, CHECKPOINT: 1}
    for kind in (FACTOR, SELECTION, APPLICATION):
        root = zarr.open_group(tmp_path / f"{kind.removeprefix('kmufs-')}.zarr", mode="r")
        arrays = {name for name, member in root.members(None) if isinstance(member, zarr.Array)}
        assert root.attrs["format"] == kind
        assert set(root.attrs) == set(f"{WRITTEN} {ATTRIBUTES[kind]}".split())
        assert arrays == set(ARRAYS[kind].split())
    factor = zarr.open_group(tmp_path / "factor.zarr", mode="r")
    assert set(factor.attrs["screening"]) == {"missing", "min_std", "min_nonzero"}

"""Write one of everything that this tool stores, zipped, and what its version answers by each.

Run once for a version whose stores later versions are to open, from an empty folder:

    PYTHONPATH=EARLIER:EARLIER/cli:EARLIER/tests python write_stores.py

What it leaves there is kept as it is in written_by_VERSION, and test_earlier_stores.py opens it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from helpers import labelled, planted, write_bare, write_xarray

import kmufs_stream as ks

MEASURED = {"seconds", "peak_rss_bytes", "predicted_peak_bytes", "budget_bytes", "concessions"}
PLACES = {"output", "anndata_output", "path", "bytes"}
FACTOR_ARRAYS = ("components", "singular_values", "residuals", "correlation")
FEATURE_ARRAYS = ("mean", "std", "usable", "missing", "dropped")


def digest(values: Any) -> str:
    """Of an array: its dtype, shape and bytes."""
    array = np.ascontiguousarray(values)
    return f"{array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()[:16]}"


def told(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary without what differs between two runs of the same."""
    kept = {name: value for name, value in summary.items() if name not in MEASURED | PLACES}
    return dict(json.loads(json.dumps(kept)))


def arrays_of(factor: ks.Factor) -> dict[str, str]:
    """A digest of each array that a factor holds."""
    found = {name: getattr(factor, name) for name in FACTOR_ARRAYS}
    found |= {name: getattr(factor.features, name) for name in FEATURE_ARRAYS}
    found |= {"sample": factor.sample.values, "sample_index": factor.sample.index}
    return {name: digest(values) for name, values in found.items() if values is not None}


def variables_of(store: Path) -> dict[str, Any]:
    """Each variable of a result's root, as xarray opens it: a digest, or text and times in full."""
    with xr.open_zarr(store, consolidated=False) as root:
        return {
            str(name): (
                digest(variable.values)
                if variable.dtype.kind in "iufb"
                else [str(value) for value in variable.values.astype(times(variable)).tolist()]
            )
            for name, variable in root.variables.items()
        }


def times(variable: xr.Variable) -> Any:
    """A dtype that does not hang on the version of xarray."""
    return "datetime64[s]" if variable.dtype.kind == "M" else object


def tables() -> dict[str, Any]:
    """The tables that everything is made of."""
    bare = planted(60, 8)
    bare[:, 4] = 1.0
    counts = labelled(np.abs(planted(48, 10, seed=1)))
    counts[5, 3] = counts[20, 7] = np.nan
    frame = pd.DataFrame(planted(50, 9, seed=2), columns=[f"v{i}" for i in range(9)])
    frame.iloc[3, 2] = frame.iloc[30, 5] = np.nan
    return {"bare": bare, "counts": counts, "frame": frame, "wide": planted(48, 24, seed=3)}


def interrupt(event: object) -> None:
    """Break off the run once the data are read."""
    if isinstance(event, ks.Started) and event.stage == "decomposing":
        raise ConnectionError


def main() -> None:
    """Write all into the current folder."""
    data = tables()
    bare, counts, frame, wide = data.values()
    made: dict[str, Any] = {"version": ks.__version__}

    write_bare(Path("x.zarr"), bare, chunks=(20, 8))
    write_xarray(Path("counts.zarr"), counts, zarr_format=2, chunks=(16, 10))
    opened = ks.open_matrix("counts.zarr", transform="log1p", where="number >= 4")
    drop, fill = ks.Screening("drop-samples"), ks.Screening("mean", min_std=1e-6)
    chosen = {
        "bare": ks.select("x.zarr", 2, 3, out="bare.zarr", command="kmufs-stream select x.zarr"),
        "labelled": ks.select(
            opened, 3, 4, solver="exact", keep="gene 2*", screening=drop, out="labelled.zarr"
        ),
        "only": ks.select(
            frame, 2, 3, solver="joint", screening=fill, selection_only=True, out="only.zarr"
        ),
    }
    ks.apply("labelled.zarr", counts[10:, ::-1], out="applied.zarr", command="apply")
    for name, selection in chosen.items():
        given = {"data": frame} if name == "only" else {}
        made[name] = {"summary": told(selection.summary())}
        made[name]["evaluation"] = told(ks.evaluate(f"{name}.zarr", **given).summary())
    made["applied"] = {"evaluation": told(ks.evaluate("applied.zarr", labels="batch").summary())}

    factors = {
        "gram": ks.decompose(frame, 2, method="gram", screening=fill, out="gram.zarr"),
        "lanczos": ks.decompose(wide, 3, method="lanczos", out="lanczos.zarr"),
    }
    for (name, factor), table in zip(factors.items(), (frame, wide), strict=True):
        made[name] = {
            "arrays": arrays_of(factor),
            "selection": told(ks.select(table, 2, 4, factor=factor).summary()),
            "sweep": told(ks.sweep(factor, [2], [2, 4], solvers=["exact", "css"]).summary()),
        }
    for name in ("bare", "labelled", "only", "applied"):
        made[name]["variables"] = variables_of(Path(f"{name}.zarr"))

    try:
        ks.decompose(wide, 3, method="gram", checkpoint="checkpoint", progress=interrupt)
    except ConnectionError:
        made["checkpoint"] = {}
    run = [sys.executable, "-m", "kmufs_stream_cli", "sweep", "x.zarr", "--k", "2,3", "--h", "2,4"]
    run += ["--solver", "exact,css", "--csv", "sweep.csv", "--json"]
    Path("sweep.json").write_bytes(subprocess.run(run, check=True, capture_output=True).stdout)

    for name in made.keys() - {"version"}:
        place = name if name == "checkpoint" else f"{name}.zarr"
        found = ks.info(place)
        made[name]["info"] = {key: value for key, value in found.items() if key not in PLACES}
    for place in ("x.zarr", "counts.zarr"):
        shutil.rmtree(place)
    np.savez_compressed("tables.npz", bare=bare, counts=counts, frame=frame, wide=wide)
    for folder in [path for path in Path().iterdir() if path.is_dir()]:
        with zipfile.ZipFile(f"{folder}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(path for path in folder.rglob("*") if path.is_file()):
                archive.write(file, file.relative_to(folder))
        shutil.rmtree(folder)
    Path("expected.json").write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

"""What the README and the pages of docs/ tell to type works as it stands there."""

from __future__ import annotations

import re
import shlex
import shutil
import warnings
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io
import typer
import xarray as xr
from commands import Cli, documented
from helpers import no_warnings, planted, write_bare
from scipy import sparse
from sources import anndata_stores as stores

from kmufs_stream.factors.methods import METHODS
from kmufs_stream.factors.solving import SOLVERS
from kmufs_stream_cli.app import COMMANDS, program
from kmufs_stream_cli.commands.demo import write_digits

ROOT = Path(__file__).parents[2]
PARTS = ("docs", "examples", "tests")  # not what else a clone holds, such as an environment
OURS = sorted([*ROOT.glob("*.md"), *(p for part in PARTS for p in (ROOT / part).glob("**/*.md"))])
PAGES = ("README.md", "docs/guide.md", "docs/data.md", "docs/running.md")
ELSEWHERE = ("--scheduler", "--workers")  # what takes a cluster has tests of its own


def steps(page: str) -> list[tuple[str, list[str]]]:
    """The Python blocks of a page and its command lines, fenced, indented or in running text."""
    text = (ROOT / page).read_text().replace("\\\n", " ")
    python = r"^```python\n((?:(?!```).*\n)+)```$"
    found = re.findall(
        rf"{python}|^ *(kmufs-stream [^\n]+)$|`(kmufs-stream [a-z][^`\n]+)`", text, re.M
    )
    return [(block, shlex.split(a or b, comments=True)[1:]) for block, a, b in found]


@pytest.fixture
def files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of which the pages speak, as small as they may be."""
    monkeypatch.setattr("kmufs_stream_cli.commands.demo.COPIES", 1)
    rng = np.random.default_rng(0)
    write_bare(folder / "data.zarr", planted(150, 110), chunks=(50, 110))
    write_bare(folder / "wide.zarr", planted(150, 110), chunks=(150, 10))
    Path("kmufs-demo").mkdir()
    write_digits(folder / "kmufs-demo/digits.zarr")

    genes = [f"g{i}" for i in range(210)]
    counts = sparse.csr_matrix(rng.poisson(0.7, (230, 210)).astype(np.float32))
    table = pd.DataFrame({"gene_ids": [f"ENS{g}" for g in genes]}, index=genes)
    names = pd.DataFrame(index=[f"c{i}" for i in range(230)])
    cells = anndata.AnnData(counts, obs=names, var=table, layers={"counts": counts})
    cells.raw = cells
    stores.write_h5ad(cells, Path("cells"))
    stores.write_zarr3(cells, Path("counts"))
    Path("filtered_feature_bc_matrix").mkdir()
    scipy.io.mmwrite("filtered_feature_bc_matrix/matrix.mtx", sparse.csc_matrix(counts.T))
    for name, index in (("features", table.index), ("barcodes", names.index)):
        Path(f"filtered_feature_bc_matrix/{name}.tsv").write_text("\n".join(index) + "\n")

    frame = pd.DataFrame(planted(60, 5), columns=list("abcde"))
    frame.to_csv("table.csv", index_label="id")
    Path("parts").mkdir()
    frame.to_parquet("parts/0.parquet")
    with h5py.File("matrix.h5", "w") as matrix:
        matrix["counts"] = planted(60, 5)
    air = xr.DataArray(
        planted(200, 24).reshape(200, 4, 6),
        dims=("time", "lat", "lon"),
        coords={"lat": [50, 55, 60, 65], "lon": [0, 1, 2, 3, 4, 5]},
        name="air",
    )
    air.to_dataset().to_zarr("air.zarr", zarr_format=2)
    air.to_dataset().to_netcdf("fields.nc", engine="h5netcdf")


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.usefixtures("files", "hasty")
def test_every_step_of_a_page_works_after_those_before(page: str, cli: Cli) -> None:
    found = steps(page)
    assert found
    if page == "docs/guide.md":
        cli("demo")
    scope: dict[str, object] = {}
    for block, arguments in found:
        if block:
            with no_warnings():
                warnings.filterwarnings("ignore", "The 'future.infer_string'")  # of AnnData itself
                exec(block, scope)
            continue
        if any(word in ELSEWHERE or "://" in word for word in arguments):
            continue
        for earlier in Path().glob("*.selected.zarr"):
            shutil.rmtree(earlier)
        run = cli(*arguments)
        assert run.code == 0, (arguments, run.err)


def test_links_lead_somewhere() -> None:
    for page in OURS:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), (page, target)


def test_none_is_forgotten() -> None:
    for page, names in (("solvers", SOLVERS), ("how-it-works", METHODS)):
        text = (ROOT / f"docs/{page}.md").read_text()
        assert all(f"`{name}`" in text or f"--solver {name}" in text for name in names)
    readme = (ROOT / "README.md").read_text()
    assert all(f"docs/{page.name}" in readme for page in (ROOT / "docs").glob("*.md"))
    context = typer.Context(program)
    taken = {
        command: [p.name for p in program.get_command(context, command).params]
        for command in COMMANDS
    }
    assert {command for command in taken if "json" in taken[command]} == documented().keys()

"""What the README and the pages of docs/ tell to type works as it stands there."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io
import xarray as xr
from conftest import Run
from helpers import planted, write_bare
from scipy import sparse
from sources import anndata_stores as stores

from kmufs_stream_cli.demo_data import write_digits

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/guide.md", "docs/data.md", "docs/running.md")
ELSEWHERE = ("--scheduler", "--workers")  # what takes a cluster has tests of its own


def fences(page: str, kind: str) -> list[str]:
    """The fenced blocks of a kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)


def commands(page: str) -> list[list[str]]:
    """The command lines of a page, fenced, indented or in running text."""
    text = (ROOT / page).read_text().replace("\\\n", " ")
    lines = re.findall(r"^ *(kmufs-stream [^\n]+)$|`(kmufs-stream [a-z][^`\n]+)`", text, re.M)
    return [shlex.split(a or b, comments=True)[1:] for a, b in lines]


@pytest.fixture
def files(folder: Path) -> None:
    """The files of which the pages speak."""
    rng = np.random.default_rng(0)
    write_bare(folder / "data.zarr", planted(400, 120), chunks=(100, 120))
    write_bare(folder / "wide.zarr", planted(400, 120), chunks=(400, 10))
    Path("kmufs-demo").mkdir()
    write_digits(folder / "kmufs-demo/digits.zarr")
    demo = xr.open_zarr("kmufs-demo/digits.zarr").load().drop_encoding()
    later = demo.isel({str(next(iter(demo.data_vars.values())).dims[0]): slice(None, None, -1)})
    later.to_zarr("new.zarr", consolidated=False)

    genes = [f"g{i}" for i in range(240)]
    counts = sparse.csr_matrix(rng.poisson(0.7, (300, 240)).astype(np.float32))
    table = pd.DataFrame({"gene_ids": [f"ENS{g}" for g in genes]}, index=genes)
    names = pd.DataFrame(index=[f"c{i}" for i in range(300)])
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
@pytest.mark.usefixtures("files")
def test_every_command_of_a_page_works(page: str, cli: Callable[..., Run]) -> None:
    found = commands(page)
    assert found
    if page == "docs/guide.md":
        cli("demo")
    for arguments in found:
        if any(word in ELSEWHERE or "://" in word for word in arguments):
            continue
        for earlier in Path().glob("*.selected.zarr"):
            shutil.rmtree(earlier)
        run = cli(*arguments)
        assert run.code == 0, (arguments, run.err)


@pytest.mark.parametrize("page", [page for page in PAGES if fences(page, "python")])
@pytest.mark.usefixtures("files")
def test_the_python_of_a_page_works(page: str) -> None:
    scope: dict[str, object] = {}
    for block in fences(page, "python"):
        exec(block, scope)


@pytest.mark.parametrize("page", sorted(ROOT.glob("**/*.md")), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_page_is_reached_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert f"docs/{page.name}" in readme


def names(module: str) -> set[str]:
    """The names of the rows and columns that a module prints: what begins a pair of the source."""
    source = (ROOT / f"cli/kmufs_stream_cli/{module}.py").read_text()
    pairs = [node.elts for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Tuple)]
    firsts = [
        pair[0].value
        for pair in pairs
        if len(pair) == 2
        and isinstance(pair[0], ast.Constant)
        # Two plain strings are options of the command, not a name and what is said.
        and not (isinstance(pair[1], ast.Constant) and isinstance(pair[1].value, str))
    ]
    return {name for name in firsts if isinstance(name, str) and name}


@pytest.mark.parametrize("command", ["select", "sweep", "evaluate", "plan", "decompose"])
def test_every_name_on_the_screen_is_explained_once(command: str) -> None:
    screen = (ROOT / "docs/output.md").read_text().split("## The words on the screen")[1]
    screen = screen.split("\n## ")[0].replace("\\|", "¦")
    firsts = [line.split("|")[1] for line in screen.splitlines() if line.startswith("| `")]
    words = [word.replace("¦", "|") for cell in firsts for word in re.findall("`([^`]+)`", cell)]
    assert len(words) == len(set(words))
    found = names(f"commands/{command}")
    assert len(found) > 5
    assert (found | names("show")) - set(words) == set()

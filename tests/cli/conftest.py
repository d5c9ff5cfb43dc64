"""Small stores, and the command line run on them: in this process, or as a real one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
import xarray as xr
from commands import Cli, Gate, Run, documented, ended, typed
from helpers import planted, write_bare, write_xarray
from processes import Begun

from kmufs_stream.factors import reader, solving
from kmufs_stream.reporting import figures
from kmufs_stream.solvers import clustering
from kmufs_stream.solvers.admm import admm
from kmufs_stream.solvers.solution import Solution
from kmufs_stream_cli import main
from kmufs_stream_cli.app import COMMANDS, program


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cli(folder: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs the command line in this process.

    What an error advises has to be possible, and each key of a --json be told in the docs.
    """

    def run(*arguments: object) -> Run:
        capsys.readouterr()
        code = main([str(a) for a in arguments])
        done = Run(code, *capsys.readouterr())
        if code in (1, 2):
            assert unknown_options(str(arguments[0]), done.err or done.out) == set()
        elif code == 0 and "--json" in arguments:
            assert done.json().keys() <= documented()[str(arguments[0])]
        return done

    return run


@pytest.fixture
def here(cli: Cli, small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs the command line in this process, in the partitions of slow ones."""
    monkeypatch.setattr(reader, "CachedRows", lambda rows, limit: rows)
    return cli


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long ends early, for who asks whether commands run at all.

    The ADMM and K-means take three steps, and reports draw one figure of each thing they show.
    """
    of_result, of_trials = figures.of_result, figures.of_trials

    def first_steps(*given: Any, max_iter: int, **options: Any) -> Solution:
        return admm(*given, max_iter=min(max_iter, 3), **options)

    monkeypatch.setattr(solving, "admm", first_steps)
    monkeypatch.setattr(clustering, "MAX_ITERATIONS", 3)
    monkeypatch.setattr(figures, "of_result", lambda result: of_result(result)[:1])
    monkeypatch.setattr(figures, "of_trials", lambda trials: of_trials(trials)[:1])


def unknown_options(command: str, told: str) -> set[str]:
    """The options in an error that neither the command has nor another that the error names."""
    if "No such option" in told or command not in COMMANDS:
        return set()
    words = set(re.findall(r"[a-z]+", told)) | {command}
    context = typer.Context(program)
    known = {
        option
        for name in words & set(COMMANDS)
        for parameter in program.get_command(context, name).params
        for option in parameter.opts
    }
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", told)) - known - {"--debug", "--help"}


@pytest.fixture
def shell(folder: Path) -> Cli:
    """Runs the command line as a process of its own."""

    def run(*arguments: object) -> Run:
        return ended(Begun(typed, [str(a) for a in arguments]))

    return run


@pytest.fixture
def gate(tmp_path_factory: pytest.TempPathFactory) -> Gate:
    """Where a slow command waits; not in the current folder."""
    return Gate(tmp_path_factory.mktemp("gate"))


@pytest.fixture
def table(folder: Path) -> Path:
    """data.zarr: a bare array, 300 x 12 in six chunks."""
    write_bare(folder / "data.zarr", planted(300, 12), chunks=(50, 12))
    return Path("data.zarr")


@pytest.fixture
def genes(folder: Path) -> Path:
    """genes.zarr: 300 x 14 with labels, of which the last two features are constant."""
    X = np.hstack([planted(300, 12), np.full((300, 2), 7.0)])
    labels = [f"[gene] {i} é" for i in range(14)]
    cells = xr.DataArray(
        X, dims=("cell", "gene"), coords={"gene": labels}, name="counts", attrs={"units": "1"}
    )
    write_xarray(folder / "genes.zarr", cells, chunks=(50, 14))
    return Path("genes.zarr")

"""What is installed: the interface, what importing it costs, and what the metadata promise."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from helpers import planted
from packaging.requirements import Requirement
from packaging.version import Version

import kmufs_stream
import kmufs_stream_cli
from kmufs_stream_cli.app import COMMANDS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HEAVY = {"anndata", "dask", "distributed", "h5py", "jinja2", "matplotlib", "numpy", "pandas"}
HEAVY |= {"scipy", "sklearn", "xarray", "zarr"}
LIBRARY = Path(kmufs_stream.__file__).parent
ALIASES = {"Event", "MethodName", "MissingPolicy", "PrecisionName", "Progress", "SolverName"}
FOR_DEVELOPERS = {"all", "bench", "dev", "test"}


def distribution() -> importlib.metadata.Distribution:
    """The installed wheel; without one, as in a checkout on PYTHONPATH, the test skips."""
    try:
        found = importlib.metadata.distribution("kmufs-stream")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("kmufs-stream is not installed")
    told = found.read_text("direct_url.json")
    if told is not None and json.loads(told).get("dir_info", {}).get("editable"):
        pytest.skip("kmufs-stream is installed as editable")
    return found


def sections(thing: object) -> dict[str, dict[str, str]]:
    """The sections of a numpydoc docstring: the names that each explains, and how."""
    parts = re.split(r"^(\w[\w ]+)\n-{3,}\n", inspect.getdoc(thing) or "", flags=re.M)
    found: dict[str, dict[str, str]] = {}
    for heading, text in zip(parts[1::2], parts[2::2], strict=True):
        entries = re.findall(r"^(\S.*)\n((?:(?: .*)?\n)*)", text + "\n", re.M)
        found[heading] = {
            name: how.strip()
            for header, how in entries
            for name in header.partition(" : ")[0].split(", ")
        }
    return found


@pytest.mark.parametrize("name", sorted({*kmufs_stream.__all__} - {"__version__"}))
def test_every_public_name_is_there_and_its_parameters_are_explained(name: str) -> None:
    thing = getattr(kmufs_stream, name)
    assert name in dir(kmufs_stream)
    if name in ALIASES:
        homes = "".join((LIBRARY / f"{home}.py").read_text() for home in ("events", "options"))
        assert re.search(rf'^{name} = .+\n""".+"""$', homes, re.M)
        return
    assert inspect.getdoc(thing)
    for attribute, value in vars(thing).items() if inspect.isclass(thing) else ():
        if attribute[0] != "_" and (inspect.isroutine(value) or isinstance(value, property)):
            assert inspect.getdoc(getattr(thing, attribute)), attribute
    said = sections(thing)
    if inspect.isfunction(thing):
        taken = inspect.signature(thing).parameters.keys()
        assert said.get("Parameters", {}).keys() == taken
        assert "RequestError" in said.get("Raises", {}) or not taken
        assert "Returns" in said or inspect.signature(thing).return_annotation == "None"
    elif dataclasses.is_dataclass(thing):
        explained = said.get("Attributes", {}) | said.get("Parameters", {})
        assert explained.keys() == {field.name for field in dataclasses.fields(thing)}
    texts = [said.get(part, {}) for part in ("Parameters", "Attributes", "Raises")]
    assert all(text for part in texts for text in part.values())


def test_whatever_is_shown_takes_a_line_and_may_be_compared(tmp_path: Path) -> None:
    ks, x, out = kmufs_stream, planted(60, 300), tmp_path / "chosen.zarr"
    factor = ks.decompose(x, 2)
    chosen = ks.select(x, 2, 3, factor=factor, solver="exact", out=out)
    applied = ks.apply(out, x, out=tmp_path / "new.zarr")
    tried = ks.sweep(factor, 2, 3, solvers="exact")
    things = (ks.open_matrix(x), factor, chosen, ks.plan_selection(x, 2, 3), applied, tried)
    for thing in things:
        assert re.fullmatch(rf"<{type(thing).__name__}: .{{10,}}>", repr(thing))
        assert [other for other in (None, *things) if other == thing] == [thing]
    for thing in (*things[:3], applied, tried, tried.trials[0]):
        assert len({thing, thing}) == 1


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kmufs_stream.nothing


def loaded_by(code: str) -> set[str]:
    path = [str(Path(package.__file__).parents[1]) for package in (kmufs_stream, kmufs_stream_cli)]
    told = "import sys; print(*{m.partition('.')[0] for m in sys.modules}, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path}\n{code}\n{told}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return set(done.stdout.split())


def test_importing_and_help_load_nothing_heavy() -> None:
    assert not loaded_by("import kmufs_stream") & (HEAVY | {"typer", "rich"})
    helps = "; ".join(f"main(['{name}', '--help'])" for name in [*COMMANDS, "--help"])
    loaded = loaded_by(f"from kmufs_stream_cli import main; {helps}")
    assert "typer" in loaded
    assert not loaded & (HEAVY | {"pydantic"})  # which newer Typer loads when it must


def test_one_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", kmufs_stream.__version__)
    newest = re.search(r"^## \[(\d[^]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest[1] == kmufs_stream.__version__
    assert distribution().version == kmufs_stream.__version__


def test_a_wheel_holds_two_packages_and_no_more() -> None:
    files = distribution().files or []
    tops = {file.parts[0] for file in files if not file.parts[0].endswith(".dist-info")}
    assert tops - {".."} == {"kmufs_stream", "kmufs_stream_cli"}
    assert any(str(file) == "kmufs_stream/py.typed" for file in files)


def test_all_holds_every_extra_of_users() -> None:
    extras = PROJECT["optional-dependencies"]
    (whole,) = map(Requirement, extras["all"])
    assert whole.extras == set(extras) - FOR_DEVELOPERS


def test_the_lowest_versions_are_those_that_are_tested() -> None:
    extras = PROJECT["optional-dependencies"]
    users = [extras[name] for name in extras if name not in FOR_DEVELOPERS]
    bounds = {}
    for requirement in map(Requirement, sum(users, PROJECT["dependencies"])):
        (bound,) = requirement.specifier
        assert bound.operator == ">="
        bounds[requirement.name] = Version(bound.version)
    lines = re.findall(r"^[^#\n]+", (ROOT / "tests/lowest.txt").read_text(), re.M)
    lowest = {
        pin.name: Version(str(pin.specifier).removeprefix("==")) for pin in map(Requirement, lines)
    }
    assert bounds.items() <= lowest.items()

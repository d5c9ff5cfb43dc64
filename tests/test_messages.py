"""What the library says: in words of Python, which the command line turns into its own."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from string import Formatter
from typing import Any

import dask.array as da
import numpy as np
import pytest
import typer
from helpers import planted

import kmufs_stream
from kmufs_stream import (
    AdmmOptions,
    KMeansUFS,
    LanczosOptions,
    RequestError,
    Screening,
    open_matrix,
)
from kmufs_stream.errors import HOMES, Text
from kmufs_stream_cli.app import program
from kmufs_stream_cli.wording import OPTIONS, as_typed

LIBRARY = Path(kmufs_stream.__file__).parent
X = planted(40, 6)
WHOLE_COMMAND = re.compile(r"(kmufs-stream|dask) [^.;]*")


def calls(name: str) -> Iterator[tuple[str, ast.Call]]:
    for file in LIBRARY.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name:
                yield f"{file}:{node.lineno}", node


def test_what_messages_name_are_parameters_and_options() -> None:
    named: dict[str, str] = {}
    for where, call in calls("Text"):
        template = call.args[0]
        assert isinstance(template, ast.Constant), f"{where}: only a literal is safe from braces"
        said = WHOLE_COMMAND.sub("", str(template.value))
        assert not re.search(r"(?<![\w-])--[a-z]", said), f"{where}: the option of one face"
        fields = {field for _, field, _, _ in Formatter().parse(str(template.value)) if field}
        assert {keyword.arg for keyword in call.keywords} <= fields, where
        named |= dict.fromkeys(fields, where)
    for where, call in calls("Option"):
        given = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
        named |= {str(name): where for name in [*given, *(k.arg for k in call.keywords if k.arg)]}
    assert len(named) > 40
    context = typer.Context(program)
    commands = [program.get_command(context, name) for name in program.list_commands(context)]
    typed = {p.name for command in commands for p in command.params}
    offered = [getattr(kmufs_stream, name) for name in kmufs_stream.__all__]
    takers = [thing for thing in offered if inspect.isclass(thing) or inspect.isfunction(thing)]
    taken = {name for taker in takers for name in inspect.signature(taker).parameters}
    for known in (taken, {*typed, *OPTIONS}):
        assert not {name: where for name, where in named.items() if name not in known}
    assert {option.replace("-", "_") for option in OPTIONS.values()} <= typed


def test_parameters_are_spelled_where_python_takes_them() -> None:
    for home, names in HOMES.items():
        taker = getattr(kmufs_stream, home.partition("=")[2].partition("(")[0] or "open_matrix")
        assert {*names.split()} <= {*inspect.signature(taker).parameters}
    assert {*inspect.signature(open_matrix).parameters} - {*" ".join(HOMES.values()).split()} == {
        "data",
        "storage_options",
    }


@pytest.mark.parametrize(
    ("said", "python", "typed"),
    [
        (Text("{tol} is {}.", 2), "`tol` is 2.", "--tol is 2."),
        (
            Text("{mu0} > {mu_max}", mu0=1e-7, mu_max=0.5),
            "`options=AdmmOptions(mu0=1e-07)` > `options=AdmmOptions(mu_max=0.5)`",
            "--mu0 1e-07 > --mu-max 0.5",
        ),
        (
            Text("{coordinates}", coordinates=["a", "b `k`", "c's"]),
            "`coordinates=['a', 'b `k`', \"c's\"]`",
            r"""--coordinate a --coordinate 'b `k`' --coordinate 'c'"'"'s'""",
        ),
        (
            Text("{sample_dims}", sample_dims=["y", "x"]),
            "`open_matrix(data, sample_dims=['y', 'x'])`",
            "--sample-dims y,x",
        ),
        (
            Text("{storage_options}", storage_options={"anon": True}),
            "`storage_options={'anon': True}`",
            "--storage-option anon=true",
        ),
        (Text("{where} {!r}", "`k` > {3}"), "`where` '`k` > {3}'", "--where '`k` > {3}'"),
        ("data/" + Text("{} {k}", "`h=3` {k}"), "data/`h=3` {k} `k`", "data/`h=3` {k} --k"),
    ],
)
def test_each_face_spells_parameters_its_own_way(said: Text, python: str, typed: str) -> None:
    assert said == python
    assert as_typed(said) == typed
    assert as_typed(pickle.loads(pickle.dumps(said))) == typed
    assert as_typed(Text("another {out}"), "rechunk") == "another OUT"


@pytest.mark.parametrize(
    ("taker", "option", "value"),
    [
        (LanczosOptions, "tol", 2),
        (LanczosOptions, "max_passes", 0),
        (AdmmOptions, "rho", 0.5),
        (AdmmOptions, "mu0", 0.0),
        (AdmmOptions, "mu0", np.nan),
        (AdmmOptions, "mu_max", np.inf),
        (AdmmOptions, "max_iter", 0),
        (AdmmOptions, "patience", 0),
        (Screening, "min_std", -1),
        (partial(open_matrix, X), "retries", -1),
    ],
)
def test_options_out_of_range_are_refused(
    taker: Callable[..., Any], option: str, value: float
) -> None:
    with pytest.raises(RequestError) as caught:
        taker(**{option: value})
    assert (caught.value.message, caught.value.code) == (f"`{option}` is {value}.", "bad_option")


def test_an_error_knows_the_parameters_that_it_is_about() -> None:
    with pytest.raises(RequestError) as caught:
        AdmmOptions(mu0=2, mu_max=1)
    assert caught.value.code == "bad_option"
    assert caught.value.parameters == ["mu0", "mu_max"]
    assert pickle.loads(pickle.dumps(caught.value)).parameters == ["mu0", "mu_max"]


def test_the_estimator_says_what_it_does_not_take() -> None:
    with pytest.raises(RequestError) as caught:
        KMeansUFS(3, 4).fit(X[:, :3])
    assert caught.value.remedy == "Give `h=3` or less."
    gaps = np.where(X[3, 2] == X, np.nan, X)
    with pytest.raises(RequestError) as caught:
        KMeansUFS(2, 3).fit(da.from_array(gaps))
    assert caught.value.remedy.endswith(" KMeansUFS has no such option; kmufs_stream.select has.")

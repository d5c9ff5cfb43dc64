"""Misspelt names: what was meant is named; and what a shell can complete."""

from __future__ import annotations

import re
from typing import get_args

import pytest
import typer
from commands import Cli

from kmufs_stream.errors import did_you_mean
from kmufs_stream.factors.methods import METHODS
from kmufs_stream.factors.solving import SOLVERS
from kmufs_stream.options import POLICIES
from kmufs_stream.streaming.kernels.scaling import Precision
from kmufs_stream_cli import main
from kmufs_stream_cli.app import COMMANDS, program

SELECT = ("select", "cells.zarr", "--variable", "counts", "--k", 2, "--h", 3)


def test_one_dash_is_one_too_few(cli: Cli) -> None:
    for typed in ("-k 10", "-k=5,10", "-h100", "-h 100"):
        done = cli("select", "cells.zarr", *typed.split()).refused()
    assert done.err == "Error: -h shows help.\n  Type two dashes: --h 100\n"
    assert cli("select", "-h").code == 0
    assert "See kmufs-stream select --help." in cli("select", "cells.zarr", "--h").err


def test_nothing_is_suggested_where_nothing_is_near() -> None:
    assert did_you_mean("zebra", ["counts", "logs"]) == ""
    assert did_you_mean("", []) == ""


def test_the_names_that_are_completed_are_those_that_there_are() -> None:
    select = program.get_command(typer.Context(program), "select")
    offered = {str(p.name): set(str(p.metavar).split("|")) for p in select.params}
    assert offered["solver"] == set(SOLVERS)
    assert offered["method"] == {"auto", *METHODS}
    assert offered["precision"] == {"auto", *get_args(Precision)}
    assert offered["missing"] == set(POLICIES)


def test_a_shell_completes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_KMUFS_STREAM_COMPLETE", "complete_bash")
    for words, expected in (
        ("select d.zarr --solver c", ["consensus", "css"]),
        ("sweep d.zarr --solver css,e", ["css,exact"]),
        ("select d.zarr --sol", ["--solver"]),
        ("rech", ["rechunk"]),
    ):
        monkeypatch.setenv("COMP_WORDS", f"kmufs-stream {words}")
        monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
        with pytest.raises(SystemExit) as end:
            main([])
        assert (end.value.code, capsys.readouterr().out.split()) == (0, expected)


def test_help_has_a_summary_every_option_and_the_examples(cli: Cli) -> None:
    every = " ".join(cli("--help").out.split())
    for command, examples in COMMANDS.items():
        shown = cli(command, "--help").out
        function = program.get_command(typer.Context(program), command).callback
        summary = " ".join(str(function.__doc__).partition("\n\n")[0].split())
        for told in (" ".join(shown.split()), every):
            assert summary in told, command
        for example in examples:
            assert f"    kmufs-stream {example}\n" in shown
        options = program.get_command(typer.Context(program), command).params
        named = {max(p.opts, key=len) for p in options if p.param_type_name == "option"}
        assert named <= set(re.findall(r"(?:  |, )(--[\w-]+)", shown))
        assert "\x1b" not in shown

"""Spell the library's parameters as the options of the command line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from functools import partial
from typing import Any

from kmufs_stream import Option, Text

OPTIONS = {"coordinates": "coordinate", "storage_options": "storage-option"}
TOGETHER = ("sample_dims", "feature_dims")  # names of one option, parted by commas
ARGUMENTS = ("convert", "rechunk")  # commands of which `out` is an argument
PLACES = {"demo": "--folder"} | dict.fromkeys(ARGUMENTS, "OUT")


def as_typed(text: str, command: str = "") -> str:
    """Write a text's parameters as options of a command: ``h=3`` becomes ``--h 3``."""
    return text.spelled(partial(_spell, command=command)) if isinstance(text, Text) else text


def _spell(option: Option, command: str) -> str:
    if option.name is None:
        given = (typed for name, value in option.values.items() for typed in _given(name, value))
        return " ".join(given)
    if option.name == "out" and command in PLACES:
        return PLACES[command]
    return _flag(option.name)


def _flag(name: str) -> str:
    return "--" + OPTIONS.get(name, name).replace("_", "-")


def _given(name: str, value: Any) -> Iterator[str]:
    """The options, each with its value, that give a parameter this value."""
    if value is True:
        yield _flag(name)
        return
    if isinstance(value, dict):
        value = [f"{key}={json.dumps(of_it)}" for key, of_it in value.items()]
    values = value if isinstance(value, list) else [value]
    for each in [",".join(values)] if name in TOGETHER else values:
        yield f"{_flag(name)} {shlex.quote(str(each))}"

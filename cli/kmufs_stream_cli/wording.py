"""What the library says, in words of the command line: its parameters are options here."""

from __future__ import annotations

import ast
import json
import re
import shlex

from kmufs_stream_cli.typed import was_typed

# What is quoted (names and conditions of the user's, left as they are); `name`, `name=value`, or
# several of these parted by commas; and, after it, the function in Python that takes it.
QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
PARAMETER = re.compile(rf"(?<!\w)(?:{QUOTED})|`(\w+)(=(?:{QUOTED}|[^`'\"])*)?`(?: to open_matrix)?")
OPTIONS = {"coordinates": "coordinate", "path": "csv", "storage_options": "storage-option"}
TOGETHER = ("sample_dims", "feature_dims")  # names of one option, parted by commas
ARGUMENTS = ("convert", "rechunk")  # of these `out` is an argument


def as_typed(text: str, command: str = "") -> str:
    """The text with each parameter as it is typed: ```h=3``` is ``--h 3``.

    Names stay as they are: what is quoted, as the library quotes names of things in stores that
    hold backticks, and what was typed on this command line. What remains are paths of such names
    that nobody typed, like that of the data which a selection says it was made of.
    """
    return PARAMETER.sub(lambda found: _typed(found, command), text)


def _typed(found: re.Match[str], command: str) -> str:
    name, values = found.groups()
    if name is None or was_typed(f"`{name}{values or ''}`"):
        return found[0]
    if name == "out" and command in ARGUMENTS:
        return "OUT"
    if values is None:
        return _option(name)
    try:
        call = ast.parse(f"_({name}{values})", mode="eval").body
    except SyntaxError:  # no parameters, but what somebody called something
        return found[0]
    assert isinstance(call, ast.Call)
    return " ".join(_given(str(keyword.arg), keyword.value) for keyword in call.keywords)


def _option(name: str) -> str:
    return "--" + OPTIONS.get(name, name).replace("_", "-")


def _given(name: str, node: ast.expr) -> str:
    """The option, or options, that give a parameter this value."""
    option = _option(name)
    try:
        value = ast.literal_eval(node)
    except ValueError:
        value = ast.unparse(node)  # what stands for a value, like PATH
    if value is True:
        return option
    if isinstance(value, dict):
        value = [f"{key}={json.dumps(of_it)}" for key, of_it in value.items()]
    values = value if isinstance(value, list) else [value]
    if name in TOGETHER:
        values = [",".join(values)]
    return " ".join(f"{option} {shlex.quote(str(each))}" for each in values)
